"""Attention along few of all pairs: near ones, global ones, drawn ones; time and memory grow with the tokens."""

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from vitrail.core.kernels import Kernel, attend, kernels, weighed
from vitrail.core.masks import NONE, Mask, TokenLayout
from vitrail.errors import InputError


@dataclass(frozen=True)
class Places:
    """Where keys stand: how many there are, and how they are laid out, if they are no plain sequence."""

    count: int
    layout: TokenLayout | None = None

    @property
    def prefix(self) -> int:
        """Tokens before the others, which see all and are seen by all."""
        return 0 if self.layout is None else self.layout.prefix

    def on_grid(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """(y, x) of each place; of a prefix token they mean nothing."""
        across = 1 if self.layout is None else self.layout.grid[1]
        after = places - self.prefix
        return after.div(across, rounding_mode="floor"), after.remainder(across)


class Sparse(Kernel):
    """softmax(q k^T / sqrt(d)) v over those keys that a rule lets a query see.

    The rule alone says what the pattern is; how that is computed fast is each kind's own. With other queries than keys,
    as when a sequence is decoded step by step, and with a bias, which is dense itself, the rule is computed as it is.
    """

    rowwise: ClassVar[bool] = False
    open_prefix: ClassVar[bool] = True
    crosses: ClassVar[bool] = False

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:
        """True where a query at place i (r 1) may see a key at place j (n)."""
        raise NotImplementedError

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """The same without all pairs, of as many queries as keys and no bias."""
        raise NotImplementedError

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        if mask.causal and not self.causal:
            raise InputError(f"{type(self).__name__} attention sees what comes later; choose a kernel that does not.")
        odd = mask.layout is not None and (mask.window is not None or mask.causal)  # in raster order
        if q.shape[-2] != k.shape[-2] or mask.bias is not None or odd:
            return self.pattern(q, k, mask) @ v
        return self.fast(q, k, v, mask)

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        return self.rows(q, k, mask)

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        queries, keys = q.shape[-2], k.shape[-2]
        places = torch.arange(keys - queries, keys, device=q.device)[rows]
        seen = self.rule(places, Places(keys, mask.layout), mask)
        part = mask.at(queries, k, heads=heads, rows=rows)
        hidden = Mask(bias=q.new_zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None])
        both = part & hidden
        return weighed(self.scores(q[:, heads][:, :, rows], k[:, heads], both))

    def rule(self, i: Tensor, places: Places, mask: Mask) -> Tensor:  # noqa: ARG002
        """What queries at some places see, (r n); prefix tokens see all, and are seen by all."""
        j = torch.arange(places.count, device=i.device)
        seen = self.sees(i[:, None], j, places)
        return seen | (i[:, None] < places.prefix) | (j < places.prefix) if places.prefix else seen

    def with_prefix(self, z: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """What tokens read (b h n r), those of the prefix from all others."""
        count = Places(k.shape[-2], mask.layout).prefix
        if not count:
            return z
        first = attend(q[:, :, :count], k, v, scale=self.scale, attn_mask=_seen_keys(mask.present))
        return torch.cat([first, z], 2)


def _seen_keys(present: Tensor | None) -> Tensor | None:
    return None if present is None else present[:, None, None]


@kernels.add("bigbird")
class BigBird(Sparse):
    """Each block of tokens sees itself and its neighbours, the first ``globals`` tokens, which see all, and ``random``
    blocks that are drawn by a seed (Zaheer et al. 2020).
    """

    def __init__(
        self,
        block: PositiveInt = 64,
        globals: NonNegativeInt = 16,  # noqa: A002  # as the paper calls them
        random: NonNegativeInt = 3,
        seed: NonNegativeInt = 0,
        scale: PositiveFloat | None = None,
    ) -> None:
        super().__init__(scale)
        self.block, self.globals, self.random, self.seed = block, globals, random, seed

    def drawn(self, block: Tensor, count: int, *, causal: bool) -> Tensor:
        """The blocks that each of some blocks sees by chance, (.. random): of all, or of those before it."""
        number = torch.arange(self.random, device=block.device)
        among = block[..., None] + 1 if causal else torch.full_like(block[..., None], count)
        return scattered(self.seed, block[..., None], number) % among

    def rule(self, i: Tensor, places: Places, mask: Mask) -> Tensor:
        j = torch.arange(places.count, device=i.device)
        one, other = i.div(self.block, rounding_mode="floor")[:, None], j.div(self.block, rounding_mode="floor")
        first = max(self.globals, places.prefix)
        seen = ((one - other).abs() <= 1) | (i[:, None] < first) | (j < first)
        drawn = self.drawn(one[:, 0], ceil(places.count / self.block), causal=mask.causal)
        for number in range(self.random):
            seen = seen | (other == drawn[:, number, None])
        return seen

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        b, h, n = q.shape[:3]
        size, first = self.block, min(n, max(self.globals, Places(n, mask.layout).prefix))
        blocks = ceil(n / size)
        over = blocks * size - n
        own = torch.arange(blocks, device=q.device)
        near = own[:, None] + torch.arange(-1, 2, device=q.device)
        shown = torch.cat([near, self.drawn(own, blocks, causal=mask.causal)], 1)
        before = torch.ones(shown.shape[1], shown.shape[1], dtype=torch.bool, device=q.device).tril(-1)
        again = ((shown[:, :, None] == shown[:, None]) & before).any(2)
        fresh = ~again & (shown >= 0) & (shown < blocks)  # each block once
        keys = (shown.clamp(0, blocks - 1)[:, :, None] * size + torch.arange(size, device=q.device)).flatten(1)
        there = fresh.repeat_interleave(size, 1) & (keys < n) & (keys >= first)
        keys = keys.clamp(max=n - 1)
        every = torch.cat([torch.arange(first, device=q.device).expand(blocks, -1), keys], 1)  # blocks keys
        valid = F.pad(there, (first, 0), value=True)
        i = (own[:, None] * size + torch.arange(size, device=q.device))[:, :, None]
        seen = valid[:, None].expand(-1, size, -1)
        if mask.causal:
            seen = seen & (every[:, None] <= i)
        if mask.window is not None:
            seen = seen & ((every[:, None] - i).abs() <= mask.window)
        given = seen[None]
        if mask.present is not None:
            given = (seen & mask.present[:, every][:, :, None]).repeat_interleave(h, 0)
        gathered = (x.flatten(0, 1).index_select(1, every.flatten()).unflatten(1, every.shape) for x in (k, v))
        blocked = F.pad(q, (0, 0, 0, over)).unflatten(2, (blocks, size)).flatten(0, 1)
        z = attend(blocked, *gathered, scale=self.scale, attn_mask=given).view(b, h, blocks * size, -1)[:, :, :n]
        if not first:
            return z
        whole = Mask(causal=mask.causal, window=mask.window, present=mask.present)
        start = whole.at(n, k, rows=slice(0, first))
        top = attend(q[:, :, :first], k, v, scale=self.scale, **start.fused(q[:, :, :first], k))
        return torch.cat([top, z[:, :, first:]], 2)


def scattered(seed: int, *numbers: Tensor) -> Tensor:
    """A number below 2^31 for each of some numbers and a seed, as if drawn: the same wherever and in whatever order it
    is asked for (the finaliser of MurmurHash3, in 64 bits).
    """
    x = torch.full((), seed * 2654435761 % 2**31, dtype=torch.int64, device=numbers[0].device)
    for number in numbers:
        x = _mixed(x * 31 + number + 1)
    return x


def _mixed(x: Tensor) -> Tensor:
    for shift, factor in ((16, 0x45D9F3B), (15, 0x2C1B3C6D), (16, 1)):
        x = ((x ^ (x >> shift)) * factor) & 0x7FFFFFFF
    return x
