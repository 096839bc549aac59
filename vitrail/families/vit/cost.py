"""What a ViT costs, by formulas over its shape: the numbers of each matrix, and how many rows go through it.

The same as counting a model that was made for it (``vitrail.families.cost``), and a thousand times sooner.
"""

from math import prod
from typing import TYPE_CHECKING

from vitrail.families.catalogue import Cost
from vitrail.families.parts import FREE, blocks, linear_map, norm, priced

if TYPE_CHECKING:
    from vitrail.families.vit.config import ViTConfig

# Of the ResNets: the width and stride of the first convolution, what it and its pooling shrink a picture by; then of
# each stage the number of units, their width, and the stride of the first.
RESNETS = {
    "resnet50": ((64, 7, 2, 4), ((3, 256, 1), (4, 512, 2), (9, 1024, 2))),
    "resnet50-all": ((64, 7, 2, 4), ((3, 256, 1), (4, 512, 2), (6, 1024, 2), (3, 2048, 2))),
    "resnet26": ((64, 7, 2, 4), ((2, 256, 1), (2, 512, 2), (2, 1024, 2), (2, 2048, 2))),
    "resnet-root": ((64, 7, 2, 4), ()),
    "resnet-small": ((32, 3, 1, 1), ((1, 64, 2), (1, 128, 2))),
}


def vit_cost(c: "ViTConfig") -> Cost | None:
    """The sum over all parts; None where a part is of another's making, with no formula here."""
    stem, position = _stem(c), _position(c)
    if stem is None or position is None or not priced(c):
        return None
    tokens = c.prefix + c.registers + (c.tokens or c.patches)
    embedding = stem + position + Cost((c.prefix + c.registers) * c.width, 0) + _grouping(c)
    return embedding + blocks(c, tokens) + (norm(c.width) if c.normed else FREE) + _head(c)


def _grouping(c: "ViTConfig") -> Cost:
    if not c.tokens:
        return FREE
    queries = Cost(c.tokens * c.width, 2 * c.tokens * c.patches * c.width)
    return queries + linear_map(c.width, c.width, c.patches)


def _head(c: "ViTConfig") -> Cost:
    before = linear_map(c.pooled, c.prelogits, 1) if c.prelogits else FREE
    logits = linear_map(c.prelogits or c.pooled, c.classes, 1) if c.classes else FREE
    return before + logits + (logits if c.pool == "distilled" else FREE)


def _position(c: "ViTConfig") -> Cost | None:
    down, across = c.grid
    numbers = {
        "none": 0,
        "sinusoidal": 0,
        "rotary": 0,
        "sincos": 0,
        "sincos2d": 0,
        "learned": (c.prefix + c.patches) * c.width,
        "learned2d": (down + across) * (c.width // 2),
        "relative": c.most_heads * ((2 * down - 1) * (2 * across - 1) + 3),
    }
    return Cost(numbers[c.position], 0) if c.position in numbers else None


def _stem(c: "ViTConfig") -> Cost | None:
    pixels = c.channels * c.patch**2
    if c.stem == "patch":
        return linear_map(pixels, c.width, c.patches)
    if c.stem == "patch-norm":
        return norm(pixels) + linear_map(pixels, c.width, c.patches) + norm(c.width)
    return _resnet(c) if c.stem in RESNETS else None


def _resnet(c: "ViTConfig") -> Cost:
    (before, kernel, stride, shrinks), stages = RESNETS[c.stem]
    cost = _convolution(c.channels, before, kernel, _shrunk(c.size, stride))
    size = _shrunk(c.size, shrinks)
    for units, width, step in stages:
        for unit in range(units):
            after = _shrunk(size, 1 if unit else step)
            cost += _unit(before, width, size, after)
            before, size = width, after
    return cost + linear_map(before * (size[0] // c.grid[0]) ** 2, c.width, c.patches)


def _unit(before: int, width: int, size: tuple[int, int], after: tuple[int, int]) -> Cost:
    inner = width // 4
    convolutions = (
        _convolution(before, inner, 1, size)
        + _convolution(inner, inner, 3, after)
        + _convolution(inner, width, 1, after)
    )
    return convolutions + (_convolution(before, width, 1, after) if before != width or size != after else FREE)


def _convolution(before: int, after: int, kernel: int, size: tuple[int, int]) -> Cost:
    """With its norm, and with so many pixels after it."""
    return linear_map(before * kernel**2, after, prod(size), bias=False) + norm(after)


def _shrunk(size: tuple[int, int], stride: int) -> tuple[int, int]:
    return -(-size[0] // stride), -(-size[1] // stride)
