"""What is random in training follows from the seed, the step and the micro-batch, whoever draws it."""

import numpy as np
import pytest
import torch
from kornia.geometry.transform import get_affine_matrix2d, warp_affine

from vitrail.data import Batches, Normalise, Pictures
from vitrail.tasks.pictures.augment import augmenter, warp
from vitrail.tasks.pictures.examples import TrainingPictures
from vitrail.tasks.pictures.recipe import Augment

MANY = Augment(flip=0.5, shift=0.2, rotate=10.0, zoom=0.1, crop=0.3, colour=0.2, erase=0.3, mixup=0.5, cutmix=0.5)


def pictures(count=53):
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 8, 8)
    return Pictures.of(images.contiguous(), torch.arange(count) % 5, "abcde", "picture")


def batches(parts=1, mine=None, *, size=10, epochs=3, seed=7, augment=Augment(), what=None):  # noqa: B008
    mine = range(parts) if mine is None else mine
    change = augmenter(augment, (8, 8), 3, 5)
    plain = Normalise((0.0,) * 3, (1.0,) * 3)
    examples = TrainingPictures(what or pictures(), change, plain)
    return Batches(examples, size, epochs, seed, parts, mine, torch.device("cpu"))


def test_an_epoch_is_every_picture_once():
    every = batches()
    assert (every.per_epoch, len(every)) == (6, 18)
    seen = [torch.cat([b.inputs[:, 0, 0, 0] for b in update]) for update in every.starting(0)]
    epochs = [torch.cat(seen[start : start + 6]) * 255 for start in (0, 6, 12)]
    for epoch in epochs:
        assert sorted(epoch.round().int().tolist()) == list(range(53))
    assert not torch.equal(epochs[0], epochs[1])
    assert {len(update) for update in seen} == {8, 9}  # as even as can be


@pytest.mark.parametrize("step", [1, 5, 6, 13])
def test_any_step_can_be_started_from(step):
    """The same batches, changed in the same way, as if all before had been drawn."""
    whole = [list(update) for update in batches(2, augment=MANY).starting(0)][step:]
    later = [list(update) for update in batches(2, augment=MANY).starting(step)]
    assert len(whole) == len(later)
    for one, other in zip(whole, later, strict=True):
        for a, b in zip(one, other, strict=True):
            assert torch.equal(a.inputs, b.inputs)
            assert torch.equal(a.targets, b.targets)


def test_processes_together_draw_what_one_would():
    alone = [list(update) for update in batches(4, augment=MANY).starting(3)]
    first = [list(update) for update in batches(4, range(2), augment=MANY).starting(3)]
    second = [list(update) for update in batches(4, range(2, 4), augment=MANY).starting(3)]
    for whole, a, b in zip(alone, first, second, strict=True):
        assert [batch.last for batch in (*a, *b)] == [False, True, False, True]
        assert sum(batch.weight for batch in (*a, *b)) == pytest.approx(1)
        for one, other in zip(whole, (*a, *b), strict=True):
            assert torch.equal(one.inputs, other.inputs)


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_labels_are_mixed_as_the_pictures_are(kind):
    """Pictures of one value each: a mixture's mean is that of the values, by the probabilities its label says."""
    values = torch.arange(5.0)[:, None, None, None].expand(5, 3, 16, 16).contiguous() / 5
    augment = augmenter(Augment(**{kind: 1.0}), (16, 16), 3, 5)
    moved = 0
    for _ in range(20):
        images, mixed = augment(values, torch.arange(5))
        torch.testing.assert_close(mixed.sum(1), torch.ones(5))
        torch.testing.assert_close(images.mean((1, 2, 3)), mixed @ (torch.arange(5.0) / 5), atol=1e-5, rtol=0)
        moved += int((mixed.max(1).values < 0.99).sum())
    assert moved > 20


