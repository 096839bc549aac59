"""``vitrail train``."""

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from vitrail.cli.console import Json, messages, print_json, say, tell
from vitrail.cli.plan import head_plan, plan
from vitrail.cli.progress import counted, shown
from vitrail.errors import InputError

if TYPE_CHECKING:
    from vitrail.distributed import World
    from vitrail.recipe import Recipe
    from vitrail.runs import Run
    from vitrail.tasks.task import Task
    from vitrail.training import Job

INTERRUPTED = 130  # the exit status of a program that Ctrl-C ended


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A folder of pictures, a CSV file, a recipe.toml, or a built-in recipe (see `vitrail recipes`). "
            "Default: digits, or with --resume what the run is.",
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
    epochs: Annotated[
        int | None, typer.Option(help="Number of passes over the training data.", min=1, metavar="N")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Examples per update, over all processes.", min=1, metavar="N")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of everything but the train/test split.", min=0, metavar="N")
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
    as_json: Json = False,
) -> None:
    """Train a model, from scratch or from weights, and test it on held-out data."""
    from vitrail.tasks import read_recipe

    short = {"epochs": epochs, "batch": batch, "seed": seed}
    chosen: dict[str, dict[str, Any]] = {"train": {key: value for key, value in short.items() if value is not None}}
    chosen |= {"model": {"name": model}} if model else {}
    chosen |= {"data": {"path": data}} if data else {}
    start = {"path": weights, "freeze": freeze}
    chosen |= {"weights": {key: value for key, value in start.items() if value is not None}}
    folder = _folder(out, Path(what or "digits").resolve().stem, resume=resume)
    with messages().status("Starting ..."):
        begun = _begun(folder) if resume else {}
        table = begun.get("recipe")
        if resume and table is None and what is None:
            raise InputError(f"{str(folder)!r} holds no run to go on with; name what to train, or another --out.")
        recipe = read_recipe(what if table or what else "digits", assignments or (), begun=table, **chosen)
        processes = processes or _count(begun.get("processes", 1), folder)

        from vitrail.distributed import launch, launched
        from vitrail.machine import cores
        from vitrail.runs import Run

        run = Run(folder)
        run.check_free(resume=resume)
    if processes > 1 and not launched():
        if processes > cores():
            say(f"note: {processes} processes share {cores()} cores; they will not be faster than {cores()}.")
        sys.exit(launch(processes, [*_again(folder), *["--resume"] * resume], _command(folder)))
    result = _run(recipe, run, resume=resume)
    if result is None:
        return
    if as_json:
        print_json(result[1])
        return
    tell(f"{result[0]}, run in {run.path}")
    say(f"report: {run.path / 'report.html'}")


def _run(recipe: "Recipe", run: "Run", *, resume: bool) -> tuple[str, dict[str, Any]] | None:
    """Train in this process, alone or as one of several; in the first of them, the result in a line, and all of it."""
    from vitrail.distributed import ALONE, world
    from vitrail.machine import die_with_parent, keep_memory
    from vitrail.progress import silent
    from vitrail.report import write_report
    from vitrail.tasks.registry import prepare
    from vitrail.training import train_head

    keep_memory()
    die_with_parent()
    command = os.environ.get("VITRAIL_COMMAND") or _command(run.path)
    with world(recipe.train.device) as here:
        if here.size > 1 and "--processes" not in command:  # which torchrun said
            command += f" --processes {here.size}"
        task = here.once(lambda: prepare(recipe, counted if here.first else silent))
        if task.recipe.weights.freeze:
            if not here.first:  # it takes seconds: the first process does it
                return None
            with run.held(task, here, resume=resume, command=command):
                model = task.model()
                say(head_plan(task, model, run.path))
                result = train_head(task, model, run, ALONE if here.size > 1 else here, counted)
                write_report(run, task, result)
            return task.headline(result.measurement), result.line()
        return _train(task, run, here, resume=resume, command=command)


def _train(task: "Task", run: "Run", here: "World", *, resume: bool, command: str) -> tuple[str, dict[str, Any]] | None:
    """Train all layers, from the beginning or from the last checkpoint."""
    from vitrail.report import write_report
    from vitrail.training import Interrupted, Job

    job = Job(task, run, here)
    with run.held(task, here, resume=resume, command=command):
        went_on = job.resume() if resume else 0
        if resume and not went_on and run.result:
            raise InputError(
                f"the run in {str(run.path)!r} is finished, and has no checkpoint to go on from; use it as it is, or "
                f"train anew with another --out."
            )
        seconds = job.estimate() if job.step < job.total else 0.0
        if here.first:
            say(plan(job, seconds))
            _say_where(job, resume=resume)
        try:
            with _Stop() as stop:
                shown(job, job.steps(stop))
        except Interrupted as stopped:
            if here.first:
                say(f"vitrail: {stopped}; go on with:\n  vitrail train --resume --out {shlex.quote(str(run.path))}")
            sys.exit(INTERRUPTED)
        result = job.finish()
        if not here.first:
            return None
        write_report(run, task, result)
        return task.headline(result.measurement), result.line()


def _say_where(job: "Job", *, resume: bool) -> None:
    """From where a run goes on."""
    for one in job.damaged:
        say(f"warning: {one} is damaged, and the checkpoint before it is taken")
    if resume and job.step:
        say(f"going on after step {job.step:,} of {job.total:,}")
    elif resume:
        say("there is no checkpoint yet: the run begins anew")


class _Stop:
    """Whether the system, or someone at the keyboard, asked this process to end. A second time ends it at once."""

    def __init__(self) -> None:
        self.asked, self.before = False, dict[signal.Signals, Any]()

    def __enter__(self) -> Self:
        self.before = {name: signal.signal(name, self._ask) for name in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self.before.items():
            signal.signal(name, handler)

    def _ask(self, number: int, _: Any) -> None:
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


def _begun(folder: Path) -> dict[str, Any]:
    """What the run in a folder was begun with; nothing, where there is none."""
    from vitrail.runs import Run

    run = Run(folder)
    return run.begun if run.recipe is not None else {}


def _count(processes: Any, folder: Path) -> int:
    if type(processes) is not int or processes < 1:
        raise InputError(
            f"the run in {str(folder)!r} does not say how many processes it was begun with; give --processes."
        )
    return processes


def _folder(out: Path | None, name: str, *, resume: bool) -> Path:
    """The folder asked for; else the last of runs/name, runs/name-2, ... to go on with, or the first that is free."""
    if out is not None:
        return out
    tries = [Path("runs") / (name if number == 1 else f"{name}-{number}") for number in range(1, 10_000)]
    free = next((number for number, folder in enumerate(tries) if not folder.exists()), 0)
    return tries[max(0, free - 1)] if resume else tries[free]


def _again(folder: Path) -> list[str]:
    """The arguments of this command, for a process among several."""
    arguments, skipped = [], False
    for argument in sys.argv[1:]:
        if skipped or argument in ("--processes", "--out"):
            skipped = not skipped
        elif not argument.startswith(("--processes=", "--out=")) and argument != "--resume":
            arguments.append(argument)
    return [*arguments, "--out", str(folder)]


def _command(folder: Path) -> str:
    """What was typed, and where the run goes if that was not said."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    named = any(word == "--out" or word.startswith("--out=") for word in words)
    return f"vitrail {shlex.join([*words, *([] if named else ['--out', str(folder)])])}"
