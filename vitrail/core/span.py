"""Attention mixed with convolutions whose filters depend on what is there (ConvBERT, Jiang et al. 2020)."""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from vitrail.core.attention import Attention, Cache, join_heads
from vitrail.core.kernels import Softmax, kernels
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError


@kernels.add("span")
class Span(Softmax):
    """softmax(q k^T / sqrt(d)) v, of half the width; the other half is convolved, over spans of ``size`` tokens.

    In a model it stands for the mixed block of ConvBERT: a kernel alone knows of no span.
    """

    bare: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False
    crosses: ClassVar[bool] = False
    causal: ClassVar[bool] = False

    def __init__(self, size: PositiveInt = 9, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        if size % 2 == 0:
            raise InputError(f"size={size} does not fit; a span has as many tokens before a token as after: it is odd.")
        self.size = size

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        part = mask.at(q.shape[2], k, heads=heads, rows=rows)
        return self.pattern(q[:, heads][:, :, rows], k[:, heads], part)


class MixedAttention(Attention):
    """[Concat(z_1 .. z_h), Concat(c_1 .. c_h)] W_O + b: attention, and span-based dynamic convolution, half the width
    each.

    c_h at a token is a sum over a span of x W, with weights softmax((q * s) W_f), s the separable convolution of the
    span around it: the filter is made from the query and what stands there.
    """

    kernel: Span

    def __init__(self, width: int, heads: int, kernel: Span, *, bias: bool = True) -> None:
        if width % (2 * heads):
            raise InputError(f"width={width} is not divisible by twice heads={heads}, which a mixed block needs.")
        half = width // 2
        super().__init__(width, heads, kernel, head=half // heads, bias=bias)
        self.attended, self.out = half, linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel.size, padding=kernel.size // 2, groups=width, bias=False)
        self.pointwise = linear(width, half)
        self.filters, self.inner = linear(half, heads * kernel.size), linear(width, half)
        nn.init.normal_(self.depthwise.weight, std=kernel.size**-0.5)

    def forward(
        self, x: Tensor, mask: Mask = NONE, context: Tensor | None = None, cache: Cache | None = None, **_: Any
    ) -> Tensor:
        """(b n w) -> (b n w)."""
        if context is not None or cache is not None or mask.causal:
            raise InputError("a mixed block looks at tokens before and after each, of one sequence; choose softmax.")
        q, (k, v) = self.query(x), self.keys_values(x)
        heads = rearrange(q, "b n (h d) -> b h n d", h=self.heads)
        z = self.kernel(heads, k, v, mask)
        return self.out(torch.cat([join_heads(z), self.convolved(x, q, mask)], -1))

    def convolved(self, x: Tensor, q: Tensor, mask: Mask) -> Tensor:
        """Tokens and their queries (b n w/2) -> (b n w/2)."""
        if mask.present is not None:
            x = x * mask.present[..., None]
        size = self.kernel.size
        span = self.pointwise(self.depthwise(x.mT).mT)
        weights = rearrange(self.filters(span * q), "b n (h s) -> b n h s", h=self.heads).softmax(-1)
        inner = self.inner(x)
        if mask.present is not None:
            inner = inner * mask.present[..., None]
        around = F.pad(inner, (0, 0, size // 2, size // 2)).unfold(1, size, 1)  # b n c s
        values = rearrange(around, "b n (h d) s -> b n h d s", h=self.heads)
        return rearrange(einsum(values, weights, "b n h d s, b n h s -> b n h d"), "b n h d -> b n (h d)")

    def contributions(self, z: Tensor, heads: Any = slice(None)) -> Tensor:
        """What the heads of attention write; the rest of the output is the convolution's."""
        up = rearrange(self.out.weight[:, : self.attended], "w (h r) -> h r w", h=self.heads)[heads]
        return einsum(z, up, "b h i r, h r w -> b h i w")

    def value_maps(self) -> Tensor:
        down = rearrange(self.key_value.weight[self.widths[0] :], "(h r) w -> h w r", h=self.heads)
        return down @ rearrange(self.out.weight[:, : self.attended], "w (h r) -> h r w", h=self.heads)
