"""What a ViT costs, by formulas over its shape: the numbers of each matrix, and how many rows go through it.

The same as counting a model that was made for it (``vitrail.families.cost``), and a thousand times sooner.
"""

from math import prod
from typing import TYPE_CHECKING

from vitrail.families.catalogue import Cost

if TYPE_CHECKING:
    from vitrail.families.vit.config import ViTConfig

KERNELS = ("softmax", "relu")  # which multiply every query with every key, and the weights with the values
TAKES = {"gelu": 1, "gelu-tanh": 1, "relu": 1, "swiglu": 2}  # numbers that an activation makes one of
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
    kernel = c.kernel if isinstance(c.kernel, str) else c.kernel["name"]
    stem, position = _stem(c), _position(c)
    if stem is None or position is None or kernel not in KERNELS or c.activation not in TAKES:
        return None
    tokens = c.prefix + c.registers + (c.tokens or c.patches)
    parts = [stem, position, Cost((c.prefix + c.registers) * c.width, 0), _grouping(c)]
    for heads, hidden in c.layers:
        parts += [_attention(c, heads, tokens)] * bool(heads) + [_feed_forward(c, hidden, tokens)] * bool(hidden)
    return sum([*parts, _norm(c.width) if c.normed else Cost(0, 0), _head(c)], Cost(0, 0))


def _map(inputs: int, outputs: int, rows: int, *, bias: bool = True) -> Cost:
    """X W + b on so many rows."""
    return Cost(inputs * outputs + bias * outputs, rows * inputs * outputs)


def _norm(width: int) -> Cost:
    return Cost(2 * width, 0)


def _around(c: "ViTConfig") -> Cost:
    """What a sublayer has beside its function."""
    return _norm(c.width) + Cost(c.width if c.layer_scale is not None else 0, 0)


def _attention(c: "ViTConfig", heads: int, tokens: int) -> Cost:
    head = c.head or c.width // heads
    rank = c.rank or head
    maps = _map(c.width, heads * (2 * head + rank), tokens, bias=c.bias) + _map(heads * rank, c.width, tokens)
    return _around(c) + maps + Cost(0, heads * tokens**2 * (head + rank))


def _feed_forward(c: "ViTConfig", hidden: int, tokens: int) -> Cost:
    return _around(c) + _map(c.width, TAKES[c.activation] * hidden, tokens) + _map(hidden, c.width, tokens)


def _grouping(c: "ViTConfig") -> Cost:
    if not c.tokens:
        return Cost(0, 0)
    queries = Cost(c.tokens * c.width, 2 * c.tokens * c.patches * c.width)
    return queries + _map(c.width, c.width, c.patches)


def _head(c: "ViTConfig") -> Cost:
    before = _map(c.pooled, c.prelogits, 1) if c.prelogits else Cost(0, 0)
    logits = _map(c.prelogits or c.pooled, c.classes, 1) if c.classes else Cost(0, 0)
    return before + logits + (logits if c.pool == "distilled" else Cost(0, 0))


def _position(c: "ViTConfig") -> Cost | None:
    down, across = c.grid
    numbers = {
        "none": 0,
        "sinusoidal": 0,
        "sincos2d": 0,
        "learned": (c.prefix + c.patches) * c.width,
        "learned2d": (down + across) * (c.width // 2),
        "relative": c.most_heads * ((2 * down - 1) * (2 * across - 1) + 3),
    }
    return Cost(numbers[c.position], 0) if c.position in numbers else None


def _stem(c: "ViTConfig") -> Cost | None:
    pixels = c.channels * c.patch**2
    if c.stem == "patch":
        return _map(pixels, c.width, c.patches)
    if c.stem == "patch-norm":
        return _norm(pixels) + _map(pixels, c.width, c.patches) + _norm(c.width)
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
    return cost + _map(before * (size[0] // c.grid[0]) ** 2, c.width, c.patches)


def _unit(before: int, width: int, size: tuple[int, int], after: tuple[int, int]) -> Cost:
    inner = width // 4
    convolutions = (
        _convolution(before, inner, 1, size)
        + _convolution(inner, inner, 3, after)
        + _convolution(inner, width, 1, after)
    )
    return convolutions + (_convolution(before, width, 1, after) if before != width or size != after else Cost(0, 0))


def _convolution(before: int, after: int, kernel: int, size: tuple[int, int]) -> Cost:
    """With its norm, and with so many pixels after it."""
    return _map(before * kernel**2, after, prod(size), bias=False) + _norm(after)


def _shrunk(size: tuple[int, int], stride: int) -> tuple[int, int]:
    return -(-size[0] // stride), -(-size[1] // stride)
