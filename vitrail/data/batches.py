"""Examples in batches, cut in micro-batches: what is random in one follows from seed, step and its number alone.

So a run that is taken up again at some step goes on as it would have, with nothing to remember but the step; and any
number of processes, each with some of the micro-batches, draw what one process would that takes all of them in turn.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from vitrail.errors import InputError

Rows: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
BITS = 1 / math.log(2)  # in a nat
UNASKED = -100  # where a target asks nothing, as PyTorch has it
_ORDER, _STEP = 0, 1  # what a stream of random numbers is for


class Examples(ABC):
    """What is learned from, by rows."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, rows: Rows, device: torch.device) -> tuple[Any, Any, int]:
        """Inputs and targets as the objective takes them, and the count that the loss is an average over.

        All that is random comes from torch's own generator, which was seeded for this micro-batch.
        """

    def count(self, rows: Rows) -> int:
        """The count that ``batch`` will give for these rows, without making it: examples, or their tokens."""
        return len(rows)

    def per_epoch(self, size: int) -> int:
        """Updates in an epoch: all examples in batches of at most this size."""
        return -(-len(self) // size)

    def updates(self, size: int, random: np.random.Generator, least: int = 1) -> list[Rows]:  # noqa: ARG002
        """All rows once, in the batches of an epoch, as even as they can be; so many rows in each at least."""
        return np.array_split(random.permutation(len(self)), self.per_epoch(size))


@dataclass(frozen=True, eq=False)
class Batch:
    """Inputs and targets, and the count that their loss is an average over.

    ``whole`` is that count of the update that this is a micro-batch of, and ``last`` says that none follows.
    """

    inputs: Any
    targets: Any
    count: int
    whole: int = 0
    last: bool = True

    @property
    def weight(self) -> float:
        """The fraction of the update that is in this micro-batch: by this its loss counts."""
        return self.count / self.whole if self.whole else 1.0


@dataclass(frozen=True, eq=False)
class Batches:
    """The updates of a training from any step on, each as the micro-batches that this process takes."""

    examples: Examples
    size: int
    epochs: int
    seed: int
    parts: int  # micro-batches of an update, over all processes
    mine: range  # those of them that this process takes
    device: torch.device

    @property
    def per_epoch(self) -> int:
        """Updates in an epoch."""
        return self.examples.per_epoch(self.size)

    def __len__(self) -> int:
        return self.epochs * self.per_epoch

    def starting(self, step: int) -> Iterator[Iterator[Batch]]:
        """The updates from a step on."""
        for epoch in range(step // self.per_epoch, self.epochs):
            first = epoch * self.per_epoch
            rows = self.examples.updates(self.size, np.random.default_rng([self.seed, _ORDER, epoch]), self.parts)
            for number in range(max(step, first), first + self.per_epoch):
                yield self.update(number, rows[number - first])

    def update(self, step: int, rows: Rows) -> Iterator[Batch]:
        """The micro-batches of one update that are this process's."""
        parts, whole = np.array_split(rows, self.parts), self.examples.count(rows)
        for part in self.mine:
            _seed(stream(self.seed, _STEP, step, part), self.device)
            inputs, targets, count = self.examples.batch(parts[part], self.device)
            if count != self.examples.count(parts[part]):
                raise ValueError(f"batch() gave a count of {count}, and count() {self.examples.count(parts[part])}")
            if not count:
                raise InputError(
                    f"a micro-batch of {len(parts[part])} examples has nothing that its loss could be an average over; "
                    f"choose a larger train.batch, or a smaller train.accumulate."
                )
            yield Batch(inputs, targets, count, whole, last=part == self.mine[-1])


def cut_evenly(order: Rows, sizes: Rows, count: int, least: int = 1) -> list[Rows]:
    """Rows in an order, in so many groups of about the same size together; so many rows in each at least."""
    ends = sizes[order].cumsum()
    places = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count)
    before = least * np.arange(1, count)  # rows that come before each cut, at least
    places = np.maximum.accumulate(np.maximum(places - before, 0)) + before
    places = np.minimum(places, len(order) - least * count + before)
    return np.split(order, places)


def padded(sequences: Sequence[Sequence[int]], pad: int) -> torch.Tensor:
    """Sequences of tokens side by side, (b n), with padding behind the shorter ones."""
    most = max(map(len, sequences))
    return torch.tensor([[*one, *[pad] * (most - len(one))] for one in sequences], dtype=torch.long)


def stream(*numbers: int) -> int:
    """A seed mixed from several numbers, so that streams next to each other have nothing in common."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def _seed(seed: int, device: torch.device) -> None:
    """As ``torch.manual_seed``, which prepares for devices that are not used, and takes longer than a small batch."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)
