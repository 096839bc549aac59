"""``vitrail train``."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Json, messages, print_json, results, say
from vitrail.errors import InputError
from vitrail.recipe import read_recipe

if TYPE_CHECKING:
    from vitrail.train import Job, Step


def train(
    what: Annotated[str, typer.Argument(help="A built-in recipe (see `vitrail recipes`) or a recipe.toml.")] = "digits",
    out: Annotated[Path | None, typer.Option(help="Where the run goes; runs/NAME unless given.", metavar="RUN")] = None,
    model: Annotated[str | None, typer.Option(help="A model's name, instead of the recipe's.", metavar="NAME")] = None,
    epochs: Annotated[int | None, typer.Option(help="How often every picture is seen.", min=1, metavar="N")] = None,
    batch: Annotated[int | None, typer.Option(help="Pictures in one step.", min=1, metavar="N")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random but the split.", min=0, metavar="N")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a field of the recipe; may be repeated.", metavar="FIELD=VALUE"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Train a model from scratch, and measure it on pictures it has not seen."""
    short = {"epochs": epochs, "batch": batch, "seed": seed}
    chosen = {"train": {key: value for key, value in short.items() if value is not None}}
    recipe = read_recipe(what, assignments or (), **chosen, **({"model": {"name": model}} if model else {}))
    folder = _free(out, Path(what).stem)

    with messages().status("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.train import Job

        keep_memory()
        job = Job(recipe, folder)
    say(_plan(job))
    for _ in _shown(job):
        pass
    result = job.finish()
    if as_json:
        print_json(asdict(result))
        return
    answer = f"test accuracy {result.accuracy:.2%} ({result.correct} of {result.tested}), run in {result.run}"
    results().print(answer, markup=False)


def _free(out: Path | None, name: str) -> Path:
    """The folder asked for, if it is new or empty; else the first of runs/name, runs/name-2, ... that is not there."""
    if out is not None:
        if out.is_file() or (out.is_dir() and any(out.iterdir())):
            raise InputError(f"{str(out)!r} is there already, and is left alone; choose another --out, or remove it.")
        return out
    tries = (Path("runs") / (name if n == 1 else f"{name}-{n}") for n in range(1, 10**6))
    return next(folder for folder in tries if not folder.exists())


def _plan(job: "Job") -> str:
    channels, *size = job.train.images.shape[1:]
    recipe = job.recipe
    return (
        f"data    {recipe.data.source}: {len(job.train):,} pictures to train on, {len(job.test):,} to test on, "
        f"{len(job.train.names)} classes, {size[0]} x {size[1]} pixels, {channels} channel{'s' * (channels > 1)}\n"
        f"model   {recipe.model['name']}: {job.parameters:,} parameters\n"
        f"train   {recipe.train.epochs} epochs of {job.per_epoch} steps, batch {recipe.train.batch}, "
        f"learning rate {recipe.optim.lr:g}, seed {recipe.train.seed}\n"
        f"run     {job.out}"
    )


def _shown(job: "Job") -> Iterator["Step"]:
    """The steps, with a bar that moves on a terminal and a line now and then elsewhere."""
    console = messages()
    return _bar(job, console) if console.is_terminal else _lines(job)


def _bar(job: "Job", console: Any) -> Iterator["Step"]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} pictures/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=job.total, epoch=1, loss=float("nan"), speed=0)
        for step in job.steps():
            epoch = step.number // job.per_epoch + 1
            speed = (progress.tasks[0].speed or 0) * job.recipe.train.batch
            progress.update(task, advance=1, epoch=epoch, loss=step.loss, speed=speed)
            yield step


def _lines(job: "Job") -> Iterator["Step"]:
    every = max(1, job.recipe.train.epochs // 10)
    losses: list[float] = []
    for step in job.steps():
        losses.append(step.loss)
        epoch, rest = divmod(step.number + 1, job.per_epoch)
        if not rest:
            if epoch % every == 0 or epoch == job.recipe.train.epochs:
                say(f"epoch {epoch}/{job.recipe.train.epochs}  loss {sum(losses) / len(losses):.3f}")
            losses.clear()
        yield step
