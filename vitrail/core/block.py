"""Sublayers, blocks and stacks: what every Transformer is made of around its attention."""

from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitrail.core.attention import Attention, Cache
from vitrail.core.dropout import Dropout
from vitrail.core.kernels import Kernel, Softmax
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.registry import Registry

# An activation that makes one number of several says so: ``takes = 2``.
activations: Registry[Callable[[], nn.Module]] = Registry("activation")
activations.add("gelu")(nn.GELU)
activations.add("gelu-tanh")(lambda: nn.GELU(approximate="tanh"))
activations.add("relu")(nn.ReLU)
activations.add("silu")(nn.SiLU)

Between = Callable[[Tensor, Tensor], Tensor]  # the stream (b n w), and the mean over heads of its keys (b n d)

# Whether all rows are computed also where only some are asked for: whoever changes what attention does sets it.
every_row: ContextVar[bool] = ContextVar("every_row", default=False)
# Whether someone looks on, to whom every token is to be shown: likewise.
looked_at: ContextVar[bool] = ContextVar("looked_at", default=False)


class Stack(nn.ModuleList):
    """Blocks one after another. In training each is left out with probability ``drop`` (LayerDrop, Fan et al. 2020).

    With ``recompute`` a block keeps nothing for its gradient but what came in, and is computed a second time on the way
    back (Chen et al. 2016): a fraction of the memory, for a third more time.
    """

    def __init__(self, blocks: Iterable["Block"], drop: float = 0.0) -> None:
        super().__init__(blocks)
        self.drop = drop
        self.recompute = False

    def forward(self, x: Tensor, *args: Any, cache: Cache | None = None, **kwargs: Any) -> Tensor:
        """(b n w) -> (b n w)."""
        if cache is not None:
            for number, block in enumerate(self):
                x = block(x, *args, cache=cache.at(number), **kwargs)
            return x
        for block in self:
            if self._kept():
                x = self._through(block, x, *args, **kwargs)
        return x

    def rows(self, x: Tensor, rows: slice, mask: Mask = NONE) -> Tensor:
        """forward(x, mask)[:, rows], sooner: the last block is computed for those rows alone, where that can be."""
        for number, block in enumerate(self, 1):
            if not self._kept():
                continue
            if number == len(self) and block.alone(rows, mask):
                return block.rows(x, rows, mask)
            x = self._through(block, x, mask)
        return x[:, rows]

    def last(self, x: Tensor, count: int, mask: Mask = NONE) -> list[Tensor]:
        """What each of the last blocks gives, so many of them: the last of the list is forward(x, mask)."""
        given = []
        for block in self:
            x = self._through(block, x, mask) if self._kept() else x
            given.append(x)
        return given[-count:]

    def __iter__(self) -> "Iterator[Block]":
        return cast("Iterator[Block]", super().__iter__())

    def _through(self, block: "Block", x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.recompute and self.training and torch.is_grad_enabled():
            return cast("Tensor", checkpoint(block, x, *args, use_reentrant=False, **kwargs))
        return cast("Tensor", block(x, *args, **kwargs))

    def _kept(self) -> bool:
        return not (self.training and self.drop and torch.rand(()) < self.drop)


class Block(nn.Module):
    """Attention, attention to a context, feed-forward (Vaswani et al. 2017, fig. 1), those of them that there are."""

    def __init__(
        self,
        attention: "Sublayer | None" = None,
        feed_forward: "Sublayer | None" = None,
        cross: "Sublayer | None" = None,
    ) -> None:
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
        between: Between | None = None,
    ) -> Tensor:
        """(b n w) -> (b n w). Between attention and feed-forward something may be done to the stream, by the keys."""
        if self.attention is not None and between is not None:
            keys: list[Tensor] = []
            x = self.attention(x, mask, keys=keys)
            x = between(x, keys[0])
        elif self.attention is not None:
            x = self.attention(x, mask, cache=None if cache is None else cache.at("attention"))
        if self.cross is not None:
            x = self.cross(x, context_mask, context=context, cache=None if cache is None else cache.at("cross"))
        return x if self.feed_forward is None else self.feed_forward(x)

    def rows(self, x: Tensor, rows: slice, mask: Mask = NONE) -> Tensor:
        """forward(x, mask)[:, rows], without the other rows, where they can be had ``alone``."""
        if self.attention is None:
            x = x[:, rows]
        else:
            kernel: Kernel = self.attention.f.kernel  # type: ignore[assignment]
            own = {} if kernel.rowwise else {"kernel": Softmax(kernel.scale)}  # for tokens that see all
            x = self.attention(x, mask, rows=rows, **own)
        return x if self.feed_forward is None else self.feed_forward(x)

    def alone(self, rows: slice, mask: Mask = NONE) -> bool:
        """Whether some rows of what it gives need no other row: neither its kernel nor a norm looks at all of them."""
        compiling = torch.compiler.is_compiling()
        if (not compiling and every_row.get()) or self.cross is not None:
            return False
        attention = None if self.attention is None else self.attention.f
        if attention is not None:
            if not isinstance(attention, Attention) or attention.turn is not None:
                return False
            prefix = 0 if mask.layout is None else mask.layout.prefix
            first = attention.kernel.open_prefix and rows.stop is not None and rows.stop <= prefix
            if not attention.kernel.rowwise and (not first or (not compiling and looked_at.get())):
                return False
        return not any(getattr(module, "across_tokens", False) for module in self.modules())

    def sublayers(self) -> "Iterator[Sublayer]":
        """Those that there are, in order."""
        yield from filter(None, (self.attention, self.cross, self.feed_forward))


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
        self.drops = nn.ModuleList(drop(p) for drop, p in ((Dropout, dropout), (DropPath, drop_path)) if p)

    def forward(self, x: Tensor, *args: Any, rows: slice | None = None, **kwargs: Any) -> Tensor:
        """(b n w) -> (b n w); or some rows of it, where f is attention: they look at all tokens, as at a context."""
        pre = self.order == "pre"
        y = self.norm(x) if pre else x
        if rows is not None:
            (mask,) = args
            x, y, args, kwargs["context"] = x[:, rows], y[:, rows], (mask.at(y.shape[1], y, rows=rows),), y
        x = x + self.write(y, *args, **kwargs)
        return x if pre else self.norm(x)

    def write(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """What is added to the residual stream."""
        y = self.f(x, *args, **kwargs)
        if self.scale is not None:
            y = y * self.scale
        if self.training:  # drops are not called for nothing: at batch 1 each call counts
            for drop in self.drops:
                y = drop(y)
        return y


class FeedForward(nn.Module):
    """act(x W1 + b1) W2 + b2 for each token by itself: max(0, .) in Vaswani et al. 2017 (eq. 2), GELU in ViT."""

    def __init__(self, width: int, hidden: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.activation = activations[activation]()
        self.inner = linear(width, getattr(self.activation, "takes", 1) * hidden)
        self.dropout = Dropout(dropout) if dropout else None
        self.out = linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(b n w) -> (b n w)."""
        y = self.activation(self.inner(x))
        return self.out(y if self.dropout is None or not self.training else self.dropout(y))


@activations.add("swiglu")
class SwiGLU(nn.Module):
    """silu(a) b of x = [a, b]: half of the numbers open and close for the others (Shazeer 2020)."""

    takes = 2

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
