"""A trained model made smaller and faster, step by step: each is measured, and stays only if it pays.

SMALL/                       the run that came of it
SMALL/shrink.json            what was asked for, and every step
SMALL/shrink.html            the same as a page
SMALL/steps/NN-WAY           each step, a run of its own, also those that were undone
"""

import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from vitrail.config import assignments
from vitrail.errors import InputError
from vitrail.families import empty
from vitrail.files import Pathlike, make_folder, read_json, write_json
from vitrail.machine import keep_memory, processor
from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.report import write_shrink
from vitrail.runs import Run
from vitrail.shrink.answers import NoFile
from vitrail.shrink.asked import Asked
from vitrail.shrink.making import Maker, refuse
from vitrail.shrink.material import Material, size_of
from vitrail.shrink.measuring import Scale
from vitrail.shrink.plan import chosen, parse
from vitrail.shrink.shown import line, summary
from vitrail.shrink.steps import Goals, History, Step, pays, read_step
from vitrail.shrink.way import Together, Way
from vitrail.tasks import parse_recipe, read_recipe
from vitrail.tasks.task import Metric
from vitrail.terminal.console import say
from vitrail.terminal.progress import counted, working
from vitrail.training.checkpoint import Lock
from vitrail.training.loop import NotFinite
from vitrail.weights import Weights
from vitrail.weights.onnx import OnnxWeights

STATE, PAGE, STEPS = "shrink.json", "shrink.html", "steps"
LEAST = 0.3  # minutes in which something can be learned
RESERVE = 0.2  # of the minutes of a step, for what comes after its training


def shrink(
    what: Pathlike,
    data: Pathlike | Sequence[Pathlike] = (),
    *,
    out: Pathlike,
    ways: Iterable[str] = (),
    max_drop: float = 0.5,
    speedup: float | None = None,
    compression: float | None = None,
    minutes: float | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    resume: bool = False,
    quiet: bool = False,
) -> Run:
    """Make a run, or weights, smaller and faster: ``shrink("runs/digits", out="small", speedup=4)``.

    ``ways`` are taken in their order, as ``["layers=4", "quantize"]``; with none they are chosen. ``data`` is what is
    measured and learned on, the run's own unless it is named; ``settings`` sets any field of the recipe by which what
    is left learns again, as ``{"train.epochs": 3}``. What was done, and what it cost, is in the run's shrink.json and
    shrink.html.
    """
    several = [data] if isinstance(data, str | os.PathLike) else data
    goals = Goals(max_drop, speedup, compression, minutes)
    asked = Asked(
        os.fspath(what), tuple(os.fspath(one) for one in several), goals, tuple(ways), tuple(assignments(settings))
    )
    return Shrinking(asked, Path(out), quiet=quiet).run(resume=resume)


