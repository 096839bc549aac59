"""Attention: with no parameters, and with many heads."""

from collections.abc import Callable, Iterator

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from vitrail.core.kernels import Kernel, Softmax
from vitrail.core.linear import linear
from vitrail.core.masks import NONE, Mask
from vitrail.core.positions import Turn
from vitrail.errors import InputError


class Attention(nn.Module):
    """Concat(z_1 .. z_h) W_O + b, z_h = A(x W_Q,h, y W_K,h) y W_V,h (Vaswani et al. 2017, section 3.2.2).

    Self-attention when no context y is given, cross-attention when it is. Widths that may differ from the usual ones:
    ``context``, ``head`` (a head's queries and keys: width / heads), ``rank`` (its values: as ``head``), ``out``.
    Seen from the residual stream a head's value map is the product W_V,h W_O,h, "down" to the rank and "up" again, and
    the output matrix is all heads' "up" joined. ``turn`` turns queries and keys by their places (rotary positions).
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
        turn: Turn | None = None,
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
        self.turn = turn

    def forward(
        self,
        x: Tensor,
        mask: Mask = NONE,
        context: Tensor | None = None,
        cache: "Cache | None" = None,
        *,
        keys: list[Tensor] | None = None,
        kernel: Kernel | None = None,
    ) -> Tensor:
        """(b i w), and a context (b j w) to look at in its stead -> (b i w); who asks is given the keys' mean."""
        if cache is None:
            k, v = self.keys_values(x if context is None else context)
        elif context is None:
            k, v = self.apart(cache.extend(self.key_value(x)))
        else:
            k, v = cache.keep(lambda: self.keys_values(context))
        if keys is not None:
            keys.append(k.mean(1))
        q = split_heads(self.query(x), self.heads)
        if self.turn is not None:
            q, k = self.turn(q, k)
        return self.out(join_heads((kernel or self.kernel)(q, k, v, mask)))

    def keys_values(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(b j w) -> k (b h j d), v (b h j r)."""
        return self.apart(self.key_value(y))

    def apart(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values side by side (b j (k v)) -> k (b h j d), v (b h j r)."""
        k, v = both.split(self.widths, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def contributions(self, z: Tensor, heads: slice | list[int] = slice(None)) -> Tensor:
        """z_h W_O,h, (b h i w): what each head writes; over all heads they sum to the output less its bias."""
        up = rearrange(self.out.weight, "w (h r) -> h r w", h=self.heads)[heads]
        return einsum(z, up, "b h i r, h r w -> b h i w")

    def value_maps(self) -> Tensor:
        """W_V,h W_O,h, (h w w): each head's value map on the residual stream, of rank r at most."""
        down = rearrange(self.key_value.weight[self.widths[0] :], "(h r) w -> h w r", h=self.heads)
        return down @ rearrange(self.out.weight, "w (h r) -> h r w", h=self.heads)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(b i (h d)) -> (b h i d). With PyTorch's own words: einops takes twice the time, and at batch 1 that counts."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(b h i d) -> (b i (h d))."""
    return x.transpose(1, 2).flatten(2)


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

    def __init__(self) -> None:
        self.grown: Tensor | None = None  # by each step, (b j (k v))
        self.kept: tuple[Tensor, Tensor] | None = None  # of a context that does not change
        self.parts: dict[str | int, Cache] = {}

    def at(self, name: str | int) -> "Cache":
        """The cache of the part of this name."""
        if name not in self.parts:
            self.parts[name] = Cache()
        return self.parts[name]

    def __iter__(self) -> Iterator["Cache"]:
        """It, and all parts of it."""
        yield self
        for part in self.parts.values():
            yield from part

    @property
    def length(self) -> int:
        """How many tokens were seen."""
        return next((one.grown.shape[1] for one in self if one.grown is not None), 0)

    def extend(self, both: Tensor) -> Tensor:
        """All keys and values of this site up to these, (b j (k v)), which come last (self-attention)."""
        self.grown = both if self.grown is None else torch.cat([self.grown, both], dim=1)
        return self.grown

    def keep(self, make: Callable[[], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Keys and values of this site, made once and kept (cross-attention to a context that does not change)."""
        if self.kept is None:
            self.kept = make()
        return self.kept

    def select(self, rows: Tensor, *, contexts: bool = True) -> None:
        """Go on with these rows of the batch, at all sites: beams in another order, more of them, or without what has
        ended. Rows that stay with the context that was at their place, as beams do among themselves, need none moved.
        """
        for one in self:
            if one.grown is not None:
                one.grown = one.grown[rows]
            if contexts and one.kept is not None:
                one.kept = (one.kept[0][rows], one.kept[1][rows])

    def rewind(self, steps: int) -> None:
        """Forget the last tokens, at all sites: as if those steps had not been taken."""
        if not 0 <= steps <= self.length:
            raise InputError(f"steps={steps} cannot be taken back; {self.length} were taken.")
        end = self.length - steps
        for one in self:
            if one.grown is not None:
                one.grown = one.grown[:, :end]


def check_heads(width: int, heads: int) -> None:
    """The heads share the width evenly."""
    if heads < 1:
        raise InputError(f"heads={heads} does not fit; it should be 1 or more.")
    if width % heads:
        below, above = width // heads * heads, -(-width // heads) * heads
        widths = " or ".join(f"width={w}" for w in (below, above) if w)
        nearest = min((h for h in range(1, width + 1) if width % h == 0), key=lambda h: abs(h - heads))
        raise InputError(f"width={width} is not divisible by heads={heads}; choose {widths}, or heads={nearest}.")
