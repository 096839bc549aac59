"""``vitrail train``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Force, Json, parse_size, print_json
from vitrail.terminal.console import say, tell
from vitrail.terminal.progress import working

if TYPE_CHECKING:
    from vitrail.training import Rates

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def train(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="A folder of pictures, a CSV file, two files of sentences line by line, text or a folder of it, words "
            "or texts with labels, a recipe.toml, or a built-in recipe (see `vitrail recipes`). Default: digits, or "
            "with --resume what the run is.",
            metavar="WHAT",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory to write. Default: runs/NAME.", metavar="RUN")] = None,
    data: Annotated[str | None, typer.Option(help="Data of a recipe: a folder, or a CSV file.", metavar="PATH")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to train instead of the recipe's; see `vitrail models`.", metavar="NAME")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Weights to start from: a run, .npz, .safetensors, .pt, an HF folder, hf:owner/name.", metavar="PATH"
        ),
    ] = None,
    freeze: Annotated[
        bool | None, typer.Option("--freeze/--tune", help="Train only the head of the weights, or all layers.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(help="Size of pictures for the model: 224, or 224x384. Default: chosen.", metavar="N"),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Time to train in; what is left out is chosen for it.", min=0.1, metavar="N")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the training data.", min=1, metavar="N")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Examples per update, over all processes; of sentences and labels: tokens.", min=1, metavar="N"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of everything but the train/test split.", min=0, metavar="N")
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="A run to learn from: its answers beside the labels, or the words; a translator's instead of those "
            "given.",
            metavar="RUN",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set any field of the recipe. Repeatable.", metavar="FIELD=VALUE"),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Number of processes to train with. Default: 1.", min=1, metavar="N")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue a run from its last checkpoint: `vitrail train --resume --out RUN`."),
    ] = False,
    preview: Annotated[
        Path | None,
        typer.Option(
            help="Write a page of pictures as the model would be given them, and train nothing.", metavar="PAGE.html"
        ),
    ] = None,
    rates: Annotated[
        bool, typer.Option("--find-lr", help="Try learning rates for some steps, show their loss, and train nothing.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train a model, from scratch or from weights, and test it on held-out data."""
    given: dict[str, Any] = {"data": data, "model": model, "weights": weights, "freeze": freeze, "minutes": minutes}
    given |= {"epochs": epochs, "batch": batch, "seed": seed, "teacher": teacher}
    given |= {"image": None if image is None else parse_size("--image", image)}
    options = {name: value for name, value in given.items() if value is not None}
    with working("Starting ..."):
        from vitrail.files import check_free
        from vitrail.trainer import Training
        from vitrail.training import Interrupted

    training = Training(what or [], options, assignments or [], also="--json" if as_json else "")
    if preview is not None:
        check_free(preview, force=force)
        tell(f"preview: {training.preview(preview)}")
        return
    if rates:
        _show_rates(training.rates(), as_json=as_json)
        return
    try:
        run = training.run(None if out is None else str(out), processes, resume=resume)
    except Interrupted:
        raise typer.Exit(INTERRUPTED) from None
    if training.result is None:  # of several processes, whose first speaks for itself
        return
    if as_json:
        print_json(training.result.line())
        return
    tell(f"{training.headline}, run in {run.path}")
    say(f"report: {run.path / 'report.html'}")


def _show_rates(rates: "Rates", *, as_json: bool) -> None:
    """Rates and losses, with a bar each, and which rate to try."""
    if as_json:
        print_json({"points": rates.points, "least": rates.least, "suggested": rates.fields, "recipe": rates.own})
        return
    losses = [loss for _, loss in rates.points]
    low, high = min(losses), max(losses)
    for rate, loss in rates.points[::3]:
        bar = "#" * round(30 * (loss - low) / (high - low or 1))
        tell(f"{rate:9.2g}  {loss:8.4f}  {bar}".rstrip())
    fields = " ".join(f"--set {name}={value:g}" for name, value in rates.fields.items())
    tell(f"least at {rates.least:.2g}; try {fields} (the recipe has optim.lr={rates.own:g})")
