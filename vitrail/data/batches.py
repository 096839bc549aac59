"""Pictures in batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.data.pictures import Pictures


@dataclass(frozen=True, eq=False)
class Batch:
    """Pictures as a model takes them, (b c H W), and their labels, (b)."""

    images: Tensor
    labels: Tensor


def batches(pictures: Pictures, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """One epoch: all pictures once, in random order."""
    for index in torch.randperm(len(pictures), generator=generator).split(size):
        chosen = pictures[index]
        yield Batch(chosen.images, chosen.labels)
