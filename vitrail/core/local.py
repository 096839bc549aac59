"""Attention to what is near: in a sequence, or around a patch of a picture."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, cast

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from torch.autograd.function import once_differentiable

from vitrail.core.kernels import attend, kernels
from vitrail.core.masks import Mask, TokenLayout
from vitrail.core.sparse import Places, Sparse


@kernels.add("local")
class Local(Sparse):
    """Each token sees those at most ``window`` away: in a sequence before and behind it, in a picture around it, in a
    square; prefix tokens see all and are seen by all (Beltagy et al. 2020; Parmar et al. 2018).

    Tokens are taken in blocks, or tiles, which with what is around them are handed to fused attention. Where nothing is
    said a window is 128 tokens of a sequence, 3 patches of a picture.
    """

    def __init__(self, window: PositiveInt | None = None, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.window = window

    def reach(self, layout: TokenLayout | None) -> int:
        """How far is near."""
        return self.window or (128 if layout is None else 3)

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:
        reach = self.reach(places.layout)
        if places.layout is None:
            return (i - j).abs() <= reach
        (down, across), (y, x) = places.on_grid(i), places.on_grid(j)
        return ((down - y).abs() <= reach) & ((across - x).abs() <= reach)

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if mask.layout is None:
            return self.along(q, k, v, mask, self.reach(None))
        return self.with_prefix(self.around(q, k, v, mask, mask.layout), q, k, v, mask)

    def along(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, reach: int) -> Tensor:
        """Of a sequence, in blocks."""
        n = k.shape[-2]
        reach = min(n, reach if mask.window is None else min(reach, mask.window))
        before, behind = reach, 0 if mask.causal else reach
        if reach >= n - 1:
            return attend(q, k, v, scale=self.scale, **Mask(causal=mask.causal, present=mask.present).fused(q, k))
        size = max(16, min(128, reach // 2))  # measured at a window of 128: 64 is faster than 32, 128 and 256
        i = torch.arange(size, device=q.device)[:, None]
        j = torch.arange(-before, size + behind, device=q.device)
        near = ((i - j).abs() <= reach)[None, None]
        near = near & (i >= j) if mask.causal else near
        real = mask.present if mask.present is not None else q.new_ones(1, n, dtype=torch.bool)

        def of(start: int, stop: int) -> Tensor:  # some blocks, of all keys that are near them
            first, last = start * size - before, stop * size + behind
            keys, values = (_between(x, first, last).unfold(2, len(j), size).mT for x in (k, v))  # b h blocks wide d
            seen = near
            if mask.present is not None or first < 0 or last > n:
                there = _between(real[:, None, :, None], first, last)[:, 0, :, 0].unfold(1, len(j), size)[:, :, None]
                seen = near & (there if len(there) == 1 else there.repeat_interleave(q.shape[1], 0))
            queries = _between(q, start * size, stop * size).unflatten(2, (-1, size))
            some = (x.flatten(0, 1) for x in (queries, keys, values))
            return attend(*some, scale=self.scale, attn_mask=seen)

        blocks = ceil(n / size)
        edges = min(blocks, ceil(before / size)), max(0, (n - behind) // size)  # between them no key is missing
        marks = [0, *(edges if edges[0] < edges[1] else ()), blocks]
        z = torch.cat([of(*pair) for pair in pairwise(marks) if pair[0] < pair[1]], 1)
        return z.view(*q.shape[:2], blocks * size, -1)[:, :, :n]

    def around(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, layout: TokenLayout) -> Tensor:
        """Of the patches of a picture, in bands of tiles; each tile with what is around it, and the prefix tokens.

        What is around a tile is a copy. No more than a band's are there at a time, and for the gradient they are made
        again.
        """
        (rows, columns), prefix, reach = layout.grid, layout.prefix, self.reach(layout)
        high = min(rows, max(4, reach))  # measured at a window of 7: tiles of 7 are faster than of 14
        bands = [Band(top, min(rows, top + high), layout, reach) for top in range(0, rows, high)]
        grids = [x[:, :, prefix:].unflatten(2, (rows, columns)) for x in (q, k, v)]
        firsts = [x[:, :, :prefix] for x in (k, v)]
        attend_to = partial(self._band, mask.present)
        if torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001  # which wants plain operations
            return _in_bands(attend_to, bands, *grids, *firsts).flatten(2, 3)
        return cast("Tensor", _Banded.apply(attend_to, bands, *grids, *firsts)).flatten(2, 3)  # type: ignore[no-untyped-call]

    def _band(  # noqa: PLR0917
        self, present: Tensor | None, band: "Band", q: Tensor, k: Tensor, v: Tensor, first_k: Tensor, first_v: Tensor
    ) -> Tensor:
        """Some rows of patches (b h rows columns r), of those rows and of those near (b h y x d), and the prefix."""
        (b, h), wide, tiles = q.shape[:2], band.wide, band.tiles

        def around(x: Tensor, first: Tensor) -> Tensor:  # -> (b h) tiles (prefix and square) d
            near = F.pad(x, (0, 0, band.reach, band.reach + band.over))
            near = near.unfold(3, wide + 2 * band.reach, wide).permute(0, 1, 3, 2, 5, 4).flatten(3, 4)
            shared = first[:, :, None].expand(-1, -1, tiles, -1, -1)
            return (torch.cat([shared, near], 3) if band.prefix else near).flatten(0, 1)

        seen = band.seen(q.device)[None]
        if present is not None:
            real = present[:, None, :, None].float()
            rows = real[:, :, band.prefix :].unflatten(2, band.layout.grid)[:, :, band.keys]
            there = around(rows, real[:, :, : band.prefix])
            seen = (seen & (there[..., 0] > 0)[:, :, None]).repeat_interleave(h, 0)
        mine = F.pad(q, (0, 0, 0, band.over)).unflatten(3, (tiles, wide))  # b h y tiles x d
        mine = mine.permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(0, 1)
        z = attend(mine, around(k, first_k), around(v, first_v), scale=self.scale, attn_mask=seen)
        z = z.view(b, h, tiles, -1, wide, z.shape[-1]).transpose(2, 3).flatten(3, 4)
        return z[:, :, :, : band.layout.grid[1]]


class _Banded(torch.autograd.Function):
    """Attention band by band, each computed a second time for its gradient: nothing is kept but what came in.

    As torch.utils.checkpoint does, which brings half of PyTorch with it, 60 MB, and makes whole gradients of each band.
    """

    @staticmethod
    def forward(ctx: Any, attend_to: Callable[..., Tensor], bands: "list[Band]", *tensors: Tensor) -> Tensor:
        ctx.attend_to, ctx.bands = attend_to, bands
        ctx.save_for_backward(*tensors)
        return _in_bands(attend_to, bands, *tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        whole = [torch.zeros_like(one) for one in ctx.saved_tensors]
        for band in ctx.bands:
            given = [one.detach().requires_grad_() for one in _of(band, *ctx.saved_tensors)]
            with torch.enable_grad():
                z = ctx.attend_to(band, *given)
            gradients = torch.autograd.grad(z, given, gradient[:, :, band.queries], materialize_grads=True)
            for total, part in zip(_of(band, *whole), gradients, strict=True):
                total.add_(part)
        return None, None, *whole


def _in_bands(attend_to: Callable[..., Tensor], bands: "list[Band]", *tensors: Tensor) -> Tensor:
    return torch.cat([attend_to(band, *_of(band, *tensors)) for band in bands], 2)


def _of(band: "Band", *tensors: Tensor) -> list[Tensor]:
    """A band's rows of the queries, the rows near it of keys and values, and the prefix's."""
    q, k, v, *firsts = tensors
    return [q[:, :, band.queries], k[:, :, band.keys], v[:, :, band.keys], *firsts]


@dataclass(frozen=True)
class Band:
    """Some rows of a grid of patches, cut in tiles across, and how far is near."""

    top: int
    bottom: int
    layout: TokenLayout
    reach: int

    @property
    def prefix(self) -> int:
        return self.layout.prefix

    @property
    def queries(self) -> slice:
        """Its rows."""
        return slice(self.top, self.bottom)

    @property
    def keys(self) -> slice:
        """Those that are near."""
        return slice(max(0, self.top - self.reach), min(self.layout.grid[0], self.bottom + self.reach))

    @property
    def wide(self) -> int:
        """Columns of a tile."""
        return min(self.layout.grid[1], max(4, self.reach))

    @property
    def tiles(self) -> int:
        """How many there are."""
        return ceil(self.layout.grid[1] / self.wide)

    @property
    def over(self) -> int:
        """Columns of the last tile that are not there."""
        return self.tiles * self.wide - self.layout.grid[1]

    def seen(self, device: torch.device) -> Tensor:
        """What each query of each tile sees of what is around it, (tiles queries keys)."""
        rows = torch.arange(self.queries.start, self.queries.stop, device=device)[:, None]
        near_rows = (rows - torch.arange(self.keys.start, self.keys.stop, device=device)).abs() <= self.reach
        i = torch.arange(self.wide, device=device)[:, None]
        j = torch.arange(-self.reach, self.wide + self.reach, device=device)
        column = self.wide * torch.arange(self.tiles, device=device)[:, None] + j
        across = ((i - j).abs() <= self.reach) & ((column >= 0) & (column < self.layout.grid[1]))[:, None]  # tiles x j
        pairs = near_rows[None, :, None, :, None] & across[:, None, :, None]  # tiles y x keys' y and x
        seen = pairs.flatten(3, 4).flatten(1, 2)
        return F.pad(seen, (self.prefix, 0), value=True) if self.prefix else seen


def _between(x: Tensor, first: int, last: int) -> Tensor:
    """(b h n d): those tokens from a place to another, zeros where there are none."""
    n = x.shape[2]
    inside = x[:, :, max(0, first) : min(n, last)]
    return inside if first >= 0 and last <= n else F.pad(inside, (0, 0, max(0, -first), max(0, last - n)))
