"""``vitrail predict``."""

import csv
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Json, Normalisation, Unread, print_json
from vitrail.errors import InputError
from vitrail.terminal.console import printable, say, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.tasks.pictures.predictor import Answer


def predict(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Picture files, folders, CSV files with a column of paths, or - for a picture on standard input.",
            metavar="PICTURE",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="Number of labels per picture.", min=1, metavar="K")] = 5,
    named: Annotated[
        bool, typer.Option("--list", help="Read names of pictures from standard input, one a line.")
    ] = False,
    normalise: Normalisation = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a table: file, label, probability.")] = False,
    as_json: Json = False,
) -> None:
    """Classify pictures: the most probable labels of each, one line per picture."""
    if not inputs and not named:
        raise InputError("name pictures or folders to classify, or pipe their names in with --list.")
    with working("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import Run
        from vitrail.tasks.pictures.predictor import Predictor, inputs_of

        keep_memory()
        predictor = Predictor.of(Run(run).answering(normalise=normalise))
    unread = Unread()
    for note in predictor.notes:
        say(f"note: {note}")
    lines = [line.rstrip("\n") for line in sys.stdin] if named else []
    table = csv.writer(sys.stdout, lineterminator="\n")
    if as_csv:
        table.writerow(["file", "label", "probability"])
    for answer in predictor.answers(inputs_of([*(inputs or []), *filter(None, lines)]), top):
        if answer.error:
            unread.add(answer.name, answer.error)
        if as_json:
            answers = [{"label": label, "probability": probability} for label, probability in answer.labels]
            print_json({"file": answer.name, **({"error": answer.error} if answer.error else {"answers": answers})})
        elif as_csv:
            table.writerows(_rows(answer))
        elif not answer.error:
            listed = "  ".join(f"{label} {probability:.1%}" for label, probability in answer.labels)
            tell(f"{answer.name}  {listed}")
    unread.finish()


def _rows(answer: "Answer") -> list[list[str]]:
    """A row for each of the labels."""
    return [[printable(answer.name), printable(label), f"{probability:.6f}"] for label, probability in answer.labels]
