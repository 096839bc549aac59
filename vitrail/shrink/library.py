"""Files of vectors that ``vitrail embed`` writes, as numbers or as bits, and what is near to a vector in one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from vitrail.errors import AGAIN, InputError
from vitrail.files import make_folder, whole
from vitrail.shrink.binary import Planes, angles, differing, near

NAMES = ("files", "lines")  # what vectors are of


@dataclass(frozen=True, eq=False)
class Library:
    """Vectors by the names of what they are of: numbers (m w), or bits and the planes that made them."""

    names: list[str]
    features: Any = None
    codes: Any = None
    planes: Planes | None = None
    kind: str = "files"
    more: dict[str, Any] = field(default_factory=dict)  # arrays that are written beside them

    @classmethod
    def of(
        cls, names: list[str], vectors: Any, kind: str, bits: int | None = None, more: dict[str, Any] | None = None
    ) -> "Library":
        """Vectors as they are, or as so many bits."""
        if bits is None:
            return cls(names, vectors, kind=kind, more=more or {})
        planes = Planes.of(vectors, bits)
        return cls(names, codes=planes.encode(vectors), planes=planes, kind=kind, more=more or {})

    def write(self, path: Path) -> None:
        """An NPZ file."""
        given: dict[str, Any] = {self.kind: np.array(self.names), **self.more}
        if self.planes is None:
            given["features"] = self.features
        else:
            given |= {"codes": self.codes, "mean": self.planes.mean, "seed": np.array(self.planes.seed)}
        make_folder(path.parent)
        with whole(path) as aside, aside.open("wb") as file:
            np.savez(file, **given)

    @classmethod
    def read(cls, path: Path) -> "Library":
        """What ``write`` wrote."""
        if not path.is_file():
            raise InputError(f"{str(path)!r} is not there; write it with `vitrail embed RUN INPUT --out FILE.npz`.")
        wrong = InputError(f"{str(path)!r} is no file of vectors that `vitrail embed` wrote; {AGAIN}.")
        try:
            library = cls._read(path)
        except (OSError, ValueError, LookupError, StopIteration, TypeError, AttributeError, EOFError, BadZipFile):
            raise wrong from None
        stored = library.codes if library.features is None else library.features
        if stored.ndim != 2 or len(stored) != len(library.names):  # noqa: PLR2004
            raise wrong
        return library

    @classmethod
    def _read(cls, path: Path) -> "Library":
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        kind = next(name for name in NAMES if name in held)
        names = [str(name) for name in held[kind]]
        if "codes" not in held:
            return cls(names, held["features"], kind=kind)
        planes = Planes(held["mean"].astype(np.float32), 8 * held["codes"].shape[1], int(held["seed"]))
        return cls(names, codes=held["codes"], planes=planes, kind=kind)

    def __len__(self) -> int:
        return len(self.codes if self.features is None else self.features)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return len(self.planes.mean) if self.planes is not None else int(self.features.shape[1])

    def nearest(self, vectors: Any, count: int) -> list[list[tuple[str, float]]]:
        """What is nearest to each vector (k w), and how near: the cosine; as bits tell it, that of what vectors have
        beyond their mean.
        """
        if vectors.shape[1] != self.width:
            raise InputError(
                f"the model gives vectors of {vectors.shape[1]} numbers, and the file has them of {self.width}; take "
                f"the model that it was written with."
            )
        if self.planes is None:
            far = angles(vectors, self.features)
        else:
            far = differing(self.planes.encode(vectors), self.codes) / self.planes.bits
        order, turns = near(far, count)
        return [
            [(self.names[at], float(np.cos(np.pi * turn))) for at, turn in zip(row, some, strict=True)]
            for row, some in zip(order, turns, strict=True)
        ]
