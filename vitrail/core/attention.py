"""Attention: with no parameters, and with many heads."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from vitrail.core.kernels import Kernel, Softmax
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError

Site: TypeAlias = tuple[str | int, ...]
Held: TypeAlias = dict[Site, tuple[Tensor, Tensor]]


class Attention(nn.Module):
    """Concat(z_1 .. z_h) W_O + b, z_h = A(x W_Q,h, y W_K,h) y W_V,h (Vaswani et al. 2017, section 3.2.2).

    Self-attention when no context y is given, cross-attention when it is. Widths that may differ from the usual ones:
    ``context``, ``head`` (a head's queries and keys: width / heads), ``rank`` (its values: as ``head``), ``out``.
    Seen from the residual stream a head's value map is the product W_V,h W_O,h, "down" to the rank and "up" again, and
    the output matrix is all heads' "up" joined.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: Kernel | None = None,
        *,
        context: int | None = None,
        head: int | None = None,
        rank: int | None = None,
        out: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if head is None:
            check_heads(width, heads)
            head = width // heads
        self.heads = heads
        self.widths = (heads * head, heads * (rank or head))
        # Keys and values share one product. Measured on two cores: as fast as one product for all three, where three
        # products cost 3 % more at batch 1; and queries from another source than the keys need no slicing of weights.
        self.query = linear(width, self.widths[0], bias=bias)
        self.key_value = linear(context or width, *self.widths, bias=bias)
        self.kernel = Softmax() if kernel is None else kernel
        self.out = linear(self.widths[1], out or width)

    def forward(
        self,
        x: Tensor,
        mask: Mask = NONE,
        context: Tensor | None = None,
        cache: "Cache | None" = None,
    ) -> Tensor:
        """(b i w), and a context (b j w) to look at in its stead -> (b i w)."""
        q = rearrange(self.query(x), "b i (h d) -> b h i d", h=self.heads)
        if cache is None:
            k, v = self.keys_values(x if context is None else context)
        elif context is None:
            k, v = cache.extend(*self.keys_values(x))
        else:
            k, v = cache.keep(lambda: self.keys_values(context))
        z = self.kernel(q, k, v, mask)  # b h i d
        return self.out(rearrange(z, "b h i d -> b i (h d)"))

    def keys_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(b j w) -> k (b h j d), v (b h j r)."""
        both, h = self.key_value(y), self.heads
        if self.widths[0] == self.widths[1]:  # the usual case, in one call: at batch 1 each one counts
            k, v = rearrange(both, "b j (two h d) -> two b h j d", two=2, h=h)
            return k, v
        k, v = both.split(self.widths, dim=-1)
        return rearrange(k, "b j (h d) -> b h j d", h=h), rearrange(v, "b j (h r) -> b h j r", h=h)

    def contributions(self, z: Tensor, heads: slice | list[int] = slice(None)) -> Tensor:
        """z_h W_O,h, (b h i w): what each head writes; over all heads they sum to the output less its bias."""
        up = rearrange(self.out.weight, "w (h r) -> h r w", h=self.heads)[heads]
        return einsum(z, up, "b h i r, h r w -> b h i w")

    def value_maps(self) -> Tensor:
        """W_V,h W_O,h, (h w w): each head's value map on the residual stream, of rank r at most."""
        down = rearrange(self.key_value.weight[self.widths[0] :], "(h r) w -> h w r", h=self.heads)
        return down @ rearrange(self.out.weight, "w (h r) -> h r w", h=self.heads)


class BareAttention(nn.Module):
    """softmax(X X^T) X: attention without parameters, the weights straight from the input."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        super().__init__()
        self.kernel = Softmax(scale=1.0) if kernel is None else kernel

    def forward(self, x: Tensor, mask: Mask = NONE) -> Tensor:
        """(b n w) -> (b n w)."""
        x = rearrange(x, "b n w -> b 1 n w")
        return rearrange(self.kernel(x, x, x, mask), "b 1 n w -> b n w")


class Cache:
    """The keys and values of the tokens seen so far, for a model that is called step by step.

    They are kept by site: a model hands ``cache.at(name)`` down to each of its parts, so that a site is where a part
    stands, not which module it is. Layers that share their weights have keys and values of their own.
    """

    def __init__(self, site: Site = (), grown: Held | None = None, kept: Held | None = None) -> None:
        self._site = site
        self._grown: Held = {} if grown is None else grown  # by each step
        self._kept: Held = {} if kept is None else kept  # of a context that does not change

    def at(self, name: str | int) -> "Cache":
        """The same cache, as the part of this name sees it."""
        return Cache((*self._site, name), self._grown, self._kept)

    @property
    def length(self) -> int:
        """How many tokens were seen."""
        return next((k.shape[-2] for k, _ in self._grown.values()), 0)

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values of this site up to these, which come last (self-attention)."""
        if self._site in self._grown:
            past_k, past_v = self._grown[self._site]
            k, v = torch.cat([past_k, k], dim=-2), torch.cat([past_v, v], dim=-2)
        self._grown[self._site] = (k, v)
        return k, v

    def keep(self, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of this site, made once and kept (cross-attention to a context that does not change)."""
        if self._site not in self._kept:
            self._kept[self._site] = make()
        return self._kept[self._site]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows of the batch, at all sites: beams in another order, or without what has ended."""
        for held in (self._grown, self._kept):
            held.update({site: (k[rows], v[rows]) for site, (k, v) in held.items()})

    def rewind(self, steps: int) -> None:
        """Forget the last tokens, at all sites: as if those steps had not been taken."""
        if not 0 <= steps <= self.length:
            raise InputError(f"steps={steps} cannot be taken back; {self.length} were taken.")
        end = self.length - steps
        self._grown.update({site: (k[..., :end, :], v[..., :end, :]) for site, (k, v) in self._grown.items()})


def check_heads(width: int, heads: int) -> None:
    """The heads share the width evenly."""
    if heads < 1:
        raise InputError(f"heads={heads} does not fit; it should be 1 or more.")
    if width % heads:
        below, above = width // heads * heads, -(-width // heads) * heads
        widths = " or ".join(f"width={w}" for w in (below, above) if w)
        nearest = min((h for h in range(1, width + 1) if width % h == 0), key=lambda h: abs(h - heads))
        raise InputError(f"width={width} is not divisible by heads={heads}; choose {widths}, or heads={nearest}.")
