"""Attention: with no parameters, and with many heads."""

from collections.abc import Callable

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from vitrail.core.kernels import Kernel, Softmax
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError


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
        rows: slice | None = None,
    ) -> Tensor:
        """(b i w), and a context (b j w) to look at in its stead -> (b i w), or some rows of it."""
        early = rows if self.kernel.rowwise else None  # else the kernel must see all queries
        q = rearrange(self.query(x if early is None else x[:, early]), "b i (h d) -> b h i d", h=self.heads)
        if cache is None:
            k, v = self.keys_values(x if context is None else context)
        elif context is None:
            k, v = cache.extend(self, *self.keys_values(x))
        else:
            k, v = cache.keep(self, lambda: self.keys_values(context))
        if early is not None:
            mask = mask.at(x.shape[1], k, rows=early)
        z = self.kernel(q, k, v, mask)  # b h i d
        if rows is not None and early is None:
            z = z[:, :, rows]
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
    """The keys and values of the tokens seen so far, for every attention of a model that is called step by step."""

    def __init__(self) -> None:
        self._held: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def extend(self, site: nn.Module, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values up to these, which come last (self-attention)."""
        if site in self._held:
            past_k, past_v = self._held[site]
            k, v = torch.cat([past_k, k], dim=-2), torch.cat([past_v, v], dim=-2)
        self._held[site] = (k, v)
        return k, v

    def keep(self, site: nn.Module, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values made once and kept (cross-attention to a context that does not change)."""
        if site not in self._held:
            self._held[site] = make()
        return self._held[site]


def check_heads(width: int, heads: int) -> None:
    """The heads share the width evenly."""
    if heads < 1:
        raise InputError(f"heads={heads} does not fit; it should be 1 or more.")
    if width % heads:
        below, above = width // heads * heads, -(-width // heads) * heads
        widths = " or ".join(f"width={w}" for w in (below, above) if w)
        nearest = min((h for h in range(1, width + 1) if width % h == 0), key=lambda h: abs(h - heads))
        raise InputError(f"width={width} is not divisible by heads={heads}; choose {widths}, or heads={nearest}.")
