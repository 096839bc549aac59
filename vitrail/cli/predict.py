"""``vitrail predict``."""

from typing import Annotated

import typer

from vitrail.cli.console import Json, Normalisation, Unread, print_json
from vitrail.terminal.console import messages, say, tell


def predict(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Picture files, folders, or - for standard input.", metavar="PICTURE"),
    ],
    top: Annotated[int, typer.Option(help="Number of labels per picture.", min=1, metavar="K")] = 5,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Classify pictures: the most probable labels of each, one line per picture."""
    with messages().status("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.runs import Run
        from vitrail.tasks.pictures.predictor import Predictor, inputs_of

        keep_memory()
        predictor = Predictor.of(Run(run).weights(normalise=normalise))
    unread = Unread()
    for note in predictor.notes:
        say(f"note: {note}")
    for answer in predictor.answers(inputs_of(inputs), top):
        if answer.error:
            unread.add(answer.name, answer.error)
        if as_json:
            answers = [{"label": label, "probability": probability} for label, probability in answer.labels]
            print_json({"file": answer.name, **({"error": answer.error} if answer.error else {"answers": answers})})
        elif not answer.error:
            listed = "  ".join(f"{label} {probability:.1%}" for label, probability in answer.labels)
            tell(f"{answer.name}  {listed}")
    unread.finish()
