"""Pictures that look almost the same: copies in another format or size, frames of one film."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.data.pictures import Pictures

SIDE = 32  # pixels of what is compared
ALIKE = 0.995  # correlation from which pictures are almost the same (bench/README.md)
FLAT = 3.0  # of 255, the spread below which there is nothing to compare
MOST = 20_000  # pictures of a part beyond which it would take minutes
PIXELS = 2**24  # that are looked at together


def near_duplicates(pictures: Pictures, others: Pictures) -> list[tuple[int, int, float]]:
    """Pictures that are almost the same as one of the others: both numbers, and how much alike; not the very same ones,
    whose pixels are equal.
    """
    if max(len(pictures), len(others)) > MOST or not len(others):
        return []
    known, pairs = torch.cat(list(_thumbnails(others))), list[tuple[int, int, float]]()
    first = 0
    for some in _thumbnails(pictures):
        alike, other = (some @ known.T).max(1)
        for row in (alike >= ALIKE).nonzero()[:, 0].tolist():
            pairs.append((first + row, int(other[row]), float(alike[row])))
        first += len(some)
    return [
        pair
        for pair in sorted(pairs, key=lambda pair: -pair[2])
        if not torch.equal(pictures.store[pictures.rows[pair[0]]], others.store[others.rows[pair[1]]])
    ]


def _thumbnails(pictures: Pictures) -> Iterator[Tensor]:
    """Each picture as a vector of length 1 (b n), of zeros where it is flat."""
    for rows in pictures.rows.split(max(1, PIXELS // pictures.store[0].numel())):
        small = F.adaptive_avg_pool2d(pictures.store[rows].float(), SIDE)
        small = (small - small.mean((2, 3), keepdim=True)).flatten(1)
        size = small.norm(dim=1, keepdim=True)
        flat = size <= FLAT * small.shape[1] ** 0.5
        yield (small / size.clamp(min=1e-6)).masked_fill(flat, 0.0)
