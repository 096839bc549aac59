"""The blocks that a shape describes."""

from torch import nn

from vitrail.config import Component
from vitrail.core import Attention, Block, FeedForward, Stack, Sublayer, kernels, norms
from vitrail.core.kernels import Softmax
from vitrail.core.linear import factor
from vitrail.core.merge import MergingStack
from vitrail.core.positions import Turn
from vitrail.core.span import MixedAttention, Span
from vitrail.families.shapes import TransformerShape


def stack(
    config: TransformerShape,
    name: str = "encoder",
    *,
    cross: bool = False,
    merge: tuple[int, ...] = (),
    prefix: int = 0,
) -> Stack:
    """All blocks, each with attention to a context where that is asked for; drop path rises from 0 to its value.

    The name is the one that the model has for them, by which ``factors`` are said. In each block so many tokens may be
    merged, but for a prefix.
    """
    last = config.depth - 1
    rates = [config.drop_path * (layer == last or layer / last) for layer in range(config.depth)]
    blocks = [
        _block(config, *layer, drop_path=rate, cross=cross) for layer, rate in zip(config.layers, rates, strict=True)
    ]
    drop = config.layer_drop
    built = MergingStack(blocks, drop, counts=merge, prefix=prefix) if any(merge) else Stack(blocks, drop)
    factor(built, config.factors, f"{name}.")
    return built


def interchangeable(one: Component, other: Component) -> bool:
    """Whether weights of a model with one kernel are weights with another."""
    return one == other or all(kernels.make(part).bare for part in (one, other))


def last_norm(config: TransformerShape, *, there: bool = True) -> nn.Module:
    """The norm after the last block, if there is one."""
    return norms[config.norm](config.width, config.eps) if there else nn.Identity()


def _block(config: TransformerShape, heads: int, hidden: int, *, drop_path: float, cross: bool) -> Block:
    def sublayer(f: nn.Module) -> Sublayer:
        return Sublayer(
            f,
            norms[config.norm](config.width, config.eps),
            config.width,
            order=config.order,
            layer_scale=config.layer_scale,
            dropout=config.dropout,
            drop_path=drop_path,
        )

    def attention(*, to_context: bool = False) -> Attention:
        kernel = kernels.make(config.kernel)
        if to_context and not kernel.crosses:
            kernel = Softmax()
        if isinstance(kernel, Span):
            return MixedAttention(config.width, heads, kernel, bias=config.bias)
        turn = Turn() if config.position == "rotary" and not to_context else None
        return Attention(config.width, heads, kernel, head=config.head, rank=config.rank, bias=config.bias, turn=turn)

    return Block(
        sublayer(attention()) if heads else None,
        sublayer(FeedForward(config.width, hidden, config.activation, config.dropout)) if hidden else None,
        sublayer(attention(to_context=True)) if heads and cross else None,
    )
