"""Vectors as bits, and what is near to one among many of them.

Each bit says on which side of a plane a vector lies (Charikar 2002): two vectors differ in as many of the bits as the
angle between them is of half a turn, so that the number of bits in which they differ orders neighbours as the angle
does, the better the more bits there are. The planes go through the mean of the vectors that were made bits first, and
are perpendicular to each other, as many as there are dimensions, then to each other again.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from vitrail.errors import InputError

PART = 4096  # vectors that are compared at a time


@dataclass(frozen=True, eq=False)
class Planes:
    """Planes through a point: the mean of some vectors (w), and how many there are, drawn by a seed."""

    mean: Any
    bits: int
    seed: int = 0

    @classmethod
    def of(cls, vectors: Any, bits: int) -> "Planes":
        """Those by which vectors (m w), and others of their kind, are made bits."""
        if bits < 8 or bits % 8:  # noqa: PLR2004
            raise InputError(f"{bits} bits do not fit; they should be a multiple of 8, such as 1024.")
        if len(vectors) < 2:  # noqa: PLR2004
            raise InputError("one vector by itself has no side of its mean to be on; give more, or leave bits out.")
        return cls(np.asarray(vectors, dtype=np.float32).mean(0), bits)

    @cached_property
    def normals(self) -> Any:
        """What they are perpendicular to, (w bits)."""
        width, draw = len(self.mean), np.random.default_rng(self.seed)
        some = [np.linalg.qr(draw.standard_normal((width, width)))[0] for _ in range(-(-self.bits // width))]
        return np.concatenate(some, axis=1)[:, : self.bits].astype(np.float32)

    def encode(self, vectors: Any) -> Any:
        """Vectors (m w) as bytes (m bits/8)."""
        return np.packbits((np.asarray(vectors, dtype=np.float32) - self.mean) @ self.normals > 0, axis=1)


def differing(one: Any, others: Any) -> Any:
    """In how many bits codes (k b) differ from others (m b): (k m)."""
    rows = [
        np.concatenate([np.bitwise_count(code ^ others[at : at + PART]).sum(1) for at in range(0, len(others), PART)])
        for code in one
    ]
    return np.stack(rows).astype(np.int64)


def near(distances: Any, count: int) -> tuple[Any, Any]:
    """The nearest of each row (k m): which they are, and how far, (k count) each, the nearest first."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(distances, order, axis=1)


def angles(vectors: Any, others: Any) -> Any:
    """Between vectors (k w) and others (m w), in parts of half a turn."""
    one, other = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (vectors, others))
    return np.arccos(np.clip(one @ other.T, -1, 1)) / np.pi
