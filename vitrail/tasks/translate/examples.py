"""Pairs of sentences as they are learned from: tokens, in batches of about as many, of about one length each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batch, Examples, Rows
from vitrail.data.batches import cut_evenly, padded
from vitrail.data.vocabulary import BEGIN, MASK, PAD
from vitrail.decode.parallel import room
from vitrail.families.seq2seq.config import Seq2SeqConfig

GROUPS = (1, 2, 4, 8, 16, 32)  # of targets of about one length, in each of which sources are sorted: what is tried


@dataclass(eq=False)
class TokenPairs(Examples):
    """Sources and targets as numbers of tokens, each with END at its end.

    Inputs are sources (b s) and targets as the decoder is given them (b t); targets are what it should say (b t), PAD
    where nothing is asked.
    """

    sources: list[list[int]]
    targets: list[list[int]]

    def __len__(self) -> int:
        return len(self.sources)

    @cached_property
    def lengths(self) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Tokens of each source and target, (n 2)."""
        return np.array([[len(one) for one in side] for side in (self.sources, self.targets)]).T.copy()

    def count(self, rows: Rows) -> int:
        return int(self.lengths[rows, 1].sum())

    def per_epoch(self, size: int) -> int:
        """Batches of so many tokens of targets on average."""
        return min(len(self), -(-int(self.lengths[:, 1].sum()) // size))

    def updates(self, size: int, random: np.random.Generator, least: int = 1) -> list[Rows]:
        """Sorted by the targets' lengths into groups, in each by the sources'; cut where there are tokens enough."""
        noise = random.random((len(self), 2))
        batches = self._cut(self._order(self._groups(size), noise), self.per_epoch(size), least)
        return [batches[number] for number in random.permutation(len(batches))]

    def _groups(self, size: int) -> int:
        """The number of groups with which there is the least padding."""
        even, count = np.full((len(self), 2), 0.5), self.per_epoch(size)
        return min(GROUPS, key=lambda groups: self.with_padding(self._cut(self._order(groups, even), count)))

    def _order(self, groups: int, noise: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> Rows:
        source, target = (self.lengths + noise).T
        order = np.argsort(target)
        group = np.empty(len(self), dtype=np.int64)
        group[order] = np.arange(len(self)) * groups // len(self)
        return np.lexsort((np.where(group % 2, -source, source), group))

    def _cut(self, order: Rows, count: int, least: int = 1) -> list[Rows]:
        return cut_evenly(order, self.lengths[:, 1], count, least)

    def with_padding(self, batches: Sequence[Rows]) -> int:
        """Tokens of sources and targets, with the padding."""
        return sum(len(rows) * int(self.lengths[rows].max(0).sum()) for rows in batches)

    def batch(self, rows: Rows, device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor, int]:
        sources, targets = self._tokens(rows)
        given = torch.cat([torch.full((len(rows), 1), BEGIN), targets[:, :-1]], dim=1)
        return (sources.to(device), given.to(device)), targets.to(device), self.count(rows)

    def _tokens(self, rows: Rows) -> tuple[Tensor, Tensor]:
        sources, targets = (padded([side[row] for row in rows], PAD) for side in (self.sources, self.targets))
        return sources, targets


class MaskedPairs(TokenPairs):
    """For a parallel model: of each target as many tokens as are drawn, from one to all, masked, and to be said.

    Without END, as the length is predicted. The mean over all draws is of half of (tokens + 1), which is the count.
    """

    def batch(self, rows: Rows, device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor, int]:
        sources = padded([self.sources[row] for row in rows], PAD)
        targets = padded([self.targets[row][:-1] for row in rows], PAD)
        counts = (targets != PAD).sum(1)
        masked = (torch.rand(len(rows)) * counts).long() + 1
        order = torch.rand(targets.shape).masked_fill(targets == PAD, 2).argsort(1).argsort(1)
        hidden = order < masked[:, None]
        given, asked = targets.masked_fill(hidden, MASK), targets.masked_fill(~hidden, PAD)
        return (sources.to(device), given.to(device)), asked.to(device), self.count(rows)


@dataclass(eq=False)
class OpenPairs(TokenPairs):
    """For a parallel model that predicts no length: room enough, all masked, for targets and END to be said in."""

    config: Seq2SeqConfig

    def batch(self, rows: Rows, device: torch.device) -> tuple[tuple[Tensor, Tensor], Tensor, int]:
        sources, targets = self._tokens(rows)
        lengths = torch.maximum(room((sources != PAD).sum(1), self.config), (targets != PAD).sum(1))
        most = int(lengths.max())
        given = torch.where(torch.arange(most) < lengths[:, None], MASK, PAD)
        asked = F.pad(targets, (0, most - targets.shape[1]))
        return (sources.to(device), given.to(device)), asked.to(device), self.count(rows)


def translate(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """-sum_t log p(y_t | y_<t, x) / count, with labels smoothed (Vaswani et al. 2017, section 5.4)."""
    asked = batch.targets != PAD
    logits = model(batch.inputs, rows=asked)
    total = F.cross_entropy(logits, batch.targets[asked], label_smoothing=smoothing, reduction="sum")
    return total / batch.count


def fill(model: nn.Module, batch: Batch, lengths: int, smoothing: float = 0.0) -> Tensor:
    """-2 sum over what is masked log p(y_t | the rest of y, x) / count, and the loss of the lengths."""
    asked, (sources, given) = batch.targets != PAD, batch.inputs
    answers = model(batch.inputs, rows=asked)
    total = F.cross_entropy(answers.logits, batch.targets[asked], label_smoothing=smoothing, reduction="sum")
    longer = (given != PAD).sum(1) - (sources != PAD).sum(1) + 1  # sources have an END
    length = F.cross_entropy(answers.lengths, longer.clamp(-lengths, lengths) + lengths, reduction="sum")
    return (2 * total + length) / batch.count
