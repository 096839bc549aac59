"""``vitrail translate``."""

import os
import re
import select
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Json, print_json
from vitrail.errors import InputError
from vitrail.progress import NAMED
from vitrail.terminal.console import printable, say
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.tasks.translate.translator import Translation

TOGETHER = 256  # lines of standard input that are translated together, if so many are there
CHUNK = 2**16  # bytes that are read at a time


def translate(
    run: Annotated[str, typer.Argument(help="A run directory.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(help="A sentence, a file of lines, or - for standard input. Default: -.", metavar="TEXT|FILE"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="beam, greedy, sample; parallel of a parallel model. Default: beam.", metavar="NAME"),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Sequences that are gone on with. Default: 5.", min=1, metavar="N")
    ] = None,
    nbest: Annotated[int, typer.Option(help="Translations of each line.", min=1, metavar="N")] = 1,
    penalty: Annotated[
        float | None, typer.Option(help="Power of the length that scores are divided by. Default: 1.", metavar="X")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(help="Passes of a parallel model. Default: 4.", min=1, metavar="N")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Lengths that it tries side by side. Default: 5.", min=1, metavar="N")
    ] = None,
    length: Annotated[
        float | None, typer.Option(help="Times the length that it predicts. Default: 1.", metavar="X")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of sampling. Default: 1.", metavar="X")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="Sample of the K most probable tokens. Default: of all.", min=0, metavar="K")
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sample of the fewest that have this probability together.", metavar="P")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed of sampling. Default: 0.", min=0, metavar="N")] = None,
    as_json: Json = False,
) -> None:
    """Translate lines of text, in their order: one line per line; with --nbest, score and translation."""
    with working("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import open_run
        from vitrail.tasks.translate.translator import Decoding, Translator

        keep_memory()
        given: dict[str, Any] = {"method": method, "beam": beam, "nbest": nbest, "penalty": penalty, "passes": passes}
        given |= {"candidates": candidates, "length": length, "temperature": temperature}
        given |= {"top_k": top_k, "top_p": top_p, "seed": seed}
        how = Decoding(**{name: value for name, value in given.items() if value is not None})
        opened = open_run(run)
        trained = opened.trained()
        translator = Translator.of(trained)
        how = how.checked(translator.model.config)
    for note in trained.weights.remarks:
        say(f"note: {note}")
    shown = _Shown(nbest, as_json=as_json)
    for lines in _groups(inputs or ["-"]):
        for one in translator.translations(lines, how):
            shown.add(one)
    shown.finish()


class _Shown:
    """Translations as they come, and what is said of them: of each kind the first ten."""

    def __init__(self, nbest: int, *, as_json: bool) -> None:
        self.nbest, self.as_json = nbest, as_json
        self.number = self.failed = self.noted = 0

    def add(self, one: "Translation") -> None:
        self.number += 1
        self.failed += bool(one.error)
        self.noted += bool(one.notes)
        if one.error and self.failed <= NAMED:
            say(f"line {self.number:,}: {one.error}")
        for note in one.notes if self.noted <= NAMED else ():
            say(f"line {self.number:,}: {note}")
        if self.as_json:
            found = [{"text": text, "score": score} for text, score in one.hypotheses]
            print_json({"source": one.source, "translations": found, **({"error": one.error} if one.error else {})})
        elif self.nbest == 1:
            typer.echo(printable(one.text))
        else:
            for text, score in one.hypotheses or [("", 0.0)]:
                typer.echo(printable(f"{score:.4f}\t{text}"))

    def finish(self) -> None:
        if self.noted > NAMED:
            say(f"vitrail: {self.noted:,} lines have characters that were never seen in training.")
        if self.failed:
            say(f"vitrail: {self.failed:,} of {self.number:,} lines could not be translated, and are empty.")
            raise typer.Exit(1)


def _groups(inputs: list[str]) -> Iterator[list[str]]:
    """Lines that are translated together: of a file all of them, of standard input those that are there."""
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
                say(f"note: {one!r} is no file here, and is translated as a sentence.")
            yield [one]


def _standard_input() -> Iterator[list[str]]:
    """Lines as they come, with no waiting for more than one: whoever types a line sees it translated."""
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
