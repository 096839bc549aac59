"""Lines of text from files, plain or gzip: every line is there, or named with what is wrong with it."""

import gzip
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vitrail.errors import AGAIN, InputError

WIDE = {BOM_UTF32_LE: "utf-32", BOM_UTF32_BE: "utf-32", BOM_UTF16_LE: "utf-16", BOM_UTF16_BE: "utf-16"}
PACKED = b"\x1f\x8b"


class Undecodable(str):
    """A line that is not UTF-8, with what could not be read replaced."""

    __slots__ = ()


def read_lines(path: Path) -> list[str]:
    """The lines of a file, without their ends, be they those of Windows or not; a byte order mark is left out.

    A line that is not UTF-8 is ``Undecodable``; what comes last without an end is a line too.
    """
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not there, or no file; check the path.")
    try:
        with _opened(path) as file:
            data = file.read()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{str(path)!r} cannot be read to its end ({reason}); {AGAIN}.") from None
    lines = list(_decoded(data, path))
    if not any(line.strip() for line in lines):
        raise InputError(f"{str(path)!r} is empty; give a file with a sentence on each line.")
    return lines


def _decoded(data: bytes, path: Path) -> Iterator[str]:
    for mark, name in WIDE.items():
        if data.startswith(mark):
            try:
                data = data.decode(name).encode()
            except UnicodeDecodeError as error:
                raise InputError(f"{str(path)!r} begins as {name} and is not: {error.reason}; {AGAIN}.") from None
            break
    if b"\0" in data[:4096]:
        raise InputError(f"{str(path)!r} is no text, but has bytes of 0 in it; give a file of lines in UTF-8.")
    lines = data.removeprefix(BOM_UTF8).split(b"\n")
    for line in lines if lines[-1] else lines[:-1]:
        yield decode_line(line)


def decode_line(line: bytes) -> str:
    """A line of bytes as text, without the end that Windows gives it."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return Undecodable(line.decode(errors="replace"))


def clean(sentence: str) -> str:
    """Without what stands at its ends, and with one space where there are several."""
    return re.sub(r"\s+", " ", sentence).strip()


def _opened(path: Path) -> BinaryIO | gzip.GzipFile:
    with path.open("rb") as file:
        packed = file.read(2) == PACKED
    return gzip.open(path) if packed else path.open("rb")
