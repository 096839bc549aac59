"""Writing files so that a reader never sees half of one."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitrail.errors import InputError

Pathlike = str | os.PathLike[str]


def make_folder(path: Path) -> Path:
    """The folder, made if it was not there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be written: {error.strerror}; choose another folder.") from None
    return path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to, which becomes the real one when all is written and synced, or is removed when it is not."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        with aside.open("rb+") as file:
            os.fsync(file.fileno())
        aside.replace(path)
        _sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON."""
    with whole(path) as aside:
        aside.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read what ``write_json`` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{str(path)!r} is not there; check the path.") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not valid JSON: {error}.") from None


def _sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk, where the system can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
