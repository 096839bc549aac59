"""What the verbs share: options, JSON, pictures that cannot be read."""

import json
from typing import Annotated, Any

import typer

from vitrail.errors import InputError
from vitrail.progress import NAMED
from vitrail.terminal.console import printable, say

Normalisation = Annotated[
    str | None,
    typer.Option(
        "--normalise", help="Normalisation, if the weights do not say: half, imagenet, clip, none.", metavar="HOW"
    ),
]
TopK = Annotated[
    int | None, typer.Option(help="Sample of the K most probable tokens. Default: of all.", min=0, metavar="K")
]
TopP = Annotated[
    float | None, typer.Option(help="Sample of the fewest that have this probability together.", metavar="P")
]
Force = Annotated[bool, typer.Option("--force", help="Write over files that are there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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
