"""Checkpoints: written aside, synced, renamed, and marked complete, so that a reader never takes half of one."""

import errno
import os
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from vitrail.errors import InputError
from vitrail.files import make_folder, read_json, whole, write_json

KEPT = 2


class Checkpoints:
    """The checkpoints of a run: ``checkpoints/00000120.pt``, complete when ``00000120.json`` beside it says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write one, then remove all but the newest two, and what a killed process left half done."""
        make_folder(self.folder)
        buffer = BytesIO()
        torch.save(state, buffer)
        data = buffer.getbuffer()
        path = self._file(step)
        with whole(path) as aside:
            aside.write_bytes(data)
        write_json(path.with_suffix(".json"), {"step": step, "bytes": len(data), "blake2b": _digest(data)})
        kept = {f"{one:08}" for one in [one for one in self.complete() if one <= step][-KEPT:]}
        for other in sorted(self.folder.iterdir()):  # .json before .pt: first what says that one is complete
            if other.stem not in kept:
                other.unlink(missing_ok=True)

    def complete(self) -> list[int]:
        """The steps of the checkpoints that are complete, the newest last."""
        return sorted(int(mark.stem) for mark in self.folder.glob("*.json") if mark.stem.isdigit())

    def newest(self) -> tuple[int, bytes, list[str]] | None:
        """The newest one whose bytes are those that were written, and the newer ones that are damaged.

        None where nothing was ever complete; an error where all that was is damaged.
        """
        damaged: list[str] = []
        for step in reversed(self.complete()):
            path = self._file(step)
            with suppress(OSError, InputError, KeyError, TypeError):
                data, mark = path.read_bytes(), read_json(path.with_suffix(".json"))
                if mark["blake2b"] == _digest(data):
                    return step, data, damaged
            damaged.append(str(path))
        if damaged:
            raise InputError(
                f"no checkpoint is whole: {' and '.join(damaged)} do not hold what was written, so there is nothing to "
                f"go on from; bring them back from a copy, or train anew with another --out."
            )
        return None

    def _file(self, step: int) -> Path:
        return self.folder / f"{step:08}.pt"


def unpack(data: bytes) -> Any:
    """What a checkpoint holds; nothing in it is run."""
    return torch.load(BytesIO(data), weights_only=True, map_location="cpu")


class Lock:
    """A run directory for one process alone, until that process ends in whatever way."""

    def __init__(self, run: Path) -> None:
        import fcntl  # noqa: PLC0415  # not on Windows

        path = run / ".lock"
        try:
            self.file = path.open("a+")
        except OSError as error:
            raise InputError(f"{str(run)!r} cannot be written: {error.strerror}; choose another folder.") from None
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise InputError(f"{str(run)!r} cannot be locked: {error.strerror}; choose another folder.") from None
            self.file.seek(0)
            who = self.file.read().strip() or "unknown"
            self.file.close()
            raise InputError(
                f"{str(run)!r} is in use by another process (number {who}); wait for it, or choose another --out."
            ) from None
        self.file.truncate(0)
        self.file.write(str(os.getpid()))
        self.file.flush()

    def release(self) -> None:
        """Let others use it."""
        self.file.close()


def _digest(data: Any) -> str:
    return blake2b(data, digest_size=16).hexdigest()