def test_flips_are_flips_and_half_of_them():
    images = torch.rand(400, 1, 6, 6)
    changed, _ = augmenter(Augment(flip=0.5), (6, 6), 1, 5)(images, torch.zeros(400).long())
    same = (changed == images).flatten(1).all(1)
    mirrored = (changed == images.flip(-1)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 150 < same.sum() < 250


def test_shifts_move_by_whole_pixels_within_their_room():
    images = torch.zeros(200, 1, 10, 30)
    images[:, :, 5, 15] = 1
    changed, _ = augmenter(Augment(shift=0.2), (10, 30), 1, 5)(images, torch.zeros(200).long())
    places = changed.flatten(1).argmax(1)
    torch.testing.assert_close(changed.flatten(1).max(1).values, torch.ones(200))
    assert sorted((places // 30 - 5).unique().tolist()) == [-2, -1, 0, 1, 2]
    assert sorted((places % 30 - 15).unique().tolist()) == list(range(-6, 7))


def test_a_picture_is_turned_scaled_and_shifted_as_kornia_does():
    images = torch.rand(3, 2, 9, 14)
    turn, scale = torch.tensor([20.0, -35.0, 0.0]), torch.tensor([1.3, 0.8, 1.0])
    down, across = torch.tensor([2.0, -1.0, 3.0]), torch.tensor([-4.0, 0.0, 1.0])
    middle = torch.tensor([[6.5, 4.0]]).expand(3, -1)
    matrix = get_affine_matrix2d(torch.stack([across, down], 1), middle, scale[:, None].expand(-1, 2), -turn)[:, :2]
    expected = warp_affine(images, matrix, (9, 14), padding_mode="border", align_corners=True)
    torch.testing.assert_close(warp(images, turn.deg2rad(), scale, down, across), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("asked", "turns", "sizes"),
    [({"rotate": 30.0}, (20, 31), (0.98, 1.02)), ({"zoom": 0.25}, (-1, 1), (0.74, 1.26))],
)
def test_turns_and_zooms_go_as_far_as_they_are_asked_to(asked, turns, sizes):
    """Followed by a blot right of the middle: its angle, and its distance."""
    y, x = torch.meshgrid(torch.arange(61) - 30.0, torch.arange(61) - 30.0, indexing="ij")
    blot = (-((x - 16) ** 2 + y**2) / 18).exp().expand(300, 1, 61, 61)
    changed = augmenter(Augment(**asked), (61, 61), 1, 5)(blot, torch.zeros(300).long())[0][:, 0]
    across, down = ((changed * place).sum((1, 2)) / changed.sum((1, 2)) for place in (x, y))
    angles, away = torch.atan2(down, across).rad2deg().abs(), (across**2 + down**2).sqrt() / 16
    assert turns[0] < angles.max() < turns[1]
    assert sizes[0] < away.min()
    assert away.max() < sizes[1]
    if "zoom" in asked:
        assert away.min() < 0.8
        assert away.max() > 1.2


def test_nothing_is_changed_unless_asked_for():
    images, labels = torch.rand(7, 3, 8, 8), torch.arange(7) % 5
    changed, same = augmenter(Augment(), (8, 8), 3, 5)(images, labels)
    assert torch.equal(changed, images)
    assert torch.equal(same, labels)


def test_orders_of_neighbouring_seeds_have_nothing_in_common():
    first = [batches(seed=seed, epochs=4, size=53).starting(epoch) for seed in range(4) for epoch in range(4)]
    orders = [next(next(updates)).inputs[:, 0, 0, 0].numpy() for updates in first]
    agreements = [np.mean(a == b) for number, a in enumerate(orders) for b in orders[:number]]
    assert np.mean(agreements) < 0.04


def ramps(count, height, width):
    """Pictures whose first channel is the place across, the second the place down, from 0 to 1, pixel by pixel."""
    y, x = torch.meshgrid((torch.arange(height) + 0.5) / height, (torch.arange(width) + 0.5) / width, indexing="ij")
    return torch.stack([x, y, torch.zeros(height, width)]).expand(count, -1, -1, -1).clone()


def test_a_crop_is_a_box_of_the_picture_made_large_again():
    """On a ramp a crop is a ramp: its slope says how wide the box was, its start where it lay."""
    height, width, most = 48, 64, 0.6
    images = ramps(64, height, width)
    found, _ = augmenter(Augment(crop=most), (height, width), 3, 2)(images, torch.zeros(64, dtype=torch.int64))
    assert found.shape == images.shape
    areas = set()
    for across, down, nothing in found:
        inner = (slice(4, -4), slice(4, -4))  # the edge is repeated where the picture ends
        for steps in (across[inner].diff(dim=1), down[inner].diff(dim=0)):
            torch.testing.assert_close(steps, steps.mean().expand_as(steps), atol=2e-5, rtol=0)
        assert across[inner].diff(dim=0).abs().max() < 2e-5
        assert down[inner].diff(dim=1).abs().max() < 2e-5
        assert nothing.abs().max() == 0
        wide, high = float(across[inner].diff(dim=1).mean()) * width, float(down[inner].diff(dim=0).mean()) * height
        left, top = float(across[4, 4]) - wide * 4.5 / width, float(down[4, 4]) - high * 4.5 / height
        slack = 2 / height  # boxes are of whole pixels
        assert 1 - most - slack <= wide * high <= 1 + slack
        assert 3 / 4 - 0.1 <= wide * width / (high * height) <= 4 / 3 + 0.1
        assert left > -slack
        assert top > -slack
        assert left + wide < 1 + slack
        assert top + high < 1 + slack
        areas.add(round(wide * high, 2))
    assert len(areas) > 10
    assert min(areas) < 0.55


def test_colours_change_as_far_as_they_are_asked_to():
    """A shift, then a factor, then the distance to the largest of the three by a factor: each worked out by hand."""
    count, most = 48, 0.3
    images = 0.45 + 0.1 * torch.rand(count, 3, 6, 5)  # so far from black and white that nothing is cut off
    labels = torch.zeros(count, dtype=torch.int64)
    found, _ = augmenter(Augment(colour=most), (6, 5), 3, 2)(images, labels)
    looked = 0
    # What was drawn for each picture can be read off it: all pixels agree on one shift, one factor, one saturation.
    for before, after in zip(images, found, strict=True):
        top, new_top = before.max(0).values, after.max(0).values  # which saturation leaves alone
        fit = torch.stack([top.flatten(), torch.ones(30)], 1)
        factor, shift = torch.linalg.lstsq(fit, new_top.flatten()[:, None]).solution.flatten()
        if new_top.max() < 0.999:
            torch.testing.assert_close(fit @ torch.stack([factor, shift]), new_top.flatten(), atol=1e-4, rtol=0)
            assert 1 - most - 1e-3 <= float(factor) <= 1 + most + 1e-3
            assert abs(float(shift / factor)) <= most + 1e-3
            spread = (before.max(0).values - before) * factor
            ratio = (new_top - after)[spread > 0.02] / spread[spread > 0.02]
            torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), atol=2e-3, rtol=0)
            assert 1 - most - 5e-3 <= float(ratio.mean()) <= 1 + most + 5e-3
            looked += 1
    assert looked > 20


def test_an_erased_box_is_black_and_the_rest_as_it_was():
    count, height, width, often = 400, 20, 24, 0.7
    images = 0.5 + 0.5 * torch.rand(count, 3, height, width)
    found, _ = augmenter(Augment(erase=often), (height, width), 3, 2)(images, torch.zeros(count, dtype=torch.int64))
    erased = 0
    for before, after in zip(images, found, strict=True):
        black = (after == 0).all(0)
        assert torch.equal(after[:, ~black], before[:, ~black])
        if not black.any():
            continue
        erased += 1
        rows, columns = black.any(1).nonzero()[:, 0], black.any(0).nonzero()[:, 0]
        assert black.sum() == len(rows) * len(columns)  # one box
        assert rows[-1] - rows[0] + 1 == len(rows)
        assert columns[-1] - columns[0] + 1 == len(columns)
        assert 0.005 <= black.float().mean() <= 0.25 + 0.03  # of whole pixels
    assert erased / count == pytest.approx(often, abs=0.08)
