"""A13: a convolution is a restricted self-attention."""

import pytest
import torch
from drawing import numbers
from torch import nn

import vitrail as vt
from vitrail.core import ConvolutionAsAttention


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2, (1, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_k_squared_heads_reproduce_a_convolution_exactly(k, dilation, bias):
    convolution = nn.Conv2d(3, 5, k, padding="same", dilation=dilation, bias=bias).double()
    attention = ConvolutionAsAttention(convolution)
    image = numbers(2, 3, 7, 11)
    torch.testing.assert_close(attention(image), convolution(image), rtol=1e-12, atol=1e-12)
    assert attention.attention.heads == k * k


def test_each_head_looks_at_one_fixed_relative_position():
    """Every row of every pattern is a single 1, at the same offset everywhere, or empty beyond the border."""
    model = ConvolutionAsAttention(nn.Conv2d(3, 5, 3, padding=1))
    with vt.record(model) as trace:
        model(numbers(2, 3, 5, 7).float())
    pattern = trace.pattern(0)
    assert set(pattern.unique().tolist()) == {0.0, 1.0}
    _, head, query, key = pattern.nonzero().T
    offsets = torch.stack([key // 7 - query // 7, key % 7 - query % 7], dim=1)
    for h in range(9):
        assert offsets[head == h].unique(dim=0).tolist() == [[h // 3 - 1, h % 3 - 1]]


@pytest.mark.parametrize(
    "options", [{"stride": 2}, {"kernel_size": 2}, {"padding": 0}, {"groups": 2}, {"dilation": (1, 2)}]
)
def test_other_convolutions_get_a_sentence(options):
    convolution = nn.Conv2d(4, 4, **{"kernel_size": 3, "padding": 1, **options})
    with pytest.raises(vt.InputError, match="choose an odd kernel"):
        ConvolutionAsAttention(convolution)
