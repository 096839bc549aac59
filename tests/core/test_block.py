"""Dropping: whole samples, whole layers."""

import pytest
import torch
from drawing import numbers
from torch import nn

from vitrail.core import DropPath, FeedForward, LayerNorm, Stack, Sublayer, activations


class Add(nn.Module):
    def forward(self, x):
        return x + 1


def test_drop_path_keeps_the_mean_and_whole_samples():
    drop = DropPath(0.25)
    x = torch.ones(4000, 3, 2)
    y = drop(x)
    kept = y[:, 0, 0]
    assert set(kept.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert torch.equal(y, kept[:, None, None].expand_as(y)), "all tokens of a sample together"
    assert y.mean().item() == pytest.approx(1, abs=0.05)
    assert torch.equal(drop.eval()(x), x)


def test_layers_are_dropped_in_training_alone():
    stack = Stack([Add() for _ in range(1000)], drop=0.3)
    assert stack(torch.zeros(1)).item() == pytest.approx(700, abs=60)
    assert stack.eval()(torch.zeros(1)).item() == 1000


def test_layer_scale_multiplies_what_is_written():
    width = 5
    f = FeedForward(width, 7)
    plain, scaled = Sublayer(f, LayerNorm(width), width), Sublayer(f, LayerNorm(width), width, layer_scale=0.1)
    x = numbers(2, 3, width, dtype=torch.float32)
    torch.testing.assert_close(scaled(x) - x, 0.1 * (plain(x) - x))


def test_dropout_is_off_in_evaluation():
    layer = Sublayer(FeedForward(5, 7, dropout=0.5), LayerNorm(5), 5, dropout=0.5, drop_path=0.5)
    x = numbers(2, 3, 5, dtype=torch.float32)
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize("name", sorted(activations))
def test_feed_forward_is_the_formula(name):
    """act(x W1 + b1) W2 + b2."""
    f = FeedForward(5, 7, name)
    nn.init.normal_(f.inner.bias)
    nn.init.normal_(f.out.bias)
    x = numbers(2, 3, 5, dtype=torch.float32)
    act = {
        "relu": lambda t: t.clamp(min=0),
        "gelu": lambda t: t * 0.5 * (1 + torch.erf(t / 2**0.5)),
        "gelu-tanh": lambda t: 0.5 * t * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (t + 0.044715 * t**3))),
        "silu": lambda t: t * torch.sigmoid(t),
        "swiglu": lambda t: t[..., :7] * torch.sigmoid(t[..., :7]) * t[..., 7:],
    }[name]
    expected = act(x @ f.inner.weight.T + f.inner.bias) @ f.out.weight.T + f.out.bias
    torch.testing.assert_close(f(x), expected, rtol=1e-5, atol=1e-6)
