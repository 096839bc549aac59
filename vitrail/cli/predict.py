"""``vitrail predict``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Json, Normalisation, messages, print_json, say, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vitrail.serve.predictor import Source


def predict(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Pictures, folders of them, or - for one on standard input.", metavar="PICTURE"),
    ],
    top: Annotated[int, typer.Option(help="How many labels for each picture.", min=1, metavar="K")] = 5,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Say what is in pictures: the likeliest labels and their probabilities, a line for each picture."""
    with messages().status("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.serve import Predictor

        keep_memory()
        predictor = Predictor.of(run, normalise=normalise)
    bad = 0
    for note in predictor.notes:
        say(f"note: {note}")
    for answer in predictor.answers(sources_of(inputs), top):
        bad += bool(answer.error)
        if as_json:
            found = [{"label": label, "probability": chance} for label, chance in answer.labels]
            print_json({"file": answer.name, **({"error": answer.error} if answer.error else {"answers": found})})
        elif answer.error:
            say(f"{answer.name}: {answer.error}")
        else:
            listed = "  ".join(f"{label} {chance:.1%}" for label, chance in answer.labels)
            tell(f"{answer.name}  {listed}")
    if bad:
        say(f"vitrail: {bad} of the pictures could not be read.")
        raise typer.Exit(1)


def sources_of(inputs: list[str]) -> "Iterator[Source]":
    """The pictures that words on the command line stand for."""
    from vitrail.data import files_in
    from vitrail.serve.predictor import Source

    for name in inputs:
        path = Path(name)
        if name == "-":
            yield Source("-", sys.stdin.buffer.read())
        elif path.is_dir():
            yield from (Source(str(file), file) for file in files_in(path))
        else:
            yield Source(name, path)
