"""``vitrail evaluate``."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from vitrail.cli.console import Json, Normalisation, print_json
from vitrail.progress import first_of
from vitrail.terminal.console import results, say, table, tell
from vitrail.terminal.progress import counted, working


def evaluate(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    data: Annotated[
        list[str] | None,
        typer.Argument(
            help="Labelled pictures: a folder or a CSV file. Sentences: two files, or a table. Text, or words with "
            "labels: files. Default: the run's own test part, or what it was validated on.",
            metavar="DATA",
        ),
    ] = None,
    normalise: Normalisation = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="How sentences are translated: any option of `vitrail translate`; of text, stride=N.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model: accuracy, each class and calibration of pictures; BLEU and chrF of sentences; nats a character
    of text; accuracy and F1 of each class of labels.
    """
    with working("Starting ..."):
        from vitrail.config import override
        from vitrail.machine import keep_memory
        from vitrail.runs import Run

        keep_memory()
        opened = Run(run)
        weights = opened.answering(normalise=normalise)
        model = weights.model().float()
    for note in weights.remarks:
        say(f"note: {note}")
    examples = opened.evaluation_set(data, counted, weights=weights, options=override({}, assignments or ()))
    for line in first_of([f"set aside: {one.what}: {one.why}" for one in examples.aside]):
        say(line)
    if examples.seen:
        say(f"warning: {examples.seen:,} of the {len(examples):,} were also trained on: the numbers are too good.")
    with working(f"Measuring on {len(examples):,} examples ..."):
        measurement = examples.measure(model)
    if as_json:
        scores = measurement.values if measurement.scores is None else asdict(measurement.scores)
        facts: dict[str, Any] = {"part": examples.part, "set aside": len(examples.aside), "trained on": examples.seen}
        facts["aside"] = [asdict(one) for one in examples.aside]
        print_json({"run": run, "data": data[0] if data and len(data) == 1 else data or None, **facts, **scores})
        return
    for section in opened.task.score_tables(measurement):
        lines = table(*section.columns)
        for row in section.rows:
            lines.add_row(*row)
        results().print(lines)
        tell("")
    for line in opened.task.score_lines(measurement):
        tell(line)
