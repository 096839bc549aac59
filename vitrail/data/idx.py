"""The files of MNIST and its kin: a magic number, the lengths of the axes, and bytes; plain or gzip."""

import gzip
import zlib
from io import BufferedIOBase
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vitrail.errors import AGAIN, InputError

SMALL, SPREAD = 2**26, 100  # bytes that any gzip file may unpack to, and how many times its size a larger one may
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
        with path.open("rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if zipped else path.open("rb") as file:
            return torch.from_numpy(_read(file, path, axes, zipped=zipped))
    except FileNotFoundError:
        raise InputError(f"{str(path)!r} is not there; check the path.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{str(path)!r} is cut short or damaged; {AGAIN}.") from None


def _read(file: BufferedIOBase, path: Path, axes: int, *, zipped: bool) -> NDArray[np.uint8]:
    """What a file says it holds, if that can be: then memory is taken for it, and for no more."""
    start = file.read(4 + 4 * axes)
    if len(start) < 4 + 4 * axes or start[:3] != b"\0\0\x08" or start[3] != axes:
        raise InputError(f"{str(path)!r} is not an idx file of bytes with {axes} axes; {AGAIN}.")
    shape = [int(side) for side in np.frombuffer(start, ">u4", axes, 4)]
    count, size = prod(shape), path.stat().st_size
    holds = size - len(start)
    if zipped and count > max(SMALL, SPREAD * size):
        raise InputError(f"{str(path)!r} unpacks to {count / size:,.0f} times its size, as no pictures do; {AGAIN}.")
    if count and (zipped or count == holds):
        data = np.empty(count, np.uint8)
        room, done = memoryview(data.data), 0
        while done < count and (got := file.readinto(room[done:])):
            done += got
        holds = done + len(file.read(1))
    if not count or holds != count:
        sides = " x ".join(map(str, shape))
        raise InputError(
            f"{str(path)!r} should hold {sides} bytes and holds {'more' if holds > count else holds}; {AGAIN}."
        )
    return data.reshape(shape)


def _one(folder: Path, name: str, what: str) -> Path | None:
    hits = sorted(file for pattern in ("ubyte", "ubyte.gz") for file in folder.glob(f"{name}*{what}*{pattern}"))
    return hits[0] if hits else None
