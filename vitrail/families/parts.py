"""What the parts of a Transformer cost, by formulas over its shape: without torch."""

from typing import TYPE_CHECKING

from vitrail.families.catalogue import Cost

if TYPE_CHECKING:
    from vitrail.families.shapes import TransformerShape

KERNELS = ("softmax", "relu")  # which multiply every query with every key, and the weights with the values
TAKES = {"gelu": 1, "gelu-tanh": 1, "relu": 1, "silu": 1, "swiglu": 2}  # numbers that an activation makes one of
FREE = Cost(0, 0)


def priced(c: "TransformerShape") -> bool:
    """Whether it has a formula here: whether no part is of another's making, or a product."""
    return (
        not c.factors
        and getattr(c, "embedding", None) is None
        and (c.kernel if isinstance(c.kernel, str) else c.kernel["name"]) in KERNELS
        and c.activation in TAKES
    )


def linear_map(inputs: int, outputs: int, rows: int, *, bias: bool = True) -> Cost:
    """X W + b on so many rows."""
    return Cost(inputs * outputs + bias * outputs, rows * inputs * outputs)


def norm(width: int) -> Cost:
    """A gain and a bias."""
    return Cost(2 * width, 0)


def blocks(c: "TransformerShape", tokens: int, context: int = 0) -> Cost:
    """All of them on so many tokens, each with attention to so many others, if there are."""
    cost = FREE
    for heads, hidden in c.layers:
        if heads:
            cost += _attention(c, heads, tokens, tokens) + (_attention(c, heads, tokens, context) if context else FREE)
        cost += _feed_forward(c, hidden, tokens) if hidden else FREE
    return cost


def _attention(c: "TransformerShape", heads: int, tokens: int, context: int) -> Cost:
    head = c.head or c.width // heads
    rank = c.rank or head
    maps = linear_map(c.width, heads * head, tokens, bias=c.bias) + linear_map(heads * rank, c.width, tokens)
    maps += linear_map(c.width, heads * (head + rank), context, bias=c.bias)
    return _around(c) + maps + Cost(0, heads * tokens * context * (head + rank))


def _feed_forward(c: "TransformerShape", hidden: int, tokens: int) -> Cost:
    return _around(c) + linear_map(c.width, TAKES[c.activation] * hidden, tokens) + linear_map(hidden, c.width, tokens)


def _around(c: "TransformerShape") -> Cost:
    """What a sublayer has beside its function."""
    return norm(c.width) + Cost(c.width if c.layer_scale is not None else 0, 0)
