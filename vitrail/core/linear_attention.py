"""Attention whose weights are products, so that keys and values are summed once: linear, and of low rank."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from vitrail.core.kernels import Kernel, attend, kernels
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError

CHUNK = 128  # tokens of a causal sequence that are compared pair by pair


def _as_given(device: str) -> AbstractContextManager[Any]:
    """Numbers stay of the kind they are, where a device would have them in another: one without memory has none."""
    known = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if known else nullcontext()


@kernels.add("linear")
class Linear(Kernel):
    """phi(q) phi(k)^T v / phi(q) sum phi(k), phi(x) = elu(x) + 1 (Katharopoulos et al. 2020).

    Sums over keys are made once, or along the sequence where a mask is causal: chunk by chunk, in float32.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        if mask.window is not None or mask.bias is not None:
            return self.pattern(q, k, mask) @ v
        kind = v.dtype
        with _as_given(q.device.type):
            q, k, v = (x if x.dtype == torch.float64 else x.float() for x in (q, k, v))
            q, k = _features(q), _features(k)
            if mask.present is not None:
                k = k * mask.present[:, None, :, None]
            z = self._causal(q, k, v) if mask.causal else _divided(q @ (k.mT @ v), q @ k.sum(2)[..., None])
        return z.to(kind)

    def _causal(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each query reads what was summed before its chunk, and its chunk pair by pair."""
        queries, keys = q.shape[-2], k.shape[-2]
        before = keys - queries  # keys that all queries see, and more
        state = k[:, :, : max(0, before)].mT @ v[:, :, : max(0, before)]
        total = k[:, :, : max(0, before)].sum(2)
        k, v = k[:, :, max(0, before) :], v[:, :, max(0, before) :]
        skipped = max(0, -before)  # queries that come before all keys
        parts = [q.new_zeros(*q.shape[:2], skipped, v.shape[-1])] if skipped else []
        q = q[:, :, skipped:]
        for first in range(0, q.shape[-2], CHUNK):
            some = slice(first, first + CHUNK)
            scores = (q[:, :, some] @ k[:, :, some].mT).tril()
            read = q[:, :, some] @ state + scores @ v[:, :, some]
            parts.append(_divided(read, q[:, :, some] @ total[..., None] + scores.sum(-1, keepdim=True)))
            state, total = state + k[:, :, some].mT @ v[:, :, some], total + k[:, :, some].sum(2)
        return torch.cat(parts, 2)

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        if mask.bias is not None:
            bias = mask.bias.masked_fill(mask.bias == -torch.inf, 0)
            if bool(bias.any()):
                raise InputError("linear attention has no scores that a bias could be added to; choose another kernel.")
        scores = mask.weights(_features(q) @ _features(k).mT)
        return _divided(scores, scores.sum(-1, keepdim=True))


def _features(x: Tensor) -> Tensor:
    return F.elu(x) + 1


def _divided(read: Tensor, total: Tensor) -> Tensor:
    """A query that may see nothing gives 0."""
    return read / total.masked_fill(total == 0, 1)


@kernels.add("lowrank")
class LowRank(Kernel):
    """softmax(q (E k)^T / sqrt(d)) F v: keys and values as ``rank`` learned sums over at most ``length`` places
    (Linformer, Wang et al. 2020).
    """

    rowwise: ClassVar[bool] = False
    crosses: ClassVar[bool] = False
    causal: ClassVar[bool] = False
    bare: ClassVar[bool] = False

    def __init__(self, rank: PositiveInt = 64, length: PositiveInt = 1024, scale: PositiveFloat | None = None) -> None:
        super().__init__(scale)
        self.rank, self.length = rank, length
        self.of_keys, self.of_values = (nn.Parameter(torch.randn(rank, length) * length**-0.5) for _ in range(2))

    def _sums(self, keys: int, mask: Mask) -> tuple[Tensor, Tensor]:
        """E and F of so many keys, (b 1 rank j) or (rank j)."""
        if mask.causal or mask.window is not None or mask.bias is not None:
            raise InputError(
                "low-rank attention mixes all places, and knows no order and no bias; choose another kernel."
            )
        if keys > self.length:
            raise InputError(f"{keys:,} tokens are more than kernel.length={self.length:,}; choose a larger one.")
        sums = self.of_keys[:, :keys], self.of_values[:, :keys]
        if mask.present is None:
            return sums
        there = mask.present[:, None, None]
        return sums[0] * there, sums[1] * there

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        e, f = self._sums(k.shape[-2], mask)
        return attend(q, e.to(k.dtype) @ k, f.to(v.dtype) @ v, scale=self.scale)

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        e, f = self._sums(k.shape[-2], mask)
        return self.scores(q, e.to(k.dtype) @ k).softmax(-1) @ f.to(k.dtype)

    def rows(self, q: Tensor, k: Tensor, mask: Mask, heads: Any = slice(None), rows: Any = slice(None)) -> Tensor:
        return self.pattern(q[:, heads][:, :, rows], k[:, heads], mask)
