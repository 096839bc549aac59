"""The files of MNIST and its kin: a magic number, the lengths of the axes, and bytes; plain or gzip."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import InputError

_NAMES = {"train": ("train",), "validation": ("val",), "test": ("t10k", "test")}


def idx_parts(folder: Path) -> dict[str, tuple[Path, Path]]:
    """The pictures and labels of each part that a folder holds: {"train": (images, labels), "test": ...}."""
    parts = {}
    for part, names in _NAMES.items():
        for name in names:
            pair = [_one(folder, name, what) for what in ("images", "labels")]
            if part not in parts and pair[0] and pair[1]:
                parts[part] = (pair[0], pair[1])
    return parts


def read_pair(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Pictures (m 1 H W) and labels (m)."""
    pixels, classes = read_idx(images, axes=3), read_idx(labels, axes=1)
    if len(pixels) != len(classes):
        raise InputError(
            f"{str(images)!r} holds {len(pixels)} pictures and {str(labels)!r} {len(classes)} labels; "
            f"take both from one source."
        )
    return pixels[:, None], classes.long()


def read_idx(path: Path, axes: int) -> Tensor:
    """The bytes of an idx file, by its axes."""
    try:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except FileNotFoundError:
        raise InputError(f"{str(path)!r} is not there; check the path.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{str(path)!r} is cut short or damaged; take it from its source again.") from None
    start = 4 + 4 * axes
    if len(data) < start or data[:2] != b"\0\0" or data[2] != 8 or data[3] != axes:  # noqa: PLR2004
        raise InputError(f"{str(path)!r} is not an idx file of bytes with {axes} axes; take it from its source again.")
    shape = np.frombuffer(data, ">u4", axes, 4).astype(int)
    if len(data) - start != shape.prod() or not shape.prod():
        raise InputError(
            f"{str(path)!r} should hold {' x '.join(map(str, shape))} bytes and holds {len(data) - start}; "
            f"take it from its source again."
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy())


def _one(folder: Path, name: str, what: str) -> Path | None:
    hits = sorted(file for pattern in ("ubyte", "ubyte.gz") for file in folder.glob(f"{name}*{what}*{pattern}"))
    return hits[0] if hits else None