class Shrinking:
    """One call of ``shrink``: what was asked for, and how far it is."""

    def __init__(self, wanted: Asked, out: Path, *, quiet: bool = False) -> None:
        self.began = time.monotonic()
        self.wanted, self.what, self.data, self.goals = wanted, wanted.what, wanted.data, wanted.goals
        self.asked = [parse(text) for text in wanted.ways]
        self.out, self.quiet = out, quiet
        self.progress: Progress = silent if quiet else counted
        self.before = 0.0  # seconds that were taken before it was interrupted
        self.material: Material | None = None
        self.history: History
        self.scale: Scale

    @property
    def command(self) -> str:
        """Which asks for it."""
        return shlex.join(self.wanted.words(self.out))

    def run(self, *, resume: bool = False) -> Run:
        """Do it, from the beginning or from where it was interrupted."""
        with self._working("Starting ..."):
            keep_memory()
            state = self._state(resume=resume)
            source = Run(self.what)
            weights = source.weights()
            if isinstance(weights, OnnxWeights):
                raise InputError(f"{self.what!r} is an ONNX file, made to be run; shrink the run that it was made of.")
            recipe = self._recipe(source, weights)
            refuse(self.asked, source, data=recipe is not None)
        make_folder(self.out)
        lock = Lock(self.out)
        try:
            if not state:
                write_json(self.out / STATE, {"command": self.command, "asked": self.wanted.table(), "steps": []})
            return self._shrunk(source, weights, recipe, state)
        finally:
            lock.release()

    # What was asked for, and what is there already.

    def _state(self, *, resume: bool) -> dict[str, Any]:
        """What an interrupted shrinking wrote; nothing of one that begins."""
        path = self.out / STATE
        if not path.is_file():
            there = self.out.is_dir() and any(one.name != ".lock" for one in self.out.iterdir())
            if there or self.out.is_file():
                raise InputError(f"{str(self.out)!r} is there already, and is left alone; choose another --out.")
            return {}
        state = read_json(path)
        if not resume:
            raise InputError(
                f"{str(self.out)!r} holds a shrinking already, and is left alone; go on with it by adding --resume, "
                f"or choose another --out."
            )
        if not isinstance(state, dict) or not {"asked", "steps", "command"} <= state.keys():
            raise InputError(f"{str(path)!r} does not describe a shrinking; choose another --out.")
        if state["asked"] != self.wanted.table():
            raise InputError(
                f"{str(self.out)!r} was begun as `{state['command']}`; give the same with --resume, or choose another "
                f"--out."
            )
        return state

    def _recipe(self, source: Run, weights: Weights) -> Recipe | None:
        """How its task is measured and learned: on data that is named, or the run's own; None where there is none."""
        start = {"path": self.what, "freeze": False}
        image = size_of(weights)
        if self.data:
            return read_recipe(self.data, weights=start, model=image)
        if source.recipe is None:
            return None
        table = source.recipe.model_dump(mode="json", exclude_unset=True)
        table = {name: value for name, value in table.items() if name not in ("teacher", "optim", "augment")}
        return parse_recipe({**table, "weights": start, "model": image}).absolute()

    # The steps.

    def _shrunk(self, source: Run, weights: Weights, recipe: Recipe | None, state: dict[str, Any]) -> Run:
        self.material = self._gathered(weights, recipe)
        original = self._original(source)
        self.scale = scale = Scale(original, self.material, self._working)
        if state.get("steps"):
            self.before = float(state.get("seconds", 0.0))
            every = [read_step(one) for one in state["steps"]]
            self.history = History(every[0], every[1:], [(name, why) for name, why in state.get("skipped", [])])
            scale.check(self.history.original)
            self._say(f"going on after step {len(every) - 1}")
        else:
            self.history = History(scale.step(original, 0, "original", empty(weights.config).summary()))
            self._write()
        for step in (self.history.original, *self.history.steps):
            self._say(line(step, self.metric))
        maker = Maker(
            original=original,
            material=self.material,
            value=scale.value,
            loses=scale.loses,
            most=self.goals.max_drop,
            settings=self.wanted.settings,
            command=self.command,
            progress=self.progress,
            quiet=self.quiet,
        )
        maker.check()
        for step in self.history.steps:
            maker.done(self.out / STEPS / step.folder)  # of one that was interrupted before it could
        while (following := self._next()) is not None:
            self._try(*following, maker)
            self._write()
        return self._finish(original)

    def _gathered(self, weights: Weights, recipe: Recipe | None) -> Material | None:
        """Read the data, without which what needs none is still done."""
        if recipe is None:
            return None
        try:
            material = Material.gathered(recipe, self.progress)
        except InputError as error:
            if self.data or any(not way.bare for way in self.asked):
                raise
            self._say(f"note: {error}\nnote: so what it is worth is not measured, and what needs data is left out")
            return None
        names = getattr(material.task, "names", None) or getattr(material.task, "labels", None)
        if names is not None and weights.labels != names:
            some = ", ".join(names[:5]) + ", ..." * (len(names) > 5)  # noqa: PLR2004
            raise InputError(
                f"{self.what!r} has no head for the classes of the data, {some}; train it on them first: "
                f"vitrail train DATA --weights {self.what}."
            )
        return material

    def _original(self, source: Run) -> Run:
        """The run that all is compared with: the source itself, or its weights on the data that is named."""
        if not self.data or self.material is None:
            return source
        run = Run(self.out / STEPS / "00-original")
        if not (run.path / "config.json").is_file():
            run.hold(source, self.material.task, self.command)
        return Run(run.path)

    def _next(self) -> tuple[Way, bool] | None:
        """What is tried next, and whether it is the last way by half; once the time is over, what needs no training."""
        steps, minutes = self.history.steps, self.goals.minutes
        over = minutes is not None and minutes - self._gone() / 60 < LEAST and bool(steps)
        weights = self._now().weights()
        last = steps[-1] if steps else None
        if last is not None and last.costly and not last.again and not last.halved and not over:
            milder = parse(last.name).milder(weights)
            if milder is not None:
                return milder, True
        if not self.asked:
            way = chosen(self.history, self.goals, weights, data=self.material is not None, hurry=over)
            return None if way is None else (way, False)
        done = sum(not step.again for step in steps) + len(self.history.skipped)
        while over and done < len(self.asked) and self.asked[done].trains:
            self._skip(self.asked[done], f"the {minutes:g} minutes are over")
            done += 1
        return (self.asked[done], False) if done < len(self.asked) else None

    def _now(self) -> Run:
        """The run of the last step that stays."""
        return self.scale.original if self.history.now.number == 0 else Run(self.out / STEPS / self.history.now.folder)

    def _skip(self, way: Way, why: str, *, again: bool = False) -> None:
        self._say(f"   {way} is left out: {why}")
        if again:
            *before, last = self.history.steps
            self.history = replace(self.history, steps=[*before, replace(last, halved=True)])
        else:
            self.history = replace(self.history, skipped=[*self.history.skipped, (way.name(), why)])

    def _try(self, way: Way, again: bool, maker: Maker) -> None:
        """Make a step, measure it, and decide whether it stays."""
        began, number, steps = time.monotonic(), len(self.history.steps) + 1, self.history.steps
        folder, before = self.out / STEPS / f"{number:02}-{_file_name(way)}", self._now()
        self._say(f"{number}. {way}: {way.about}")
        try:
            maker.cut(way, before, folder, self._minutes(way))
            if way.trains:
                maker.ready()
        except InputError as error:  # it does not fit what is left of the model
            maker.undo(folder)
            self._skip(way, str(error), again=again)
            return
        try:
            outcome = maker.finish(way, before, folder, self._minutes(way))
        except (NotFinite, NoFile) as error:
            maker.undo(folder)
            self._skip(way, str(error), again=again)
            return
        step = self.scale.step(Run(folder), number, str(way), outcome.note)
        step = self._judged(replace(step, cut=outcome.cut, again=again, folder=folder.name))
        step = replace(step, seconds=round(time.monotonic() - began, 1))
        self.history = replace(self.history, steps=[*steps, step])
        self._say(line(step, self.metric))
        self._write()
        maker.done(folder)

    def _minutes(self, way: Way) -> float | None:
        """What a training may take: an even part of what is left."""
        if self.goals.minutes is None or not way.trains:
            return None
        done = sum(not step.again for step in self.history.steps)
        several = 2 if isinstance(way, Together) else 4  # steps that train, about, where they are chosen
        rest = [one for one in self.asked[done:] if one.trains] if self.asked else range(max(1, several - done))
        left = self.goals.minutes - self._gone() / 60
        return max(LEAST, (1 - RESERVE) * left / max(1, len(rest)))

    def _judged(self, step: Step) -> Step:
        """With whether it stays, and why not."""
        most, before = self.goals.max_drop, self.history.now
        if step.drop is not None and not step.drop <= most + 1e-9:  # nor one that is no number
            why = f"undone: it loses {step.drop:.2f} points, and {most:g} may be lost"
            return replace(step, kept=False, costly=True, why=why)
        if not pays(before, step, asked=bool(self.asked)):
            return replace(step, kept=False, why="undone: it is slower than before, or neither faster nor smaller")
        return step

    @property
    def metric(self) -> Metric | None:
        """The headline number, where there is data."""
        return None if self.material is None else self.material.metric

    # What came of it.

    def _finish(self, original: Run) -> Run:
        """The last step that stays, as the run; and the page."""
        now = self._now()
        if (now.path / "config.json").is_file() and now.path.is_dir():
            now.copy(self.out, self.command)
        else:  # weights of another library, with which nothing paid
            original.derive(self.out, original.weights(), self.command)
        self._write(finished=True)
        write_shrink(self.out / PAGE, read_json(self.out / STATE))
        return Run(self.out)

    def _write(self, *, finished: bool = False) -> None:
        held = None if self.material is None else self.material.task.held_out
        times_of = self.history.original.times
        state = {
            "command": self.command,
            "asked": self.wanted.table(),
            "goals": asdict(self.goals),
            "machine": {"processor": processor(), "threads": torch.get_num_threads()},
            "measured on": None if held is None else {"part": held.part, "examples": len(held)},
            "metric": None if self.metric is None else asdict(self.metric),
            "seconds": round(self._gone(), 1),
            "finished": finished,
            "missed": self._missed() if finished else [],
            "frontier": {one.batch: [step.number for step in self.history.frontier(one.batch)] for one in times_of},
            "skipped": list(self.history.skipped),
            "steps": [step.table() for step in (self.history.original, *self.history.steps)],
        }
        write_json(self.out / STATE, state)

    def _missed(self) -> list[str]:
        return self.goals.missed(self.history.original, self.history.now, self._gone() / 60)

    def summary(self) -> str:
        """What came of it, in a sentence or two."""
        return summary(self.history, self.metric, self._missed(), self.out)

    def _gone(self) -> float:
        return self.before + time.monotonic() - self.began

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def _working(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self.quiet else working(what)


def _file_name(way: Way) -> str:
    """As a part of a path."""
    return "".join(letter if letter.isalnum() or letter == "." else "-" for letter in str(way))
