"""Attention through a centre."""

from typing import Any, ClassVar

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from vitrail.core.kernels import attend, kernels, weighed
from vitrail.core.masks import NONE, Mask
from vitrail.core.sparse import Places, Sparse
from vitrail.errors import InputError


@kernels.add("star")
class Star(Sparse):
    """Each token sees its neighbours in a ring, and a relay, which sees all (Guo et al. 2019): n edges, not n^2.

    The relay is the prefix, where there is one. Else it is the mean of the tokens: its query, the mean of theirs, reads
    all of them, and what it reads is what it has to give; so that each token reads every other through it.
    """

    causal: ClassVar[bool] = False

    def __init__(self, ring: PositiveInt = 1, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.ring = ring

    def sees(self, i: Tensor, j: Tensor, places: Places) -> Tensor:
        count = places.count - places.prefix
        away = (i - j).abs()
        return torch.minimum(away, count - away) <= self.ring

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        if mask.causal:
            raise InputError("Star attention sees what comes later; choose a kernel that does not.")
        if Places(k.shape[-2], mask.layout).prefix:
            return super().rows(q, k, mask, heads, rows)
        queries, keys = q.shape[-2], k.shape[-2]
        places = torch.arange(keys - queries, keys, device=q.device)[rows]
        q_all, k = q[:, heads], k[:, heads]
        part = mask.at(queries, k, heads=heads, rows=rows)
        relay, first = self._relay(q_all, k, mask)
        seen = self.rule(places, Places(keys), mask)
        hidden = Mask(bias=q.new_zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None])
        own = q_all[:, :, rows]
        scores = torch.cat([self.scores(own, k, part & hidden), self.scores(own, first)], -1)
        weights = weighed(scores)
        return part.weights(weights[..., :-1] + weights[..., -1:] * relay)

    def _relay(self, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        """The weights by which the relay reads all tokens, (b h 1 j); and its key, (b h 1 d)."""
        present = mask.present
        query, key = _mean(q, present if q.shape[-2] == k.shape[-2] else None), _mean(k, present)
        only = NONE if present is None else Mask(present=present)
        return weighed(self.scores(query, k, only)), key

    def fast(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        n, prefix = k.shape[-2], Places(k.shape[-2], mask.layout).prefix
        count = n - prefix
        if mask.window is not None or 2 * self.ring + 1 >= count:
            return self.pattern(q, k, mask) @ v
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        inner = [x[:, :, prefix:] for x in (q, k, v)]
        turns = [
            torch.arange(count, device=q.device).add(step).remainder(count) for step in range(-self.ring, self.ring + 1)
        ]
        own = inner[0] * scale
        ring = torch.stack([(own * inner[1][:, :, turn]).sum(-1) for turn in turns], -1)  # b h n ring
        if mask.present is not None:
            there = torch.stack([mask.present[:, prefix:][:, turn] for turn in turns], -1)[:, None]
            ring = ring.masked_fill(~there, -torch.inf)
        if prefix:
            shared_k, shared_v = k[:, :, :prefix], v[:, :, :prefix]
            relayed = own @ shared_k.mT
            if mask.present is not None:
                relayed = relayed.masked_fill(~mask.present[:, None, None, :prefix], -torch.inf)
        else:
            only = NONE if mask.present is None else Mask(present=mask.present)
            shared_v = attend(_mean(q, mask.present), k, v, scale=self.scale, **only.fused(q[:, :, :1], k))
            relayed = own @ _mean(k, mask.present).mT
        weights = weighed(torch.cat([ring, relayed], -1))
        z = weights[..., len(turns) :] @ shared_v
        for number, turn in enumerate(turns):
            z = z + weights[..., number, None] * inner[2][:, :, turn]
        return self.with_prefix(z, q, k, v, mask)


def _mean(x: Tensor, present: Tensor | None) -> Tensor:
    """(b h n d) -> (b h 1 d), of the tokens that are there."""
    if present is None:
        return x.mean(2, keepdim=True)
    weights = present[:, None, :, None].to(x.dtype)
    return (x * weights).sum(2, keepdim=True) / weights.sum(2, keepdim=True).clamp(min=1)
