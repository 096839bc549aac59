"""Writing files so that a reader never sees half of one; and telling by a few of them what a folder holds."""

import gzip
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, BinaryIO

from vitrail.errors import InputError

Pathlike = str | os.PathLike[str]
CHUNK = 2**24  # bytes


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
        with naming(path, aside):
            aside.touch()
            mode = aside.stat().st_mode  # as the user's umask has it, whatever a library that writes it thinks
            yield aside
            aside.chmod(mode)
            with aside.open("rb+") as file:
                os.fsync(file.fileno())
            aside.replace(path)
        _sync_folder(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def naming(path: Path, aside: Path | None = None) -> Iterator[None]:
    """Have the errors of writing a file name it: those of a full disk do not say whose they are."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or error.filename == str(aside)):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def check_free(path: Path, *, force: bool = False, option: str = "--out") -> None:
    """A file that is there already is not written over, unless that is asked for."""
    if path.exists() and not force:
        raise InputError(
            f"{str(path)!r} is there already, and is left alone; choose another {option}, or add --force, which writes "
            f"over it."
        )


class Output:
    """A folder that a command writes files to, ``output / name``: over names it gave before, and no others."""

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self.folder, self.force = make_folder(folder), force
        self.list = folder / ".vitrail-files"  # the names that were given here, a line each
        text = self.list.read_text(encoding="utf-8", errors="replace") if self.list.is_file() else ""
        self.own = set(text.splitlines())

    def __truediv__(self, name: str) -> Path:
        path = self.folder / name
        if name not in self.own:
            check_free(path, force=self.force)
            self.own.add(name)
            with self.list.open("a", encoding="utf-8", errors="replace") as file:
                print(name, file=file)
        return path


def scratch() -> Path:
    """A folder for files that end with the process: where the user is, whose disk is the larger one, if it may be."""
    return Path.cwd() if os.access(Path.cwd(), os.W_OK) else Path(gettempdir())


def reserve(file: BinaryIO, size: int) -> None:
    """Have room on disk for so many bytes, or fail now: not later, by a signal, while it is written through a map."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    file.writelines(bytes(min(CHUNK, size - start)) for start in range(0, size, CHUNK))  # macOS
    file.flush()


def write_json(path: Path, value: Any) -> None:
    """Write a value as readable JSON."""
    with whole(path) as aside:
        aside.write_text(json.dumps(finite(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON cannot say."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


TEXTS = {".txt", ".text", ".md", ".rst", ".tex", ".py", ".c", ".h", ".js", ".html", ".xml", ".org", ".srt"}
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
JUNK = {"thumbs.db", "desktop.ini", "__macosx"}
LINE = 1_000_000  # bytes of a line that are looked at
LOOKED = 10_000  # files of a folder that are looked at, to tell what it holds


def walk(folder: Path) -> Iterator[Path]:
    """All files under a folder in their order, without hidden ones and what systems leave behind."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one.lower() not in JUNK)
        for name in sorted(files):
            if not name.startswith(".") and name.lower() not in JUNK:
                yield Path(root) / name


def kind(file: Path) -> str:
    """How a file's name ends, packed or not."""
    return Path(file.name.lower().removesuffix(".gz")).suffix


def holds_text(folder: Path) -> bool:
    """Whether a folder holds files of text, and no pictures."""
    kinds = set[str]()
    for number, file in enumerate(walk(folder)):
        kinds.add(kind(file))
        if number > LOOKED or kinds & PICTURES:
            break
    return bool(kinds & TEXTS) and not kinds & PICTURES


def first_lines(path: Path, count: int) -> list[str]:
    """The first lines of a file of text, plain or gzip, without their ends; none of what is no text."""
    try:
        with path.open("rb") as file, gzip.open(file) if file.peek(2)[:2] == b"\x1f\x8b" else file as lines:
            some = [lines.readline(LINE) for _ in range(count)]
    except (OSError, EOFError, zlib.error):
        return []
    there = [line for line in some if line]
    return (
        [] if any(b"\0" in line for line in there) else [line.decode(errors="replace").rstrip("\r\n") for line in there]
    )
