"""Lines of text as users give them: a sentence, a file of lines, or standard input as it comes."""

import os
import re
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path

from vitrail.errors import InputError
from vitrail.terminal.console import say

TOGETHER = 256  # lines of standard input that are taken together, if so many are there
CHUNK = 2**16  # bytes that are read at a time


def line_groups(inputs: list[str], done: str) -> Iterator[list[str]]:
    """Lines that are taken together: of a file all of them, of standard input those that are there."""
    for one in inputs:
        if one == "-":
            yield from _standard_input()
        elif os.path.isfile(one):  # noqa: PTH113  # a long sentence is no path, which pathlib takes amiss
            from vitrail.data.text import read_lines

            yield read_lines(Path(one))
        elif os.path.isdir(one):  # noqa: PTH112
            raise InputError(f"{one!r} is a folder; give a sentence, a file of lines, or - for standard input.")
        else:
            if re.fullmatch(r"\S+\.\w{1,4}", one):
                say(f"note: {one!r} is no file here, and is {done} as a sentence.")
            yield [one]


def _standard_input() -> Iterator[list[str]]:
    """Lines as they come, with no waiting for more than one: whoever types a line sees what comes of it."""
    from vitrail.data.text import decode_line

    if sys.stdin is None or sys.stdin.closed:
        raise InputError("standard input is closed; give a sentence, or a file of lines.")
    source, rest, open_, first = sys.stdin.fileno(), b"", True, True
    while open_:
        chunk = os.read(source, CHUNK)
        open_ = bool(chunk)
        while chunk and rest.count(b"\n") + chunk.count(b"\n") < TOGETHER and select.select([source], [], [], 0)[0]:
            more = os.read(source, CHUNK)
            open_, chunk = bool(more), chunk + more
            if not more:
                break
        *lines, rest = (rest + chunk).split(b"\n")
        if not open_ and rest:
            lines, rest = [*lines, rest], b""
        if lines and first:
            lines[0], first = lines[0].removeprefix(BOM_UTF8), False
        for begin in range(0, len(lines), TOGETHER):
            yield [decode_line(line) for line in lines[begin : begin + TOGETHER]]


def whole_texts(inputs: list[str], done: str) -> Iterator[str]:
    """Texts as a whole: standard input to its end, a file, or a text as it is; lines that are not UTF-8 are left out,
    which is said.
    """
    from vitrail.data.text import Undecodable

    for one in inputs:
        lines = [line for some in line_groups([one], done) for line in some]
        good = [line for line in lines if not isinstance(line, Undecodable)]
        if len(good) < len(lines):
            say(f"note: {len(lines) - len(good):,} of {len(lines):,} lines are not UTF-8, and left out")
        given = one == "-" or os.path.isfile(one)  # noqa: PTH113  # as of lines
        yield "\n".join(good) + ("\n" if given and good else "")
