"""Sublayers, blocks and stacks: what every Transformer is made of around its attention."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.core.attention import Cache
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.registry import Registry

activations: Registry[Callable[[], nn.Module]] = Registry("activation")
activations.add("gelu")(nn.GELU)
activations.add("gelu-tanh")(lambda: nn.GELU(approximate="tanh"))
activations.add("relu")(nn.ReLU)


class Stack(nn.ModuleList):
    """Blocks one after another. In training each is left out with probability ``drop`` (LayerDrop, Fan et al. 2020)."""

    def __init__(self, blocks: Iterable["Block"], drop: float = 0.0) -> None:
        super().__init__(blocks)
        self.drop = drop

    def forward(self, x: Tensor, *args: Any, rows: slice | None = None, **kwargs: Any) -> Tensor:
        """(b n w) -> (b n w), or (b rows w): some rows of it, for which the last block does only what they need."""
        for depth, block in enumerate(self, 1):
            if rows is not None and depth == len(self):
                kwargs["rows"] = rows
            if not (self.training and self.drop and torch.rand(()) < self.drop):
                x = block(x, *args, **kwargs)
            elif "rows" in kwargs:
                x = x[:, rows]
        return x


class Block(nn.Module):
    """Attention, then attention to a context if there is one, then feed-forward (Vaswani et al. 2017, fig. 1)."""

    def __init__(self, attention: "Sublayer", feed_forward: "Sublayer", cross: "Sublayer | None" = None) -> None:
        super().__init__()
        self.attention = attention
        self.cross = cross
        self.feed_forward = feed_forward

    def forward(
        self,
        x: Tensor,
        mask: Mask = NONE,
        *,
        context: Tensor | None = None,
        context_mask: Mask = NONE,
        cache: Cache | None = None,
        rows: slice | None = None,
    ) -> Tensor:
        """(b n w) -> (b n w), or some rows of it."""
        x = self.attention(x, mask, cache=cache, rows=rows)
        if self.cross is not None:
            x = self.cross(x, context_mask, context=context, cache=cache)
        return self.feed_forward(x)


class Sublayer(nn.Module):
    """x + f(norm(x)) (pre: Xiong et al. 2020) or norm(x + f(x)) (post: Vaswani et al. 2017).

    What f writes may be dropped out, multiplied by a learned scale for each channel (LayerScale, Touvron et al. 2021)
    and left out for whole samples (drop path).
    """

    def __init__(
        self,
        f: nn.Module,
        norm: nn.Module,
        width: int,
        *,
        order: Literal["pre", "post"] = "pre",
        layer_scale: float | None = None,
        dropout: float = 0.0,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.f = f
        self.norm = norm
        self.order = order
        self.scale = None if layer_scale is None else nn.Parameter(torch.full((width,), layer_scale))
        self.drops = nn.ModuleList(drop(p) for drop, p in ((nn.Dropout, dropout), (DropPath, drop_path)) if p)

    def forward(self, x: Tensor, *args: Any, rows: slice | None = None, **kwargs: Any) -> Tensor:
        """(b n w) -> (b n w), or some rows of it, which f is then asked for."""
        kept = x
        if rows is not None:
            kept, kwargs["rows"] = x[:, rows], rows
        if self.order == "pre":
            return kept + self.write(self.norm(x), *args, **kwargs)
        return self.norm(kept + self.write(x, *args, **kwargs))

    def write(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """What is added to the residual stream."""
        y = self.f(x, *args, **kwargs)
        if self.scale is not None:
            y = y * self.scale
        for drop in self.drops:
            y = drop(y)
        return y


class FeedForward(nn.Module):
    """act(x W1 + b1) W2 + b2 for each token by itself: max(0, .) in Vaswani et al. 2017 (eq. 2), GELU in ViT."""

    def __init__(self, width: int, hidden: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activations[activation]()
        self.inner = linear(width, 2 * hidden if isinstance(self.activation, SwiGLU) else hidden)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.out = linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b n w)."""
        y = self.activation(self.inner(x))
        return self.out(y if self.dropout is None else self.dropout(y))


@activations.add("swiglu")
class SwiGLU(nn.Module):
    """silu(a) b of x = [a, b]: half of the numbers open and close for the others (Shazeer 2020)."""

    def forward(self, x: Tensor) -> Tensor:
        """(... 2 h) -> (... h)."""
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value


class DropPath(nn.Module):
    """f * keep / (1 - p), keep ~ Bernoulli(1 - p) for each sample: stochastic depth (Huang et al. 2016)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b n w)."""
        if not self.training:
            return x
        keep = x.new_empty(len(x), 1, 1).bernoulli_(1 - self.p)
        return x * (keep / (1 - self.p))

    def extra_repr(self) -> str:
        return f"p={self.p}"
