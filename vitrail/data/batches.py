"""Pictures in batches, cut in shares: what is random in a share follows from the seed, the step and the share alone.

So a run that is taken up again at some step goes on as it would have, with nothing to remember but the step; and any
number of processes, each with some of the shares, draw what one process would that takes all of them in turn.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.data.pictures import Normalise, Pictures, unit

Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_ORDER, _STEP = 0, 1  # what a stream of random numbers is for


@dataclass(frozen=True, eq=False)
class Batch:
    """Pictures as a model takes them (b c H W), and labels (b), or shares of classes (b classes).

    ``whole`` is how many pictures the update has that this is a share of, and ``last`` says that no share follows.
    """

    images: Tensor
    labels: Tensor
    whole: int = 0
    last: bool = True

    @property
    def weight(self) -> float:
        """The part of the update's pictures that are in this share."""
        return len(self.images) / self.whole if self.whole else 1.0


@dataclass(frozen=True, eq=False)
class Batches:
    """The updates of a training from any step on, each as the shares that this process takes."""

    pictures: Pictures
    size: int
    epochs: int
    seed: int
    shares: int
    mine: range
    change: Change
    normalise: Normalise
    device: torch.device

    @property
    def per_epoch(self) -> int:
        """Updates in an epoch: all pictures in batches of at most this size, as even as they can be."""
        return -(-len(self.pictures) // self.size)

    def __len__(self) -> int:
        return self.epochs * self.per_epoch

    def starting(self, step: int) -> Iterator[Iterator[Batch]]:
        """The updates from a step on."""
        for epoch in range(step // self.per_epoch, self.epochs):
            first = epoch * self.per_epoch
            rows = np.array_split(self.order(epoch), self.per_epoch)
            for number in range(max(step, first), first + self.per_epoch):
                yield self.update(number, rows[number - first])

    def order(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """All pictures once, in an order of this epoch's own."""
        return np.random.default_rng([self.seed, _ORDER, epoch]).permutation(len(self.pictures))

    def update(self, step: int, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Batch]:
        """The shares of one update that are this process's."""
        parts = np.array_split(rows, self.shares)
        for share in self.mine:
            index = torch.from_numpy(parts[share])
            images = unit(self.pictures.store[self.pictures.rows[index]].to(self.device))
            labels = self.pictures.labels[index].to(self.device)
            _seed(stream(self.seed, _STEP, step, share), self.device)
            images, labels = self.change(images, labels)
            yield Batch(self.normalise(images), labels, len(rows), last=share == self.mine[-1])


def stream(*numbers: int) -> int:
    """A seed mixed from several numbers, so that streams next to each other have nothing in common."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def _seed(seed: int, device: torch.device) -> None:
    """As ``torch.manual_seed``, which prepares for devices that are not used, and takes longer than a small batch."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)
