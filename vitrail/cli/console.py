"""Two consoles: results on stdout, everything else on stderr."""

import json
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from vitrail.errors import InputError
from vitrail.progress import NAMED

WIDE = 10_000  # columns of what goes into a file or a pipe, where there is no screen to fit: a line is a line

Normalisation = Annotated[
    str | None,
    typer.Option(
        "--normalise", help="Normalisation, if the weights do not say: half, imagenet, clip, none.", metavar="HOW"
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def results() -> Console:
    """Where results go."""
    console = Console(highlight=False, soft_wrap=True, emoji=False)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, emoji=False, width=WIDE)


def messages() -> Console:
    """Where progress and messages go."""
    return Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def say(message: str) -> None:
    """Print a message as it is."""
    messages().print(printable(message), markup=False)


def tell(result: str) -> None:
    """Print a result as it is."""
    results().print(printable(result), markup=False)


def printable(text: str) -> str:
    """A text in which what is no character, as in some file names, is written as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


class Unread:
    """Pictures that could not be read: the first are named as they come, all are counted at the end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, name: str, why: str) -> None:
        self.lines.append(printable(f"{name}: {why}"))
        if len(self.lines) <= NAMED:
            say(self.lines[-1])

    def finish(self) -> None:
        """Exit status 1, if there were any."""
        if self.lines:
            more = f", {len(self.lines) - NAMED:,} more than are named here; --json names them all"
            say(f"vitrail: {len(self.lines):,} of the pictures could not be read{more * (len(self.lines) > NAMED)}.")
            raise typer.Exit(1)


def print_json(value: Any) -> None:
    """Print one JSON value on stdout."""
    typer.echo(printable(json.dumps(value, ensure_ascii=False)))


def table(*columns: str) -> Table:
    """A plain table; a column whose name begins with > is flush right, and one that ends with ... is text in lines."""
    plain = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        text = column.endswith("...")
        plain.add_column(
            column.removeprefix(">").removesuffix("..."), justify=justify, no_wrap=not text, overflow="fold"
        )
    return plain


def parse_size(option: str, text: str) -> tuple[int, int]:
    """384 or 224x384 as pixels down and across."""
    from vitrail.config import parse_sides

    sides = parse_sides(text)
    if sides is None:
        raise InputError(f"{option} {text!r} does not fit; it should be a number of pixels, such as 384, or 224x384.")
    return sides


def from_one(what: str, number: int, count: int) -> int:
    """The index of a layer or a head, which people count from 1."""
    if number > count:
        raise InputError(f"{what} {number} is not there; there are {count}, counted from 1.")
    return number - 1
