"""Labelled pictures, decoded once and kept in memory, or in a file that the system maps into it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.machine import check_room

NUMBERS = 2**24  # that are in memory at a time
GREY = (0.299, 0.587, 0.114)  # of red, green and blue (ITU-R 601)


@dataclass(frozen=True, eq=False)
class Pictures:
    """Some of a store of pictures: their rows in it, their labels, what the labels stand for, where each came from.

    The store (m c H W) holds bytes, and is shared, not copied, by what is chosen from it.
    """

    store: Tensor
    rows: Tensor
    labels: Tensor
    names: tuple[str, ...]
    files: Sequence[str]

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, names: Sequence[str], prefix: str) -> "Pictures":
        """All of a store."""
        files = [f"{prefix} {number}" for number in range(len(labels))]
        return cls(images, torch.arange(len(labels)), labels, tuple(names), files)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Tensor) -> "Pictures":
        files = [self.files[number] for number in index.tolist()]
        return Pictures(self.store, self.rows[index], self.labels[index], self.names, files)

    @cached_property
    def digests(self) -> list[str]:
        """What tells each picture from others, pixel for pixel."""
        return [blake2b(self.store[row].numpy().tobytes(), digest_size=8).hexdigest() for row in self.rows]

    @property
    def images(self) -> Tensor:
        """All of them, (m c H W)."""
        return self.store[self.rows]

    def present(self) -> "Pictures":
        """The same pictures, with the names of those classes alone that they have."""
        return self.among([self.names[number] for number in self.labels.unique().tolist()])

    def among(self, names: Sequence[str]) -> "Pictures":
        """Those of classes with these names, numbered by them."""
        numbers = {name: number for number, name in enumerate(names)}
        known = torch.tensor([numbers.get(name, -1) for name in self.names])[self.labels]
        kept = (known >= 0).nonzero()[:, 0]
        return replace(self[kept], labels=known[kept], names=tuple(names))

    def split(self, fraction: float, seed: int) -> tuple["Pictures", "Pictures"]:
        """The pictures without a fraction of each class, and that fraction, at least one; the same for a seed."""
        kept, held = split_rows(self.labels.tolist(), self.names, fraction, seed)
        return self[torch.tensor(kept)], self[torch.tensor(held)]

    def some(self, fraction: float, seed: int) -> "Pictures":
        """A fraction of each class, at least one, drawn by a seed; what is drawn for less is among what is for more."""
        if fraction == 1:
            return self
        draw = np.random.default_rng(seed)
        kept = []
        for number in range(len(self.names)):
            own = (self.labels == number).nonzero()[:, 0].numpy()
            kept.append(draw.permutation(own)[: part_of(len(own), fraction)])
        return self[torch.from_numpy(np.sort(np.concatenate(kept)))]

    def fitted(self, size: tuple[int, int], channels: int) -> "Pictures":
        """The same pictures at another size, or with other channels."""
        if (self.store.shape[1], *self.store.shape[2:]) == (channels, *size):
            return self

        what = f"{len(self):,} pictures of {size[0]} x {size[1]} pixels"
        check_room(what, len(self) * channels * size[0] * size[1], "choose a smaller model.image")
        height, width = self.store.shape[2:]
        scale = max(size[0] / height, size[1] / width)  # the middle, as large as the shape allows, as of a file
        inner = (round(size[0] / scale), round(size[1] / scale))
        top, left = (height - inner[0]) // 2, (width - inner[1]) // 2

        def fit(images: Tensor) -> Tensor:
            middle = images[..., top : top + inner[0], left : left + inner[1]].float()
            if channels != images.shape[1]:
                if images.shape[1] == len(GREY):
                    middle = (middle * middle.new_tensor(GREY).view(-1, 1, 1)).sum(1, keepdim=True)
                middle = middle.expand(-1, channels, -1, -1)
            resized = F.interpolate(middle, size, mode="bicubic", antialias=True)
            return resized.round().clamp(0, 255).to(torch.uint8)

        store = torch.cat([fit(self.store[rows]) for rows in self._some()])
        return replace(self, store=store, rows=torch.arange(len(self)))

    def _some(self) -> Sequence[Tensor]:
        """The rows, so many at a time that their numbers take no great part of the memory."""
        return self.rows.split(max(1, min(1024, NUMBERS // self.store[0].numel())))

    def statistics(self) -> Normalise:
        """Mean and standard deviation of each channel, of values from 0 to 1."""
        channels, count = self.store.shape[1], len(self) * self.store[0, 0].numel()
        first, second = torch.zeros(2, channels, dtype=torch.float64)
        for rows in self._some():
            values = self.store[rows].double() / 255
            first += values.sum((0, 2, 3))
            second += values.square().sum((0, 2, 3))
        mean = first / count
        std = (second / count - mean.square()).clamp(min=0).sqrt().clamp(min=1e-3)
        return Normalise(tuple(mean.tolist()), tuple(std.tolist()))


def split_rows(labels: list[int], names: Sequence[str], fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Rows without a fraction of each class, and that fraction, at least one; the same for a seed."""
    total, counts = len(labels), np.bincount(labels, minlength=len(names))
    if counts.min() < 2:  # noqa: PLR2004
        name = names[int(counts.argmin())]
        raise InputError(f"class {name!r} has {int(counts.min())} pictures, and needs one to train and one to test on.")
    if not len(names) <= math.ceil(fraction * total) <= total - len(names):
        raise InputError(
            f"a fraction of {fraction} of {total} pictures cannot hold one of each of {len(names)} classes "
            f"and leave one; choose another data.test."
        )
    from sklearn.model_selection import train_test_split  # noqa: PLC0415  # a second, for those who split

    kept, held = train_test_split(range(total), test_size=fraction, random_state=seed, stratify=labels, shuffle=True)
    for without, other in ((held, kept), (kept, held)):  # a small class may be in one of them alone
        for label in set(range(len(names))) - {labels[row] for row in without}:
            one = next(row for row in other if labels[row] == label)
            other.remove(one)
            without.append(one)
    return kept, held


def unit(images: Tensor) -> Tensor:
    """Bytes to numbers from 0 to 1."""
    return images.float() / 255


def part_of(count: int, fraction: float) -> int:
    """How many a fraction of a class is: at least one, where there is one."""
    return min(count, max(1, round(fraction * count)))
