"""Attention among tokens that fall into the same buckets (Reformer, Kitaev et al. 2020)."""

from math import ceil
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from vitrail.core.kernels import Kernel, kernels, weighed
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError

LAST = -1e4  # of a token's own score: it sees itself where it sees nothing else


@kernels.add("hashing")
class Hashing(Kernel):
    """softmax over the keys that share a bucket with a query in any of some rounds.

    Keys are the queries themselves, of length 1. In each round they are hashed by the sign and place of their largest
    number after a turn that is drawn by a seed, sorted by bucket and place, and cut in chunks, each of which sees
    itself and the one before it. A pair that meets in several rounds counts once. A token sees itself only where it
    sees nothing else.
    """

    rowwise: ClassVar[bool] = False
    crosses: ClassVar[bool] = False

    def __init__(
        self,
        rounds: PositiveInt = 2,
        chunk: PositiveInt = 64,
        buckets: PositiveInt | None = None,
        seed: NonNegativeInt = 0,
        scale: PositiveFloat | None = None,
    ) -> None:
        super().__init__(scale)
        if buckets is not None and buckets % 2:
            raise InputError(f"buckets={buckets} does not fit; a hash has two signs, so it should be even.")
        self.rounds, self.chunk, self.buckets, self.seed = rounds, chunk, buckets, seed

    def hashes(self, q: Tensor) -> Tensor:
        """The bucket of each token in each round, (b h r n)."""
        count = self.buckets or max(2, 2 * ceil(q.shape[-2] / self.chunk / 2))
        generator = torch.Generator().manual_seed(self.seed)
        turns = torch.randn(self.rounds, q.shape[-1], count // 2, generator=generator, dtype=torch.float32)
        with torch.no_grad():
            turned = torch.einsum("bhnd,rdk->bhrnk", q.float(), turns.to(q.device))
            return torch.cat([turned, -turned], -1).argmax(-1)

    def _addresses(self, q: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
        """The order of the tokens in each round, and in which chunk each then is; both (b h r n)."""
        n = q.shape[-2]
        bucket = self.hashes(q)
        if mask.present is not None:  # what is not there comes last
            bucket = bucket.masked_fill(~mask.present[:, None, None], int(1e6))
        order = (bucket * n + torch.arange(n, device=q.device)).argsort(-1)
        rank = torch.empty_like(order).scatter_(-1, order, torch.arange(n, device=q.device).expand_as(order))
        # One number says both: tokens meet if they are of one bucket, in one chunk or the next.
        return order, rank.div(self.chunk, rounding_mode="floor") * int(2e6) + bucket

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        self._check(q, k, mask)
        if mask.bias is not None:
            return self.pattern(q, k, mask) @ v
        b, h, n, d = q.shape
        size = min(self.chunk, n)
        over = -n % size
        keys = F.normalize(q, dim=-1)
        order, address = self._addresses(q, mask)
        scale = d**-0.5 if self.scale is None else self.scale
        outs, totals = [], []
        for turn in range(self.rounds):
            places = F.pad(order[:, :, turn], (0, over), value=-1).unflatten(2, (-1, size))  # b h chunks size
            seen = torch.cat([F.pad(places, (0, 0, 1, 0), value=-1)[:, :, :-1], places], 3)  # and the chunk before
            i, j = places.clamp(min=0)[..., :, None], seen.clamp(min=0)[..., None, :]
            mine, theirs, values = (_taken(x, at) for x, at in ((q * scale, places), (keys, seen), (v, seen)))
            scores = mine @ theirs.mT
            visible = (seen >= 0)[..., None, :] & (places >= 0)[..., None]
            met = torch.zeros_like(scores)
            for other in range(self.rounds):
                one = _taken(address[:, :, other, :, None], places)[..., 0][..., :, None]
                two = _taken(address[:, :, other, :, None], seen)[..., 0][..., None, :]
                met = met + _meet(one, two).to(scores.dtype)
                if other == turn:
                    visible = visible & _meet(one, two)
            if mask.causal:
                visible = visible & (j <= i)
            if mask.window is not None:
                visible = visible & ((i - j).abs() <= mask.window)
            if mask.present is not None:
                real = _taken(mask.present[:, None, :, None].expand(b, h, n, 1).float(), seen)[..., 0] > 0
                visible = visible & real[..., None, :]
            scores = torch.where(i == j, torch.full_like(scores, LAST), scores) - met.clamp(min=1).log()
            scores = scores.masked_fill(~visible, -torch.inf)
            total = _total(scores)
            weights = weighed(scores)
            back = _inverse(places, n)
            outs.append(_taken((weights @ values).flatten(2, 3), back))
            totals.append(_taken(total.flatten(2, 3), back))
        share = weighed(torch.stack(totals, -1))
        return (torch.stack(outs, -1) * share).sum(-1)

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        return self.rows(q, k, mask)

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        self._check(q, k, mask)
        _, address = self._addresses(q, mask)
        places, q, address = torch.arange(q.shape[2], device=q.device), q[:, heads], address[:, heads]
        asked = places[rows]
        part = mask.at(len(places), q, heads=heads, rows=rows)
        met = torch.stack([_meet(one[:, :, asked, None], one[:, :, None]) for one in address.unbind(2)]).any(0)
        scores = self.scores(q[:, :, asked], F.normalize(q, dim=-1)).masked_fill(asked[:, None] == places, LAST)
        return weighed(part.scores(scores).masked_fill(~met, -torch.inf))

    @staticmethod
    def _check(q: Tensor, k: Tensor, mask: Mask) -> None:  # noqa: ARG004
        if q.shape[-2] != k.shape[-2]:
            raise InputError(
                "hashing sorts all tokens at once, and takes no steps: write with another kernel, or without the cache."
            )


def _total(scores: Tensor) -> Tensor:
    """Log sum exp, and minus infinity where nothing is seen, with no gradient there."""
    nothing = (scores == -torch.inf).all(-1, keepdim=True)
    return scores.masked_fill(nothing, 0).logsumexp(-1, keepdim=True).masked_fill(nothing, -torch.inf)


def _meet(one: Tensor, other: Tensor) -> Tensor:
    """Whether a key's address is that of a query's bucket, in its chunk or in the one before."""
    return (one == other) | (one - other == int(2e6))


def _taken(x: Tensor, places: Tensor) -> Tensor:
    """(b h n d), and places (b h ...) -> (b h ... d); where there is none (-1), the first."""
    flat = places.clamp(min=0).flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, flat).unflatten(2, places.shape[2:])


def _inverse(places: Tensor, n: int) -> Tensor:
    """Where each token is among sorted ones (b h chunks size), (b h n)."""
    flat = places.flatten(2)
    spots = torch.arange(flat.shape[2], device=flat.device).expand_as(flat)
    room = torch.empty(*flat.shape[:2], n + 1, dtype=torch.long, device=flat.device)
    return room.scatter_(2, torch.where(flat < 0, n, flat), spots)[..., :n]
