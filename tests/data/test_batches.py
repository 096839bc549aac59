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
