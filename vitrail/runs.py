"""The run directory: this module alone reads and writes one.

config.json  model.safetensors  labels.json     the model, and what it is used with: weights.save writes them
recipe.json                                     what the run is: its recipe, its command, what was chosen and why
data.json                                       what the task found, what it set aside, and what it held out
metrics.jsonl                                   a line for each step and each measurement
scores.json                                     all numbers of the last measurement
checkpoints/  history/  tensorboard/            to go on from; models kept along the way; if asked for
last/                                           the model of the last step, where a better one is the run's own
report.html                                     what report.write_report made of all that
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from vitrail.beginning import check_same, description, upgraded
from vitrail.data.normalise import Normalise
from vitrail.distributed import ALONE, World
from vitrail.errors import InputError
from vitrail.families import Model, families
from vitrail.files import Pathlike, make_folder, read_json, write_json
from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import EvaluationSet, Measurement, Task, Trained
from vitrail.training import Result
from vitrail.training.checkpoint import Checkpoints, Lock, unpack
from vitrail.training.log import Log, read_metrics
from vitrail.weights import Weights, read, save
from vitrail.weights.onnx_decoding import read_translator
from vitrail.weights.weights import checked_config, stated_fit, stated_labels, stated_normalise

HISTORY, LAST = "history", "last"


def open_run(path: Pathlike) -> "Run":
    """The run in a directory, or weights from elsewhere, to use."""
    if not os.fspath(path).startswith("hf:") and not Path(path).exists():
        raise InputError(f"{str(path)!r} is not there; give a run directory, a file of weights, or hf:owner/name.")
    return Run(path)


class Run:
    """A run directory; or weights from elsewhere, which can be used like one, and say less about themselves."""

    def __init__(self, path: Pathlike) -> None:
        self.name = str(path)
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Run({self.name!r})"

    # What is in it.

    @cached_property
    def begun(self) -> dict[str, Any]:
        """What the run was when it began; empty of what is no run."""
        return upgraded(self._table("recipe.json"))

    @cached_property
    def data(self) -> dict[str, Any]:
        """What its task said of the data."""
        return self._table("data.json")

    @property
    def about(self) -> dict[str, Any]:
        """What its model is."""
        return self._table("config.json")

    @property
    def result(self) -> dict[str, Any]:
        """What it came to."""
        return self.about.get("result", {})

    @cached_property
    def recipe(self) -> Recipe | None:
        """What was trained, with nothing left out; None of weights that are no run's."""
        table = self.origin.begun.get("recipe")
        if table is not None and not isinstance(table, dict):
            raise InputError(f"{str(self.path / 'recipe.json')!r} does not describe a run; name the data.")
        return None if table is None else parse_recipe(table)

    @property
    def task(self) -> type[Task]:
        """The task that the model is for; weights from elsewhere label pictures."""
        about = self.about if "family" in self.about else self.begun.get("model", {})  # of a run that has not finished
        name = about.get("task")
        if not name:  # told by the tensors, where nothing says it
            weights = self.weights()
            name = families[weights.family].task_of(weights.config)
        if not name:
            raise InputError(f"{self.name!r} does not say which task it is for; train it, or load it with vt.load.")
        return tasks[name]

    @property
    def started(self) -> bool:
        """Whether it was begun, and can be gone on with."""
        return (self.path / "recipe.json").is_file()

    def metrics(self) -> list[dict[str, Any]]:
        """Its steps and measurements, a line each."""
        return read_metrics(self.path / "metrics.jsonl")

    @property
    def history(self) -> "dict[int, Run]":
        """The models that were kept along the way, by the step they were kept at."""
        folder = self.path / HISTORY
        kept = sorted(path for path in folder.glob("*") if path.name.isdigit()) if folder.is_dir() else []
        return {int(path.name): Run(path) for path in kept}

    @property
    def origin(self) -> "Run":
        """The run that a model kept along the way, or at the end of it, is of; else the run itself."""
        folder = self.path.resolve()
        if (folder / "recipe.json").is_file():
            return self
        if folder.name == LAST and (folder.parent / "recipe.json").is_file():
            return Run(folder.parent)
        kept = folder.parent.name == HISTORY and folder.name.isdigit()
        return Run(folder.parent.parent) if kept else self

    def weights(self, **options: Any) -> Weights:
        """Its tensors, with all that is known about them; options as of ``vt.load``.

        Those of a run that has not finished are as they were at its newest checkpoint.
        """
        finished = (self.path / "model.safetensors").is_file()
        if not finished and (self.path / "recipe.json").is_file() and isinstance(self.begun.get("model"), dict):
            newest = self.checkpoints.newest()
            if newest is not None:
                return self._unfinished(*newest[:2], normalise=options.get("normalise"))
        return read(self.name, **options)

    def answering(self, **options: Any) -> Weights:
        """What answers soonest: ONNX files beside its tensors, where the run says that there are some; else those."""
        files = self.answers
        if not files or any(value is not None for value in options.values()):
            return self.weights(**options)
        return read(files[0]) if len(files) == 1 else read_translator(files)

    @property
    def answers(self) -> list[Path]:
        """The ONNX files that it answers by; none, where it has none, or they are not all there."""
        named = self.about.get("answers", [])
        files = [self.path / str(name) for name in ([named] if isinstance(named, str) else named)]
        return files if all(file.is_file() for file in files) else []

    def _unfinished(self, step: int, data: bytes, normalise: Any) -> Weights:
        about, state = self.begun["model"], unpack(data)
        averaged = {name.removeprefix("module."): tensor for name, tensor in state["average"].items()}
        averaged.pop("n_averaged", None)
        tensors = averaged or state["model"]
        return Weights(
            self.name,
            "vitrail",
            about["family"],
            checked_config(self.name, about["family"], about["model"], tensors),
            tensors,
            Normalise.of(normalise) or stated_normalise(about, self.name),
            stated_labels(about.get("labels"), self.name),
            [f"the run has not finished: this is its model after step {step:,}"],
            fit=stated_fit(about),
        )

    def _table(self, name: str) -> dict[str, Any]:
        path = self.path / name
        table = read_json(path) if path.is_file() else {}
        if not isinstance(table, dict):
            raise InputError(f"{str(path)!r} is not a table of fields; take it from the run again.")
        return table

    # What it is for.

    def trained(self, weights: Weights | None = None) -> Trained:
        """What its task needs to use it."""
        weights = weights or self.weights()
        folder = Path(weights.path) if self.name.startswith("hf:") else self.path  # where it was fetched to
        return Trained(weights, folder, self.recipe, self.origin.data)

    def evaluation_set(
        self,
        data: Iterable[Pathlike] | Pathlike | None = None,
        progress: Progress = silent,
        *,
        weights: Weights | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> EvaluationSet:
        """What the model is measured on: data that is named, or the part that the run held out."""
        return self.task.evaluation_set(self.trained(weights), _named(data), progress, options)

    def evaluate(
        self, data: Iterable[Pathlike] | Pathlike | None = None, progress: Progress = silent, **options: Any
    ) -> Measurement:
        """Measure the model; options are the task's, such as ``beam=1`` of translating."""
        weights = self.answering()
        return self.evaluation_set(data, progress, weights=weights, options=options).measure(weights.model().float())

    def predict(self, inputs: Iterable[Pathlike] | Pathlike, **options: Any) -> list[Any]:
        """What the model says: an answer for each input, such as a picture's file; options are the task's."""
        return self.task.predict(self.trained(self.answering()), _named(inputs), **options)

    # How it is made.

    @property
    def checkpoints(self) -> Checkpoints:
        """What it goes on from."""
        return Checkpoints(self.path / "checkpoints")

    def log(self, step: int, *, on: bool = True, board: bool = False) -> Log:
        """Where its steps are written, those after a step being left out."""
        return Log(self.path / "metrics.jsonl", step, on=on, board=self.path / "tensorboard" if board else None)

    def keep(self, step: int, model: Model, task: Task) -> None:
        """Keep the model as it is now, as a run directory of its own."""
        self._save(make_folder(self.path / HISTORY) / f"{step:08}", model, task)

    def keep_last(self, model: Model | None, task: Task) -> None:
        """Keep the model of the last step, where the run's own is a better one; None: where it is the run's own."""
        if model is not None:
            self._save(self.path / LAST, model, task)
        else:
            shutil.rmtree(self.path / LAST, ignore_errors=True)  # of an earlier end

    def finish(self, model: Model, task: Task, result: Result) -> None:
        """Write the model, what it is used with and what it is worth."""
        if result.measurement.scores is not None:
            write_json(self.path / "scores.json", asdict(result.measurement.scores))
        self._save(self.path, model, task, result=result.line())

    def hold(self, source: "Run", task: Task, command: str) -> None:
        """Write a model that was trained elsewhere as a run of a task, as if it had been learned in it: one that runs
        as an ONNX file, or is packed, stays so.
        """
        make_folder(self.path)
        self.begin(task, ALONE, command)
        same = task.config == source.weights().config  # which files that answer are of
        names = ("answers", "packed", "zeros") if same else ("packed", "zeros")
        kept = {name: source.about[name] for name in names if name in source.about}
        self._save(self.path, task.model(), task, **kept)
        for file in (source.path / "model.safetensors", *(source.answers if same else ())) if kept else ():
            if file.is_file():
                shutil.copyfile(file, self.path / file.name)

    def copy(self, folder: Path, command: str) -> "Run":
        """The same run in another directory: its model, what it is used with, and what it is."""
        make_folder(folder)
        for file in sorted(self.path.iterdir()):
            if file.is_file() and not file.name.startswith("."):
                shutil.copyfile(file, folder / file.name)
        if self.begun:
            write_json(folder / "recipe.json", {**self.begun, "command": command})
        return Run(folder)

    def _save(self, folder: Path, model: Model, task: Task, **about: Any) -> None:
        make_folder(folder)
        task.keep(folder)
        save(model, folder, **task.usage(), task=task.recipe.task, **about)

    def derive(
        self,
        folder: Path,
        weights: Weights,
        command: str,
        *,
        bits: int | None = None,
        sparse: bool = False,
        **about: Any,
    ) -> "Run":
        """Another model of the same task and data, as a run of its own: with what is known of this run's."""
        make_folder(folder)
        origin = self.origin
        kept: dict[str, Any] = {"packed": bits} if bits is not None else {}
        kept |= {"zeros": True} if sparse else {}
        for file in sorted(origin.path.glob("*tokenizer.json")) if origin.path.resolve() != folder.resolve() else ():
            shutil.copyfile(file, folder / file.name)
        if origin.data:
            write_json(folder / "data.json", origin.data)
        save(
            weights.model(),
            folder,
            normalise=weights.normalise,
            labels=weights.labels,
            fit=weights.fit,
            bits=bits,
            sparse=sparse,
            task=self.about.get("task") or families[weights.family].task_of(weights.config),
            **{**about, **kept},
        )
        if origin.begun:
            model = {"name": weights.family, **weights.config.model_dump(mode="json")}
            recipe = {name: one for name, one in origin.begun["recipe"].items() if name not in ("weights", "teacher")}
            now = {"command": command, "recipe": {**recipe, "model": model}, "derived": True}
            write_json(folder / "recipe.json", {**origin.begun, **now})
        return Run(folder)

    def check_free(self, *, resume: bool) -> None:
        """A folder that holds something is not written to, but to go on with the run that is in it."""
        out = self.path
        if out.exists() and not out.is_dir():
            raise InputError(f"{str(out)!r} is a file, and is left alone; choose another --out.")
        begun = (out / "recipe.json").is_file()
        there = out.is_dir() and any(not _before(path) for path in out.iterdir())
        if there and not begun:
            raise InputError(f"{str(out)!r} is there already, and is left alone; choose another --out, or remove it.")
        if there and not resume:
            raise InputError(
                f"{str(out)!r} holds a run already, and is left alone; go on with it by adding --resume, "
                f"or choose another --out."
            )

    @contextmanager
    def held(self, world: World, *, resume: bool) -> Iterator[None]:
        """Hold the run directory for this training alone."""
        if not world.first:
            yield
            return
        make_folder(self.path)
        lock = Lock(self.path)
        try:
            self.check_free(resume=resume)
            for stray in self.path.glob(".*.part"):  # of a process that was killed
                stray.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    def begin(self, task: Task, world: World, command: str) -> None:
        """Write what the run is, before its first step; a run that goes on should be the one that was begun."""
        now = description(task, world, command)
        path = self.path / "recipe.json"
        before = upgraded(read_json(path)) if path.is_file() else None
        if before is not None:
            check_same(before, now, self.path)
            if now["recipe"] == before["recipe"]:
                return
            now = {**before, "recipe": now["recipe"]}  # which has more time, or epochs
        else:
            write_json(self.path / "data.json", task.record())
            task.keep(self.path)
        write_json(path, now)


def _named(what: Iterable[Pathlike] | Pathlike | None) -> list[str]:
    """What a user names, one thing or several."""
    several = [] if what is None else [what] if isinstance(what, str | os.PathLike) else what
    return [os.fspath(one) for one in several]


def _before(path: Path) -> bool:
    """Whether a file is one that a process killed before the run began may leave: recipe.json is written last."""
    kept = path.name in (".lock", "data.json") or path.name.endswith("tokenizer.json")
    return kept or (path.name.startswith(".") and path.suffix == ".part")
