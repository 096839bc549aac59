"""Attention among tokens that fall into the same buckets (Reformer, Kitaev et al. 2020)."""

from math import ceil, log
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor

from vitrail.core.kernels import Kernel, kernels, weighed
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError

DIGIT = 16  # values of a digit of a bucket, about
BASE = 2**31  # more than there are buckets
GONE = BASE - 1  # the bucket of what is not there
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
        """The bucket of each token in each round, (b h r n); of many buckets the number has digits, each a hash."""
        generator = torch.Generator().manual_seed(self.seed)
        bucket = torch.zeros((), dtype=torch.int32, device=q.device)
        with torch.no_grad():
            for count in self.digits(q.shape[-2]):
                turns = torch.randn(self.rounds, q.shape[-1], count // 2, generator=generator, dtype=torch.float32)
                turned = q.float()[:, :, None] @ turns.to(q.device)
                bucket = bucket * count + torch.cat([turned, -turned], -1).argmax(-1).int()
        return bucket

    def digits(self, n: int) -> list[int]:
        """How many values each digit of a bucket has: a bucket for each chunk of so many tokens, or as many as asked.

        With one digit the hashes of n tokens in n / chunk buckets would be quadratic again; the paper has two.
        """
        if self.buckets is not None:
            return [self.buckets]
        wanted = ceil(n / self.chunk)
        number = max(1, ceil(log(wanted, DIGIT)))
        return [max(2, 2 * round(wanted ** (1 / number) / 2))] * number

    def _addresses(self, q: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """The order of the tokens in each round, the place of each in it, and its bucket; all (b h r n)."""
        n = q.shape[-2]
        bucket = self.hashes(q)
        if present is not None:  # what is not there comes last
            bucket = bucket.masked_fill(~present[:, None, None], GONE)
        order = bucket.argsort(dim=-1, stable=True)
        rank = torch.empty_like(order).scatter_(-1, order, torch.arange(n, device=q.device).expand_as(order))
        return order, rank, bucket

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        self._check(q, k)
        if mask.bias is not None:
            return self.pattern(q, k, mask) @ v
        size = min(self.chunk, q.shape[-2])
        order, rank, bucket = self._addresses(q, mask.present)
        mine = _cut(_reordered(q[:, :, None], order), size)
        theirs = _with_before(F.normalize(mine, dim=-1))
        values = _with_before(_cut(_reordered(v[:, :, None], order), size))
        with torch.no_grad():
            bias = self._bias(order, rank, bucket, mask, size).to(q.dtype)
        scale = q.shape[-1] ** -0.5 if self.scale is None else self.scale
        scores = torch.baddbmm(*(x.flatten(0, 3) for x in (bias, mine, theirs.mT)), alpha=scale).view_as(bias)
        weights = scores.softmax(-1)
        # The log of the sum over a row, from its largest score and what that became: s - log softmax(s).
        top = scores.argmax(-1, keepdim=True)
        total = scores.gather(-1, top) - weights.gather(-1, top).log()
        read, total = (_reordered(x.flatten(3, 4), rank) for x in (weights @ values, total))
        z = (read * total.softmax(2)).sum(2)
        return z if mask.present is None else z * mask.present[:, None, :, None].to(z.dtype)

    def _bias(self, order: Tensor, rank: Tensor, bucket: Tensor, mask: Mask, size: int) -> Tensor:
        """What is added to the scores of each chunk: minus infinity where two do not meet, minus the log of how often
        they meet, and for a token's own score so much that it comes last; (b h r chunks size 2*size).
        """
        own = bucket.gather(3, order)
        keys = own.masked_fill(own == GONE, -1)
        seen = _cut(own, size, GONE)[..., None] == _with_before(_cut(keys, size, -1), -1)[..., None, :]
        if mask.causal or mask.window is not None:
            place = _cut(order.int(), size)
            away = place[..., None] - _with_before(place)[..., None, :]
            seen = seen & (away >= 0) if mask.causal else seen
            seen = seen & (away.abs() <= mask.window) if mask.window is not None else seen
        met = seen.to(torch.float32)
        address = _address(rank, bucket, size)
        for step in range(1, self.rounds):
            there = _cut(address.roll(step, 2).gather(3, order), size)
            met += _meet(there[..., None], _with_before(there)[..., None, :])
        bias = met.log_().neg_().masked_fill_(~seen, -torch.inf)
        bias.diagonal(size, -2, -1).fill_(LAST)
        return bias

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        return self.rows(q, k, mask)

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        self._check(q, k)
        _, rank, bucket = self._addresses(q, mask.present)
        address = _address(rank, bucket, min(self.chunk, q.shape[2]))[:, heads]
        places, q = torch.arange(q.shape[2], device=q.device), q[:, heads]
        asked = places[rows]
        part = mask.at(len(places), q, heads=heads, rows=rows)
        met = torch.stack([_meet(one[:, :, asked, None], one[:, :, None]) for one in address.unbind(2)]).any(0)
        scores = self.scores(q[:, :, asked], F.normalize(q, dim=-1)).masked_fill(asked[:, None] == places, LAST)
        return weighed(part.scores(scores).masked_fill(~met, -torch.inf))

    @staticmethod
    def _check(q: Tensor, k: Tensor) -> None:
        if q.shape[-2] != k.shape[-2]:
            raise InputError(
                "hashing sorts all tokens at once, and takes no steps: write with another kernel, or without the cache."
            )


def _address(rank: Tensor, bucket: Tensor, size: int) -> Tensor:
    """One number that says in which chunk of a round a token is, and of which bucket."""
    return rank.div(size, rounding_mode="floor") * BASE + bucket


def _meet(one: Tensor, other: Tensor) -> Tensor:
    """Whether a key's address is that of a query's bucket, in its chunk or in the one before."""
    away = one - other
    return (away == 0) | (away == BASE)


def _reordered(x: Tensor, order: Tensor) -> Tensor:
    """(b h 1|r m e), and places (b h r n) -> (b h r n e)."""
    first = x.shape[3] * torch.arange(x.shape[:3].numel(), device=x.device).view(*x.shape[:3], 1)
    return x.flatten(0, 3).index_select(0, (order + first).flatten()).unflatten(0, order.shape)


def _cut(x: Tensor, size: int, value: float = 0) -> Tensor:
    """(b h r n ...) -> (b h r chunks size ...)."""
    over = -x.shape[3] % size
    return F.pad(x, (*(0, 0) * (x.ndim - 4), 0, over), value=value).unflatten(3, (-1, size))


def _with_before(x: Tensor, value: float = 0) -> Tensor:
    """Each chunk behind the one before it: (b h r chunks size ...) -> (b h r chunks 2*size ...)."""
    return torch.cat([F.pad(x, (*(0, 0) * (x.ndim - 4), 1, 0), value=value)[:, :, :, :-1], x], 4)
