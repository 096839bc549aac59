"""Deletion and insertion tell explanations that know from those that do not."""

import pytest
import torch
from drawing import numbers
from torch import nn

from vitrail.lens import Curves, curves, random_curves


class Bright(nn.Module):
    """A model that says 1 the surer the brighter three patches are, whatever the others."""

    places = ((0, 1), (2, 3), (1, 4))

    def forward(self, images, *, shortest=False):  # noqa: ARG002
        light = sum(images[:, :, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].mean((1, 2, 3)) for y, x in self.places)
        return torch.stack([torch.zeros_like(light), 3 * light], 1)


def truth():
    scores = torch.zeros(3, 5)
    for place in Bright.places:
        scores[place] = 1
    return scores


def test_the_ends_of_the_curves():
    image, model = numbers(3, 12, 20, dtype=torch.float32) + 1, Bright()
    found = curves(model, image, torch.rand(3, 5), 1)
    whole, empty = (float(model(x[None]).softmax(1)[0, 1]) for x in (image, torch.zeros_like(image)))
    assert torch.equal(found.fractions[[0, -1]], torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(found.deletion[[0, -1]], torch.tensor([whole, empty]))
    torch.testing.assert_close(found.insertion[[0, -1]], torch.tensor([empty, whole]))


def test_the_truth_is_best_its_opposite_worst_and_chance_between():
    image, model = torch.ones(3, 12, 20), Bright()
    best, worst = (curves(model, image, scores, 1).gap for scores in (truth(), -truth()))
    chance = random_curves(model, image, (3, 5), 1, orders=50)
    assert best > 3 * chance.spread
    assert worst < -3 * chance.spread
    assert abs(chance.gap) < 1e-6


def test_the_spread_is_that_of_single_orders():
    """Measured anew, with both lines of many orders of their own."""
    image, model = torch.ones(3, 12, 20), Bright()
    gaps = torch.tensor([curves(model, image, torch.rand(3, 5), 1).gap for _ in range(400)])
    chance = random_curves(model, image, (3, 5), 1, orders=200)
    assert chance.spread == pytest.approx(float(gaps.std()), rel=0.15)
    assert chance.areas[0] == pytest.approx(chance.areas[1], abs=1e-6)


def test_patches_alike_come_in_no_order_of_rows():
    """A map that says nothing is as good as chance, though its patches have to come in some order."""
    model = Bright()
    model.places = ((0, 0), (0, 1), (0, 2))
    image = torch.ones(3, 12, 20)
    by_rows = curves(model, image, -torch.arange(15.0).reshape(3, 5), 1).gap
    nothing = curves(model, image, torch.zeros(3, 5), 1).gap
    spread = random_curves(model, image, (3, 5), 1, orders=50).spread
    assert by_rows > 2 * spread
    assert abs(nothing) < 2 * spread


@pytest.mark.parametrize("count", [1, 2, 7, 15, 49, 196])
@pytest.mark.parametrize("steps", [3, 10, 20])
def test_the_fractions_are_symmetric(count, steps):
    fractions = random_curves(Bright(), torch.ones(3, 12, 4 * count), (1, count), 1, orders=1, steps=steps).fractions
    torch.testing.assert_close(fractions, 1 - fractions.flip(0))
    assert min(count, steps) <= len(fractions) <= min(count, steps) + 1
    assert (fractions.diff() > 0).all()


def test_each_step_takes_away_the_next_patches():
    """By hand: with the three places first, the answer after three patches is that of a picture without them."""
    found = curves(Bright(), torch.ones(3, 12, 20), truth(), 1)
    even = 0.5
    assert float(found.deletion[2]) > even
    assert float(found.deletion[3]) == even
    assert torch.equal(found.deletion[3:], torch.full((13,), even))
    assert float(found.insertion[3]) == float(found.insertion[-1])


def test_areas():
    line = torch.tensor([0.0, 0.5, 1.0])
    assert Curves(line, 1 - line, line).areas == (0.5, 0.5)
    assert Curves(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])).gap == 0.5
