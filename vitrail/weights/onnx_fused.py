"""Attention as one operator of ONNX Runtime's own, and LayerScale inside the maps before it, for files that nothing
else is to run: of small models most of the time goes into operators that only move numbers about.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core import Mask
from vitrail.core.attention import Attention
from vitrail.core.block import Sublayer
from vitrail.core.kernels import Softmax
from vitrail.core.masks import NONE

OPERATOR = "com.microsoft::MultiHeadAttention"


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Have plain softmax attention be one operator, with one product for queries, keys and values, and scales of what
    sublayers write be in their last maps, while a model is exported.
    """
    scaled = [(one, one.f.out, one.scale) for one in model.modules() if isinstance(one, Sublayer) and _scaled(one)]
    changed = [one for one in model.modules() if isinstance(one, Attention) and plain(one)]
    try:
        for sublayer, out, scale in scaled:
            sublayer.f.out, sublayer.scale = _times(out, scale), None  # type: ignore[arg-type]
        for attention in changed:
            attention.joint = joined(attention)  # type: ignore[assignment]
            attention.forward = MethodType(_attend, attention)  # type: ignore[method-assign]
        yield
    finally:
        for attention in changed:
            for name in ("forward", "joint"):
                if name in vars(attention) or name in dict(attention.named_children()):
                    delattr(attention, name)
        for sublayer, out, scale in scaled:
            sublayer.f.out, sublayer.scale = out, scale


def _scaled(sublayer: Sublayer) -> bool:
    """Whether there is a scale that a map can take."""
    return sublayer.scale is not None and type(getattr(sublayer.f, "out", None)) is nn.Linear


def _times(map_: nn.Linear, scale: Tensor) -> nn.Linear:
    """A map with what comes out of it multiplied by a scale (o)."""
    other = nn.Linear(map_.in_features, map_.out_features, bias=map_.bias is not None)
    other.weight.data = (map_.weight * scale[:, None]).detach()
    if map_.bias is not None:
        other.bias.data = (map_.bias * scale).detach()
    return other


def plain(attention: Attention) -> bool:
    """Whether it is what the operator computes."""
    return type(attention.kernel) is Softmax and attention.kernel.scale is None and attention.turn is None


def joined(attention: Attention) -> nn.Linear | None:
    """One map for all three; None where they are products themselves."""
    parts = [attention.query, attention.key_value]
    if any(type(one) is not nn.Linear for one in parts) or (parts[0].bias is None) != (parts[1].bias is None):
        return None
    there = parts[0].bias is not None
    joint = nn.Linear(attention.query.in_features, sum(one.out_features for one in parts), bias=there)
    joint.weight.data = torch.cat([one.weight for one in parts]).detach()
    if there:
        joint.bias.data = torch.cat([one.bias for one in parts]).detach()
    return joint


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
