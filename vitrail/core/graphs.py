"""Attention along the edges of a graph: any that is given, or those of the papers."""

from math import ceil
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from vitrail.core.kernels import attend, kernels, weighed
from vitrail.core.masks import Mask, TokenLayout
from vitrail.core.sparse import Places, Sparse
from vitrail.errors import InputError

LISTED, GATHERED = 2**19, 2**22  # pairs that a rule is asked of, and numbers of keys that are gathered, at a time


class Graph(Sparse):
    """Each token sees those that a rule, ``sees``, joins it with; the base of a graph of your own.

    The neighbours of each query are listed once for a length, some rows at a time, and gathered: time and memory grow
    with the edges.
    """

    def __init__(self, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self._listed: tuple[Any, Tensor, Tensor] | None = None

    def neighbours(self, mask: Mask, places: Places, device: torch.device) -> tuple[Tensor, Tensor]:
        """The keys that each query sees (n most), and which of those are there."""
        name = (places, mask.causal, mask.window, device)
        if self._listed is None or self._listed[0] != name:
            only = Mask(causal=mask.causal, window=mask.window, layout=mask.layout)
            rows, step = list[Tensor](), max(1, LISTED // places.count)
            for first in range(0, places.count, step):
                part = torch.arange(first, min(places.count, first + step), device=device)
                seen = self.rule(part, places, mask)
                allowed = only._seen(part, places.count)  # noqa: SLF001
                seen = seen if allowed is None else seen & allowed
                most = max(1, int(seen.sum(1).max()))
                order = seen.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :most]
                rows.append(torch.where(seen.gather(1, order), order, -1))
            widest = max(row.shape[1] for row in rows)
            keys = torch.cat([F.pad(row, (0, widest - row.shape[1]), value=-1) for row in rows])
            self._listed = (name, keys.clamp(min=0), keys >= 0)
        return self._listed[1], self._listed[2]

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        keys, there = self.neighbours(mask, Places(k.shape[-2], mask.layout), q.device)
        b, h, n, d = q.shape
        step = max(1, GATHERED // max(1, b * h * keys.shape[1] * d))
        parts = []
        for first in range(0, n, step):
            some, valid = keys[first : first + step], there[first : first + step]
            given = valid[None, None]
            if mask.present is not None:
                given = given & mask.present[:, some][:, None]
            one = attend(
                q[:, :, first : first + step, None].flatten(0, 1),
                k[:, :, some].flatten(0, 1),
                v[:, :, some].flatten(0, 1),
                scale=self.scale,
                attn_mask=given.expand(b, h, -1, -1).flatten(0, 1)[:, :, None],
            )
            parts.append(one.unflatten(0, (b, h))[:, :, :, 0])
        return torch.cat(parts, 2)


@kernels.add("edges")
class Edges(Graph):
    """Each token sees itself and those that an edge leads to, given as pairs of places (from, to)."""

    def __init__(self, edges: tuple[tuple[int, int], ...] = (), scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.edges = tuple((int(one), int(other)) for one, other in edges)
        if any(min(pair) < 0 for pair in self.edges):
            raise InputError("edges are pairs of places from 0 on; leave negative ones out.")

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:
        seen = i == j
        inside = [pair for pair in self.edges if max(pair) < places.count]
        if inside:
            one, other = torch.tensor(inside, device=i.device).T
            row = torch.full((places.count,), -1, device=i.device)
            row[i[:, 0]] = torch.arange(len(i), device=i.device)
            asked = row[one] >= 0
            seen[row[one][asked], other[asked]] = True
        return seen


@kernels.add("strided")
class Strided(Sparse):
    """Each token sees those less than ``stride`` away, and every stride-th one (Child et al. 2019, strided)."""

    def __init__(self, stride: PositiveInt = 64, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.stride = stride

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:  # noqa: ARG002
        return ((i - j).abs() < self.stride) | ((i - j) % self.stride == 0)

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if mask.layout is not None and mask.layout.prefix:
            return self.pattern(q, k, mask) @ v
        n, size = k.shape[-2], self.stride
        rows = ceil(n / size)
        over, wide = rows * size - n, 3 * size
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        cut = [F.pad(x, (0, 0, 0, over)).unflatten(2, (rows, size)) for x in (q * scale, k, v)]  # b h rows size d
        near = [F.pad(x, (0, 0, 0, 0, 1, 1)).unfold(2, 3, 1).permute(0, 1, 2, 5, 3, 4).flatten(3, 4) for x in cut[1:]]
        i = torch.arange(rows * size, device=q.device).view(rows, size, 1)
        j = (torch.arange(rows, device=q.device)[:, None] - 1) * size + torch.arange(wide, device=q.device)
        along = self._allowed(i, j[:, None], n, mask) & ((i - j[:, None]).abs() < size)  # rows size wide
        down = torch.arange(rows, device=q.device) * size + torch.arange(size, device=q.device)[:, None]  # size rows
        across = self._allowed(i, down, n, mask) & (i != down)  # rows size rows
        first = cut[0] @ near[0].mT  # b h rows size wide
        second = torch.einsum("bhrsd,bhtsd->bhrst", cut[0], cut[1])
        if mask.present is not None:
            present = F.pad(mask.present, (0, over)).view(-1, rows, size)
            around = F.pad(present, (0, 0, 1, 1)).unfold(1, 3, 1).transpose(2, 3).flatten(2)  # b rows wide
            along, across = along & around[:, None, :, None], across & present.permute(0, 2, 1)[:, None, None]
        scores = torch.cat([first.masked_fill(~along, -torch.inf), second.masked_fill(~across, -torch.inf)], -1)
        weights = weighed(scores)
        z = weights[..., :wide] @ near[1] + torch.einsum("bhrst,bhtsd->bhrsd", weights[..., wide:], cut[2])
        return z.flatten(2, 3)[:, :, :n]

    @staticmethod
    def _allowed(i: Tensor, j: Tensor, n: int, mask: Mask) -> Tensor:
        seen = (j >= 0) & (j < n) & (i < n)
        seen = seen & (j <= i) if mask.causal else seen
        return seen if mask.window is None else seen & ((i - j).abs() <= mask.window)


@kernels.add("fixed")
class Fixed(Sparse):
    """Each token sees its own block, and the last ``summary`` tokens of every block (Child et al. 2019, fixed)."""

    def __init__(self, block: PositiveInt = 64, summary: PositiveInt = 4, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        if summary > block:
            raise InputError(f"summary={summary} tokens are more than the block={block} that they are of; lower it.")
        self.block, self.summary = block, summary

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:  # noqa: ARG002
        same = i.div(self.block, rounding_mode="floor") == j.div(self.block, rounding_mode="floor")
        return same | (j % self.block >= self.block - self.summary)

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        if mask.layout is not None and mask.layout.prefix:
            return self.pattern(q, k, mask) @ v
        b, h, n = q.shape[:3]
        size = self.block
        blocks = ceil(n / size)
        over, device = blocks * size - n, q.device
        cut = [F.pad(x, (0, 0, 0, over)).unflatten(2, (blocks, size)) for x in (q, k, v)]
        summaries = [x[:, :, :, size - self.summary :].flatten(2, 3) for x in cut[1:]]  # b h (blocks summary) d
        places = torch.arange(blocks * size, device=device).view(blocks, size)
        shared = places[:, size - self.summary :].flatten()
        j = torch.cat([places, shared.expand(blocks, -1)], 1)[:, None]  # blocks 1 keys
        i = places[:, :, None]
        own = torch.zeros(j.shape[-1], dtype=torch.bool, device=device)
        own[:size] = True
        elsewhere = j.div(size, rounding_mode="floor") != i.div(size, rounding_mode="floor")
        seen = Strided._allowed(i, j, n, mask) & (own | elsewhere)  # noqa: SLF001
        given = seen[None]
        if mask.present is not None:
            real = F.pad(mask.present, (0, over))[:, j[:, 0]]  # b blocks keys
            given = (seen & real[:, :, None]).repeat_interleave(h, 0)
        both = [
            torch.cat([own_keys, other[:, :, None].expand(-1, -1, blocks, -1, -1)], 3).flatten(0, 1)
            for own_keys, other in zip(cut[1:], summaries, strict=True)
        ]
        z = attend(cut[0].flatten(0, 1), *both, scale=self.scale, attn_mask=given)
        return z.view(b, h, blocks * size, -1)[:, :, :n]


@kernels.add("axial")
class Axial(Sparse):
    """Each patch sees its row and its column (Ho et al. 2019); of a sequence, laid out in rows of ``across`` tokens."""

    def __init__(self, across: PositiveInt = 64, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.across = across

    def _layout(self, places: Places) -> TokenLayout:
        return places.layout or TokenLayout(0, (ceil(places.count / self.across), self.across))

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:
        laid = Places(places.count, self._layout(places))
        (y, x), (down, across) = laid.on_grid(i), laid.on_grid(j)
        return (y == down) | (x == across)

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        places = Places(k.shape[-2], mask.layout)
        layout = self._layout(places)
        (rows, columns), prefix, n = layout.grid, layout.prefix, places.count - layout.prefix
        over = rows * columns - n
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        laid = [F.pad(x[:, :, prefix:], (0, 0, 0, over)).unflatten(2, (rows, columns)) for x in (q * scale, k, v)]
        i = torch.arange(rows * columns, device=q.device).view(rows, columns, 1)
        along = self._seen(i, i[..., 0][:, None], n, mask)  # rows columns columns
        down = self._seen(i, i[..., 0].T[None], n, mask) & (i != i[..., 0].T[None])  # rows columns rows
        first = laid[0] @ laid[1].mT
        second = torch.einsum("bhyxd,bhtxd->bhyxt", laid[0], laid[1])
        if mask.present is not None:
            present = F.pad(mask.present[:, prefix:], (0, over)).view(-1, rows, columns)
            along, down = along & present[:, None, :, None], down & present.permute(0, 2, 1)[:, None, None]
        parts = [first.masked_fill(~along, -torch.inf), second.masked_fill(~down, -torch.inf)]
        if prefix:
            shared = torch.einsum("bhyxd,bhpd->bhyxp", laid[0], k[:, :, :prefix])
            hidden = None if mask.present is None else ~mask.present[:, None, None, None, :prefix]
            parts.append(shared if hidden is None else shared.masked_fill(hidden, -torch.inf))
        weights = weighed(torch.cat(parts, -1))
        one, other, rest = weights.split([columns, rows, prefix], -1)
        z = one @ laid[2] + torch.einsum("bhyxt,bhtxd->bhyxd", other, laid[2])
        if prefix:
            z = z + torch.einsum("bhyxp,bhpd->bhyxd", rest, v[:, :, :prefix])
        return self.with_prefix(z.flatten(2, 3)[:, :, :n], q, k, v, mask)

    @staticmethod
    def _seen(i: Tensor, j: Tensor, n: int, mask: Mask) -> Tensor:
        return Strided._allowed(i, j, n, mask)  # noqa: SLF001
