"""Similar tokens merged on the way, with no training (ToMe, Bolya et al. 2023)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.core.attention import Cache
from vitrail.core.block import Block, Stack, looked_at
from vitrail.core.masks import NONE, Mask


@dataclass(frozen=True, eq=False)
class Groups:
    """Which tokens are one by now: the group of each token (b n), and the size of each group (b m)."""

    of: Tensor
    size: Tensor

    @classmethod
    def each(cls, x: Tensor) -> "Groups":
        """Every token by itself."""
        alone = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
        return cls(alone, torch.ones_like(alone, dtype=torch.float32))

    def joined(self, into: Tensor, count: int) -> "Groups":
        """With each group made a part of another (b m), of so many."""
        size = torch.zeros(into.shape[0], count, dtype=self.size.dtype, device=into.device)
        return Groups(into.gather(1, self.of), size.scatter_add(1, into, self.size))

    def spread(self, x: Tensor) -> Tensor:
        """Groups (b m w) -> their tokens (b n w), all of a group alike."""
        return x.gather(1, self.of[..., None].expand(-1, -1, x.shape[-1]))


def matching(keys: Tensor, count: int, prefix: int) -> tuple[Tensor, int]:
    """Into which of so many fewer tokens each goes, (b m): of every other token those most like one of the rest.

    Tokens are alike as their keys are, (b m d): cosines. Those before the patches stay alone, and first.
    """
    m = keys.shape[1]
    room = (m - prefix) // 2
    if torch.compiler.is_compiling():  # a size that may vary is taken to be large enough, lest it is compared each time
        torch._check(room >= count)  # noqa: SLF001
    else:
        count = min(count, room)
    unit = F.normalize(keys[:, prefix:], dim=-1)
    ours, others = unit[:, ::2], unit[:, 1::2]
    best, partner = (ours @ others.mT).max(-1)
    gone = torch.zeros_like(best, dtype=torch.bool).scatter(1, best.topk(count, dim=1).indices, value=True)
    # Behind the prefix come those of ours that stay, in order, then the others.
    stay = ours.shape[1] - count
    own = torch.where(gone, stay + partner, (~gone).cumsum(1) - 1) + prefix
    rest = prefix + stay + torch.arange(others.shape[1], device=keys.device).expand(keys.shape[0], -1)
    first = torch.arange(prefix, device=keys.device).expand(keys.shape[0], -1)
    both = torch.stack([own[:, : others.shape[1]], rest], 2).flatten(1)
    return torch.cat([first, both, own[:, others.shape[1] :]], 1), m - count


def merged(x: Tensor, size: Tensor, into: Tensor, count: int) -> Tensor:
    """(b m w) -> (b count w): means, each token weighed by how many it stands for."""
    weights = size[..., None].to(x.dtype)
    whole = torch.zeros(x.shape[0], count, x.shape[-1], dtype=x.dtype, device=x.device)
    total = torch.zeros(x.shape[0], count, 1, dtype=x.dtype, device=x.device)
    index = into[..., None]
    whole = whole.scatter_add(1, index.expand_as(x), x * weights)
    return whole / total.scatter_add(1, index, weights)


class MergingStack(Stack):
    """A stack in whose blocks, between attention and feed-forward, so many tokens are merged with others.

    A token that stands for s counts as s in every softmax after. At the end each token is given what its group became,
    so that whoever reads them sees as many as ever. Under a lens all tokens stay, those of a group alike: which is the
    same, since s equal keys have s times the weight of one.
    """

    def __init__(self, blocks: Iterable[Block], drop: float = 0.0, *, counts: Sequence[int], prefix: int) -> None:
        super().__init__(blocks, drop)
        self.counts, self.prefix = tuple(counts), prefix

    def forward(self, x: Tensor, *args: Any, cache: Cache | None = None, **kwargs: Any) -> Tensor:  # noqa: ARG002
        """(b n w) -> (b n w)."""
        return self.last(x, 1, *args)[0]

    def rows(self, x: Tensor, rows: slice, mask: Mask = NONE) -> Tensor:
        """forward(x, mask)[:, rows]; of those before the patches the last block computes no others."""
        if rows.stop is None or rows.stop > self.prefix or _looked_at():
            return self.forward(x, mask)[:, rows]
        groups = Groups.each(x)
        for number, (block, count) in enumerate(zip(self, self.counts, strict=True), 1):
            if not self._kept():
                continue
            if number == len(self) and block.alone(rows, mask):
                return block.rows(x, rows, self._sized(mask, groups))
            x, groups = self._step(block, x, mask, groups, count)
        return x[:, rows]

    def last(self, x: Tensor, count: int, mask: Mask = NONE) -> list[Tensor]:
        """What each of the last blocks gives, of all tokens."""
        given, groups = [], Groups.each(x)
        for number, (block, few) in enumerate(zip(self, self.counts, strict=True), 1):
            if self._kept():
                x, groups = self._step(block, x, mask, groups, few)
            if number > len(self) - count:
                given.append(groups.spread(x))
        return given

    def _step(self, block: Block, x: Tensor, mask: Mask, groups: Groups, count: int) -> tuple[Tensor, Groups]:
        """A block on groups (b m w)."""
        looking, after = _looked_at(), groups

        def between(stream: Tensor, keys: Tensor) -> Tensor:
            nonlocal after
            if looking:
                stream, keys = _one_of_each(stream, groups), _one_of_each(keys, groups)
            if count and (torch.compiler.is_compiling() or min(count, (stream.shape[1] - self.prefix) // 2)):
                with torch.no_grad():
                    into, fewer = matching(keys, count, self.prefix)
                stream, after = merged(stream, groups.size, into, fewer), groups.joined(into, fewer)
            return after.spread(stream) if looking else stream

        if looking:
            return _one_of_each(block(groups.spread(x), mask, between=between), after), after
        return self._through(block, x, self._sized(mask, groups), between=between), after

    @staticmethod
    def _sized(mask: Mask, groups: Groups) -> Mask:
        """A mask for groups: each counts as many times as it has tokens."""
        if groups.size.shape[1] == groups.of.shape[1]:
            return mask
        return replace(mask, layout=None) & Mask(bias=groups.size.log()[:, None, None])


def _looked_at() -> bool:
    return not torch.compiler.is_compiling() and looked_at.get()


def _one_of_each(x: Tensor, groups: Groups) -> Tensor:
    """Tokens (b n w), all of a group alike -> groups (b m w)."""
    m = groups.size.shape[1]
    places = torch.arange(groups.of.shape[1], device=x.device).expand_as(groups.of)
    first = places.new_full((x.shape[0], m), groups.of.shape[1]).scatter_reduce(1, groups.of, places, "amin")
    return x.gather(1, first[..., None].expand(-1, -1, x.shape[-1]))
