"""Dropout beside what it should be: PyTorch's own, in the mean."""

import pytest
import torch

from vitrail.core.dropout import Dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_a_fraction_is_dropped_and_the_rest_made_larger(p):
    torch.manual_seed(0)
    x = torch.ones(1000, 1003)
    y = Dropout(p).train()(x)
    dropped = (y == 0).float().mean().item()
    assert dropped == pytest.approx(p, abs=4 * (p * (1 - p) / x.numel()) ** 0.5 + 1 / 65536)
    assert y[y != 0].unique().item() == pytest.approx(1 / (1 - p), rel=2e-4)
    theirs = torch.nn.functional.dropout(x, p)
    assert y.mean().item() == pytest.approx(theirs.mean().item(), abs=0.02)


def test_numbers_are_dropped_one_by_one():
    """No row, column or run of four has more in common than chance has it."""
    torch.manual_seed(0)
    kept = (Dropout(0.5).train()(torch.ones(4096, 512)) != 0).float()
    for side in (0, 1):
        assert kept.mean(side).std().item() == pytest.approx(0.5 / kept.shape[side] ** 0.5, rel=0.15)
    four = kept.view(-1, 4).sum(1).long().bincount(minlength=5) / kept.numel() * 4
    torch.testing.assert_close(four, torch.tensor([1, 4, 6, 4, 1]) / 16, atol=0.005, rtol=0)


def test_it_follows_from_the_seed_and_is_for_training_alone():
    x = torch.randn(7, 11)
    drop = Dropout(0.4).train()
    ones = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        ones.append(drop(x))
    assert torch.equal(ones[0], ones[1])
    assert not torch.equal(ones[0], ones[2])
    assert drop.eval()(x) is x or torch.equal(drop(x), x)


@pytest.mark.parametrize("p", [0.0, 0.999999, 1.0])
def test_at_its_ends(p):
    y = Dropout(p).train()(torch.ones(64, 64))
    assert torch.isfinite(y).all()
    assert (y == 1).all() if p == 0 else (y == 0).float().mean() > 0.99


def test_gradients_go_where_numbers_went():
    x = torch.randn(50, 20, requires_grad=True)
    y = Dropout(0.3).train()(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y != 0) / (1 - 0.3), rtol=1e-3, atol=0)
