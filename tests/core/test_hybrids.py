"""Hybrids, and pixels grouped into visual tokens."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vitrail as vt
from vitrail.core import Grouping
from vitrail.core.resnet import StandardConv, same

SMALL = {"image": 32, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}


@torch.no_grad()
@pytest.mark.parametrize("size", [(32, 32), (16, 48)])
def test_tokens_are_groups_of_pixels(size):
    """T = A X W_V, A softmax over all pixels: seen by record as every attention is."""
    model = vt.build("vit", **SMALL, stem="resnet-small", tokens=6).eval()
    images = torch.randn(2, 3, *size)
    with vt.record(model) as trace:
        model(images)
    assert trace.names() == ["embed.group", "encoder.0.attention", "encoder.1.attention"]
    maps = trace.pattern("embed.group")
    assert maps.shape == (2, 1, 6, size[0] * size[1] // 16)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 1, 6))
    torch.testing.assert_close(maps @ trace.v("embed.group"), trace.z("embed.group"), rtol=0, atol=1e-5)
    assert trace.pattern("encoder.0.attention").shape[-1] == 1 + 6


def test_grouping_does_not_depend_on_the_order_of_pixels():
    group, x = Grouping(12, 4), torch.randn(2, 20, 12)
    torch.testing.assert_close(group(x), group(x[:, torch.randperm(20)]), rtol=0, atol=1e-5)
    explicit = (x @ group.queries.T).softmax(1).mT @ group.value(x)
    torch.testing.assert_close(group(x), explicit, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("side", "size", "stride"), [(7, 3, 2), (8, 3, 2), (9, 7, 2), (10, 1, 2), (8, 3, 1)])
def test_a_side_is_divided_by_the_stride_and_rounded_up(side, size, stride):
    x = torch.randn(1, 2, side, side + 1)
    convolved = StandardConv(2, 4, size, stride)(x)
    assert convolved.shape[-2:] == (-(-side // stride), -(-(side + 1) // stride))
    if stride == 1:
        assert same(x, size, 1).shape[-1] == side + 1 + size - 1


def test_kernels_are_standardised():
    """The scale and the mean of a kernel do not matter."""
    conv, x = StandardConv(3, 8, 3, 1), torch.randn(2, 3, 9, 9)
    before = conv(x)
    with torch.no_grad():
        conv.weight.mul_(7).add_(3)
    torch.testing.assert_close(conv(x), before, rtol=0, atol=1e-4)
    weight = conv.weight.detach()
    mean, std = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True, unbiased=False)
    torch.testing.assert_close(conv(x), F.conv2d(x, (weight - mean) / std, padding=1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["r+vit-micro/4", "r+vt-micro/4"])
def test_a_small_hybrid_learns(name):
    torch.manual_seed(0)
    model = vt.build(name, classes=2, width=32, depth=2)
    images = torch.randn(16, 3, 32, 32)
    labels = (images[:, 0].mean((1, 2)) > 0).long()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(40):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stem": "resnet50", "image": 32, "patch": 8}, "patch=8 is not a multiple of 16"),
        ({"stem": "resnet-small", "tokens": 4, "position": "relative"}, "position='relative' is between patches"),
        ({"pool": "distilled", "prelogits": 24}, "leave prelogits out"),
    ],
)
def test_what_does_not_go_together_gets_a_sentence(fields, says):
    with pytest.raises(vt.InputError) as caught:
        vt.build("vit", **{**SMALL, **fields})
    assert says in str(caught.value)
