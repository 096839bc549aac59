"""Attention as one operator of ONNX Runtime's own, LayerScale inside the maps before it, and neurons that go far beyond
the others apart from them, for files that nothing else is to run: of small models most of the time goes into operators
that only move numbers about.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.core import Mask
from vitrail.core.attention import Attention
from vitrail.core.block import FeedForward, Sublayer
from vitrail.core.kernels import Softmax
from vitrail.core.masks import NONE

OPERATOR = "com.microsoft::MultiHeadAttention"


@contextmanager
def fused(model: nn.Module, apart: Mapping[str, Sequence[int]] | None = None) -> Iterator[None]:
    """Have plain softmax attention be one operator, with one product for queries, keys and values, and scales of what
    sublayers write be in their last maps, while a model is exported; and some neurons of feed-forwards, by their paths,
    be products of their own.
    """
    with ExitStack() as changes:
        for sublayer in [one for one in model.modules() if isinstance(one, Sublayer) and _scaled(one)]:
            changes.enter_context(_having(sublayer.f, out=_scaled_out(sublayer)))
            changes.enter_context(_having(sublayer, scale=None))
        for attention in [one for one in model.modules() if isinstance(one, Attention) and plain(one)]:
            how = {"joint": joined(attention), "forward": MethodType(_attend, attention)}
            changes.enter_context(_having(attention, **how))
        for path, neurons in (apart or {}).items():
            feed = cast("FeedForward", model.get_submodule(path))
            changes.enter_context(_having(feed, **_parts(feed, neurons), forward=MethodType(_feed, feed)))
        yield


@contextmanager
def _having(module: nn.Module, **parts: Any) -> Iterator[None]:
    """A module with other parts, and then with its own again."""
    own = {**vars(module), **dict(module.named_children()), **dict(module.named_parameters(recurse=False))}
    try:
        for name, part in parts.items():
            setattr(module, name, part)
        yield
    finally:
        for name in parts:
            if name in own:
                setattr(module, name, own[name])
            else:
                delattr(module, name)


def _scaled(sublayer: Sublayer) -> bool:
    """Whether there is a scale that a map can take."""
    return sublayer.scale is not None and type(getattr(sublayer.f, "out", None)) is nn.Linear


def _scaled_out(sublayer: Any) -> nn.Linear:
    """Its last map, with what comes out of it multiplied by the scale (o)."""
    map_, scale, bias = sublayer.f.out, sublayer.scale, _bias(sublayer.f.out)
    return _linear(map_.weight * scale[:, None], None if bias is None else bias * scale)


def _parts(feed: FeedForward, neurons: Sequence[int]) -> dict[str, nn.Module]:
    """Maps of f(x W1) W2 as a sum of two: that over some neurons, and that over all others."""
    rare = torch.zeros(feed.out.in_features, dtype=torch.bool)
    rare[list(neurons)] = True
    few = nn.Sequential(_rows(feed.inner, rare), feed.activation, _columns(feed.out, rare, bias=False))
    return {"inner": _rows(feed.inner, ~rare), "out": _columns(feed.out, ~rare), "rare": few}


def _feed(self: Any, x: Tensor) -> Tensor:
    """As ``FeedForward.forward``, in two parts."""
    return self.out(self.activation(self.inner(x))) + self.rare(x)


def _rows(map_: nn.Linear, some: Tensor) -> nn.Linear:
    """Some of what comes out of a map."""
    bias = _bias(map_)
    return _linear(map_.weight[some], None if bias is None else bias[some])


def _columns(map_: nn.Linear, some: Tensor, *, bias: bool = True) -> nn.Linear:
    """A map of some of what comes in."""
    return _linear(map_.weight[:, some], map_.bias if bias else None)


def _bias(map_: nn.Linear) -> Tensor | None:
    return cast("Tensor | None", map_.bias)  # which PyTorch says is always there


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight.data = weight.detach().clone()
    if bias is not None:
        linear.bias.data = bias.detach().clone()
    return linear


def plain(attention: Attention) -> bool:
    """Whether it is what the operator computes."""
    return type(attention.kernel) is Softmax and attention.kernel.scale is None and attention.turn is None


def joined(attention: Attention) -> nn.Linear | None:
    """One map for all three; None where they are products themselves."""
    parts = [attention.query, attention.key_value]
    if any(type(one) is not nn.Linear for one in parts) or (parts[0].bias is None) != (parts[1].bias is None):
        return None
    bias = None if _bias(parts[0]) is None else torch.cat([one.bias for one in parts])
    return _linear(torch.cat([one.weight for one in parts]), bias)


def _attend(self: Any, x: Tensor, mask: Mask = NONE, context: Tensor | None = None, *args: Any, **how: Any) -> Tensor:
    """As ``Attention.forward``, of what an encoder asks for."""
    hides = mask.causal or mask.window is not None or mask.bias is not None
    if args or hides or any(value is not None for value in how.values()):
        return Attention.forward(self, x, mask, context, *args, **how)
    if context is None and self.joint is not None:
        q, k, v = self.joint(x).split([self.widths[0], *self.widths], -1)
    else:
        q, (k, v) = self.query(x), self.key_value(x if context is None else context).split(self.widths, -1)
    there = () if mask.present is None else (None, mask.present.to(torch.int32))
    (z,) = attended((q, k, v, *there), self.heads)
    return self.out(z)


def attended(given: Sequence[Tensor | None], heads: int, presents: Sequence[Sequence[int]] = ()) -> Sequence[Tensor]:
    """What the operator gives for queries (b n w), keys and values (b m w) or (b h m d), a bias, which keys are there
    (b m), what is added to scores, and past keys and values (b h j d): the answer, and keys and values of both.
    """
    q, v = given[0], given[2]
    if q is None or v is None:
        raise TypeError("queries and values are given")
    wide = v.shape[2] if v.ndim == 3 else heads * v.shape[3]  # noqa: PLR2004
    shapes = [(*q.shape[:2], wide), *presents]
    return torch.onnx.ops.symbolic_multi_out(
        OPERATOR, given, {"num_heads": heads}, dtypes=[q.dtype] * len(shapes), shapes=shapes, version=1
    )
