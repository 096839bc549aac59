"""From data to a finished run, in one call: what ``vitrail train`` does, and ``vt.train``."""

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from vitrail.config import assignments
from vitrail.distributed import ALONE, World, launch, launched, world
from vitrail.errors import InputError
from vitrail.files import Pathlike
from vitrail.machine import cores, die_with_parent, forget_shapes, keep_memory, return_memory
from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.report import write_preview, write_report
from vitrail.runs import Run
from vitrail.tasks import read_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import Task
from vitrail.terminal.console import say
from vitrail.terminal.plan import found, plan
from vitrail.terminal.progress import counted, shown, working
from vitrail.training import (
    Forecast,
    Interrupted,
    Job,
    Rates,
    Result,
    check_parts,
    finish_head,
    fitted,
    forecast,
    paced,
    try_rates,
)
from vitrail.training.rates import STEPS

REPORT = 10.0  # seconds kept for writing what came of it
SHORT = {"epochs": "train", "batch": "train", "seed": "train", "minutes": "train", "image": "model"}  # and its section


def train(
    what: Pathlike | Sequence[Pathlike] | None = None,
    *,
    out: Pathlike | None = None,
    data: Pathlike | None = None,
    model: str | None = None,
    weights: Pathlike | None = None,
    freeze: bool | None = None,
    image: int | tuple[int, int] | None = None,
    minutes: float | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    seed: int | None = None,
    teacher: Pathlike | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    processes: int | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Run:
    """Train a model, and give its run: ``train("photos", weights="dinov2.pt", minutes=10)``.

    ``what`` is a folder of pictures, a CSV file, two files of sentences, a recipe, or a built-in recipe's name;
    ``settings`` sets any field of the recipe, as ``{"optim.lr": 1e-4}``. The plan and the progress go to stderr, unless
    ``quiet``.
    """
    given = {"epochs": epochs, "batch": batch, "seed": seed, "minutes": minutes, "image": image}
    options = {"data": data, "model": model, "weights": weights, "freeze": freeze, "teacher": teacher, **given}
    options = {name: value for name, value in options.items() if value is not None}
    several = [] if what is None else [what] if isinstance(what, str | os.PathLike) else what
    training = Training([os.fspath(one) for one in several], options, assignments(settings), quiet=quiet)
    return training.run(None if out is None else os.fspath(out), processes, resume=resume)


class Training:
    """One call of ``train``: what was asked for, and when."""

    def __init__(
        self,
        what: Sequence[str],
        options: dict[str, Any],
        settings: list[str],
        *,
        quiet: bool = False,
        also: str = "",
        recipe: Recipe | None = None,
        typed: str = "",
    ) -> None:
        self.began = time.monotonic()
        forget_shapes()
        self.what, self.options, self.settings, self.quiet = what, options, settings, quiet
        self.progress: Progress = silent
        self.typed, self.also = typed, also  # the command for it, and what else each of several processes is told
        self.given = recipe  # which is then taken as it is, a part of something larger that says what it does
        self.result: Result | None = None
        self.headline = ""

    def run(self, out: str | None, processes: int | None, *, resume: bool) -> Run:
        """Train in this process, or in several that are started for it; the run that came of it."""
        folder = _folder(out, _name(self.what or ["digits"]), resume=resume)
        with self._working("Starting ..."):
            run = Run(folder)
            begun = run.begun if resume and run.recipe is not None else {}
            table = begun.get("recipe")
            chosen = {choice.get("field") for choice in begun.get("chosen", []) if isinstance(choice, dict)}
            if resume and table is None and not self.what:
                raise InputError(
                    f"{str(folder)!r} holds no run to go on with; name what to train, or choose another --out."
                )
            recipe = self._recipe(table, paced="train.epochs" in chosen)
            processes = processes or _count(begun.get("processes", 1), folder)
            run.check_free(resume=resume)
        typed = self.typed or os.environ.get("VITRAIL_COMMAND")
        self.typed = typed or f"vitrail {shlex.join(self._words(folder, processes))}"
        if processes > 1 and not launched():
            self._several(folder, processes, resume=resume)
        else:
            self._train(recipe, run, resume=resume)
        return Run(folder)

    def preview(self, page: Path) -> Path:
        """Write a page of what the model would be given, and train nothing."""
        with self._working("Starting ..."):
            recipe = self._recipe()
        self.progress = silent if self.quiet else counted
        task = tasks[recipe.task].prepare(recipe, self.progress).gathered(self.progress)
        return write_preview(page, task)

    def rates(self) -> Rates:
        """Try learning rates from far too low to far too high for some steps, and train nothing."""
        with self._working("Starting ..."):
            recipe = self._recipe()
        self.progress = silent if self.quiet else counted
        with world(recipe.train.device) as here:
            task = tasks[recipe.task].prepare(recipe, self.progress)
            if task.at_once:
                raise InputError("what is fitted at once has no learning rate to find.")
            task, _ = self._planned(task, here)
            task = task.gathered(self.progress).with_head(self.progress)
            job = Job(task, Run("."), here)
            *_, rates = self.progress("steps tried", try_rates(job), STEPS)
        return rates

    def _words(self, folder: Path, processes: int = 1) -> list[str]:
        words = ["train", *self.what, "--out", str(folder)]
        for name, value in self.options.items():
            if isinstance(value, bool):
                words.append("--freeze" if value else "--tune")
            else:
                side = "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
                words += [f"--{name}", side]
        words += [word for setting in self.settings for word in ("--set", setting)]
        return [*words, *(["--processes", str(processes)] if processes > 1 else [])]

    def _recipe(self, begun: dict[str, Any] | None = None, *, paced: bool = False) -> Recipe:
        """What is asked for, over what a run was begun with; its epochs are chosen anew for other minutes, if they
        were chosen.
        """
        if self.given is not None:
            return self.given
        sections: dict[str, dict[str, Any]] = {"train": {}, "weights": {}}
        for name, value in self.options.items():
            if name in SHORT:
                sections.setdefault(SHORT[name], {})[name] = value
        if "model" in self.options:
            sections.setdefault("model", {})["name"] = self.options["model"]
        if "data" in self.options:
            sections["data"] = {"path": str(self.options["data"])}
        if "weights" in self.options:
            sections["weights"]["path"] = str(self.options["weights"])
        if "teacher" in self.options:
            sections["teacher"] = {"path": str(self.options["teacher"])}
        if "freeze" in self.options:
            sections["weights"]["freeze"] = self.options["freeze"]
        if begun is not None and paced and "minutes" in self.options and "epochs" not in self.options:
            train = {name: value for name, value in begun.get("train", {}).items() if name != "epochs"}
            begun = {**begun, "train": train}  # as many as there is time for now
        what = self.what if begun or self.what else ["digits"]
        return read_recipe(what, self.settings, begun=begun, **sections)

    def _several(self, folder: Path, processes: int, *, resume: bool) -> None:
        if processes > cores():
            self._say(f"note: {processes} processes share {cores()} cores; they will not be faster than {cores()}.")
        words = [*self._words(folder), *["--resume"] * resume, *self.also.split()]
        status = launch(processes, words, self.typed)
        if status:
            sys.exit(status)

    def _train(self, recipe: Recipe, run: Run, *, resume: bool) -> None:
        """Train in this process, alone or as one of several."""
        die_with_parent()
        with world(recipe.train.device) as here:
            if here.size > 1 and "--processes" not in self.typed:  # which torchrun said
                self.typed += f" --processes {here.size}"
            self.progress = counted if here.first and not self.quiet else silent
            self.quiet = self.quiet or not here.first
            task = here.once(lambda: tasks[recipe.task].prepare(recipe, self.progress))
            task, expected = self._planned(task, here)
            (return_memory if task.recipe.train.recompute else keep_memory)()
            if self.given is None:
                self._say(plan(task, expected, here, run.path))
            task = here.once(lambda: task.gathered(self.progress))
            if not self.quiet and self.given is None:
                with self._working("Comparing ..."):
                    came = found(task)
                self._say(came)
            with run.held(here, resume=resume):
                if task.at_once:
                    self._head(task, run, here)
                else:
                    self._steps(task, run, here, expected, resume=resume)

    def _planned(self, task: Task, here: World) -> tuple[Task, Forecast]:
        """The task with what it leaves to the machine's memory and the user's time, chosen by the first process."""

        def chosen() -> tuple[Recipe, Any, Forecast]:
            with self._working("Planning ..."):
                planned = task if task.at_once else fitted(task, here.size)
                check_parts(planned, here.size)
                expected = forecast(planned, here.size)
                if not task.at_once:
                    planned = paced(planned, expected, self._budget(planned, expected) - self._gone() - expected.before)
                    expected = expected.of(planned)
            return planned.recipe, planned.choices, expected

        recipe, choices, expected = here.same(chosen() if here.first else None)
        return replace(task, recipe=recipe, choices=choices), expected

    def _budget(self, task: Task, expected: Forecast) -> float:
        """Seconds from the beginning to the last step, of those that were given."""
        minutes = task.recipe.train.minutes
        return float("inf") if minutes is None else 60 * minutes - expected.measurement - REPORT

    def _gone(self) -> float:
        return time.monotonic() - self.began

    def _head(self, task: Task, run: Run, here: World) -> None:
        """Fit the head alone, in the first process: it takes one look at each picture."""
        if not here.first:
            return
        began = time.perf_counter()
        task = task.with_head(self.progress)
        self._say_head(task)
        run.begin(task, here, self.typed)
        seconds = time.perf_counter() - began
        self._finished(task, run, finish_head(task, run, ALONE if here.size > 1 else here, seconds))

    def _steps(self, task: Task, run: Run, here: World, expected: Forecast, *, resume: bool) -> None:
        """Train all layers, from the beginning or from the last checkpoint."""
        done = (run.path / "model.safetensors").is_file()
        if here.same(resume and done and not run.checkpoints.complete() if here.first else None):
            raise InputError(
                f"the run in {str(run.path)!r} is finished, and has no checkpoint to go on from; use it as it is, or "
                f"train on from it: vitrail train DATA --weights {shlex.quote(str(run.path))} --out OTHER."
            )
        if task.weights is not None and not (resume and here.same(run.checkpoints.complete() if here.first else None)):
            task = here.once(lambda: task.with_head(self.progress))
            self._say_head(task)
        if here.first:
            run.begin(task, here, self.typed)
        given = task.recipe.train.minutes is not None
        budget, gone = here.same((self._budget(task, expected) if given else None, self._gone()))
        job = Job(task, run, here, budget, gone)
        if resume:
            job.resume()
        self._say_where(job, resume=resume)
        try:
            with _Stop() as stop:
                shown(job, job.steps(stop), quiet=self.quiet)
        except Interrupted as stopped:
            if self.given is None:
                again = f"vitrail train --resume --out {shlex.quote(str(run.path))}"
                self._say(f"vitrail: {stopped}; go on with:\n  {again}")
            raise
        result = job.finish()
        if here.first:
            self._finished(task, run, result)

    def _finished(self, task: Task, run: Run, result: Result) -> None:
        write_report(run, task, result)
        self.result, self.headline = result, task.headline(result.measurement)
        if result.kept < result.steps:
            last = run.path / "last"
            self._say(
                f"the model after step {result.kept:,} is the best on validation, and kept; the last is in {last}"
            )

    def _say_where(self, job: Job, *, resume: bool) -> None:
        """From where a run goes on."""
        for one in job.damaged:
            self._say(f"warning: {one} is damaged, and the checkpoint before it is taken")
        if resume and job.step:
            self._say(f"going on after step {job.step:,} of {job.total:,}")
        elif resume:
            self._say("there is no checkpoint yet: the run begins anew")

    def _say_head(self, task: Task) -> None:
        if task.head_found():
            self._say(f"head      {task.head_found()}")

    def _say(self, text: str) -> None:
        if text and not self.quiet:
            say(text)

    def _working(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self.quiet else working(what)


class _Stop:
    """Whether the system, or someone at the keyboard, asked this process to end. A second time ends it at once."""

    def __init__(self) -> None:
        self.asked, self.before = False, dict[signal.Signals, Any]()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # to which signals come
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


def _count(processes: Any, folder: Path) -> int:
    if type(processes) is not int or processes < 1:
        raise InputError(
            f"the run in {str(folder)!r} does not say how many processes it was begun with; give --processes."
        )
    return processes


def _name(what: Sequence[str]) -> str:
    """What the run of some data is called: digits; photos; train-en-de of train.en.gz and train.de.gz."""
    first, *others = [Path(one).resolve().name.removesuffix(".gz") for one in what]
    stem = Path(first).stem
    return "-".join([stem, *(Path(one).suffix[1:] or Path(one).stem for one in (first, *others))]) if others else stem


def _folder(out: str | None, name: str, *, resume: bool) -> Path:
    """The folder asked for; else the last of runs/name, runs/name-2, ... to go on with, or the first that is free."""
    if out is not None:
        return Path(out)
    tries = [Path("runs") / (name if number == 1 else f"{name}-{number}") for number in range(1, 10_000)]
    free = next((number for number, folder in enumerate(tries) if not folder.exists()), 0)
    return tries[max(0, free - 1)] if resume else tries[free]
