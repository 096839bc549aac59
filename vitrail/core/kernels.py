"""A(q, k): how queries and keys become weights. The only part of attention that differs between its variants."""

from inspect import signature
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat
from torch import Tensor, nn

from vitrail.core.masks import NONE, Mask
from vitrail.registry import Registry

kernels: Registry["type[Kernel]"] = Registry("kernel")
HALF = (torch.bfloat16, torch.float16)  # on a CPU the gradients of fused attention take 25 times as long in these


class Kernel(nn.Module):
    """z = A(q, k) v, with scores q k^T * scale; scale is 1 / sqrt(d) unless given.

    Law, for every kernel: ``kernel(q, k, v, mask) == kernel.pattern(q, k, mask) @ v``.

    A kernel in which a query's weights depend on other queries, or on its place among them, says ``rowwise = False``:
    then no row is ever asked for alone, but by ``rows``. One that goes by the places of tokens in one sequence says
    ``crosses = False``: attention to a context is softmax's then. One that knows nothing of an order to keep to says
    ``causal = False``.
    """

    bare: ClassVar[bool] = True  # whether weights of another kernel are weights for it: it has no numbers of its own
    rowwise: ClassVar[bool] = True
    open_prefix: ClassVar[bool] = False  # whether tokens before the others see all, as softmax does, if others do not
    crosses: ClassVar[bool] = True
    causal: ClassVar[bool] = True

    def __init__(self, scale: PositiveFloat | None = None) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        """(b h i d), (b h j d), (b h j e) -> z (b h i e), the fast way."""
        raise NotImplementedError

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        """A itself, (b h i j): attending to the identity gives A I = A."""
        identity = torch.eye(k.shape[-2], dtype=k.dtype, device=k.device)
        # Not __call__: deriving a pattern is not recorded, nor edited.
        return self.forward(q, k, identity.expand(*k.shape[:-1], -1), mask)

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        """Some heads and rows of the pattern, (b h rows j)."""
        if not self.rowwise:
            return self.pattern(q, k, mask)[:, heads][:, :, rows]
        part = mask.at(q.shape[2], k, heads=heads, rows=rows)
        return self.pattern(q[:, heads][:, :, rows], k[:, heads], part)

    def scores(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        """Q k^T * scale, (b h i j), minus infinity where hidden."""
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        return mask.scores((q * scale) @ k.mT)

    def extra_repr(self) -> str:
        names = signature(type(self)).parameters
        given = {name: getattr(self, name) for name in names if getattr(self, name, None) is not None}
        return ", ".join(f"{name}={value}" for name, value in given.items())


def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float | None = None, **masked: Any) -> Tensor:
    """softmax(q k^T * scale) v, fused; in float32 where the gradients are slow in less."""
    if _slow(q):
        with torch.autocast("cpu", enabled=False):
            return attend(q.float(), k.float(), v.float(), scale=scale, **masked).to(v.dtype)
    return F.scaled_dot_product_attention(q, k, v, scale=scale, **masked)


def _slow(q: Tensor) -> bool:
    return q.dtype in HALF and q.requires_grad and q.device.type == "cpu"


def weighed(scores: Tensor) -> Tensor:
    """softmax(scores), and 0 where all of a row is hidden; so are their gradients."""
    hidden = scores == -torch.inf
    return scores.masked_fill(hidden.all(-1, keepdim=True), 0).softmax(-1).masked_fill(hidden, 0)


@kernels.add("softmax")
class Softmax(Kernel):
    """softmax(q k^T / sqrt(d)) v (Vaswani et al. 2017, eq. 1), fused: the pattern is never stored."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        if _slow(q):  # so that a bias is added in float32 too
            with torch.autocast("cpu", enabled=False):
                return self.forward(q.float(), k.float(), v.float(), mask).to(v.dtype)
        return attend(q, k, v, scale=self.scale, **mask.fused(q, k))

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        return weighed(self.scores(q, k, mask))


@kernels.add("relu")
class ReLU(Kernel):
    """relu(q k^T / sqrt(d)) / L v, L the number of keys a query sees (Wortsman et al. 2023)."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        return self.pattern(q, k, mask) @ v

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        return self.scores(q, k, mask).relu() / mask.count(q.shape[-2], k.shape[-2], q.device)
