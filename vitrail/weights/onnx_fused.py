"""Attention as one operator of ONNX Runtime's own, for files that nothing else is to run: of small models most of the
time goes into operators that only move numbers about.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core import Mask
from vitrail.core.attention import Attention
from vitrail.core.kernels import Softmax
from vitrail.core.masks import NONE

OPERATOR = "com.microsoft::MultiHeadAttention"


@contextmanager
def fused(model: nn.Module) -> Iterator[None]:
    """Have plain softmax attention be one operator, with one product for queries, keys and values, while a model is
    exported.
    """
    changed = [one for one in model.modules() if isinstance(one, Attention) and _plain(one)]
    for attention in changed:
        attention.joint = _joined(attention)  # type: ignore[assignment]
        attention.forward = MethodType(_attend, attention)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for attention in changed:
            del attention.joint, attention.forward


def _plain(attention: Attention) -> bool:
    return type(attention.kernel) is Softmax and attention.kernel.scale is None and attention.turn is None


def _joined(attention: Attention) -> nn.Linear | None:
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
    """As ``Attention.forward``, of what it is asked for in a ViT."""
    if args or not mask.trivial or any(value is not None for value in how.values()):
        return Attention.forward(self, x, mask, context, *args, **how)
    if context is None and self.joint is not None:
        q, k, v = self.joint(x).split([self.widths[0], *self.widths], -1)
    else:
        q, (k, v) = self.query(x), self.key_value(x if context is None else context).split(self.widths, -1)
    shape = (q.shape[0], q.shape[1], v.shape[2])
    given = {"num_heads": self.heads}
    z = torch.onnx.ops.symbolic(OPERATOR, (q, k, v), given, dtype=q.dtype, shape=shape, version=1)
    return self.out(z)
