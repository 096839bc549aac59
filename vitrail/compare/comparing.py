"""A comparison: every cell an ordinary run, several at a time, and what came of all of them.

OUT/compare.json     what was asked for, every number, what differs
OUT/compare.csv      the numbers, a line for each cell
OUT/compare.html     the same as a page
OUT/cells/ARM/...    the runs
"""

import os
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vitrail.compare.asked import Asked
from vitrail.compare.cells import ASKED, DONE, FAILED, Cell, cells, code, digest, read_result
from vitrail.compare.experiments import Arm, Base, Experiment, experiments, over_fractions, varied
from vitrail.compare.findings import Findings
from vitrail.compare.running import run_all
from vitrail.config import assignments
from vitrail.errors import InputError
from vitrail.files import Pathlike, make_folder, read_json, write_json
from vitrail.machine import cores, processor
from vitrail.progress import Progress, silent
from vitrail.report import write_comparison
from vitrail.tasks import parse_recipe, read_recipe
from vitrail.tasks.registry import tasks
from vitrail.terminal.console import say
from vitrail.terminal.progress import counted, working
from vitrail.training import forecast
from vitrail.training.checkpoint import Lock

STATE, TABLE, PAGE, CELLS = "compare.json", "compare.csv", "compare.html", "cells"
ROOM = 3_000_000  # bytes of a cell beside its weights
SPARE = 2**30  # bytes that stay free on the disk


def compare(
    *what: Pathlike,
    out: Pathlike | None = None,
    seeds: int = 3,
    fractions: Sequence[float] = (),
    vary: Mapping[str, Sequence[Any]] | Iterable[str] = (),
    minutes: float | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    workers: int | None = None,
    again: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Set models beside each other: ``compare("positions", "photos/", seeds=5)``, ``compare("a.toml", "b.toml")``,
    ``compare("digits", vary={"model.depth": [2, 4, 6]})``.

    What came of it, as compare.json has it. Cells that are there already are not run again; with ``again`` those are
    that other code, or other data, have made.
    """
    several = (
        vary
        if not isinstance(vary, Mapping)
        else [f"{name}={','.join(map(str, values))}" for name, values in vary.items()]
    )
    asked = Asked(
        tuple(os.fspath(one) for one in what),
        seeds,
        tuple(fractions),
        tuple(several),
        minutes,
        tuple(assignments(settings)),
        workers,
        again,
    )
    return Comparing(asked, None if out is None else Path(out), quiet=quiet).run()


@dataclass(eq=False)
class Comparing:
    """One call of ``compare``."""

    asked: Asked
    out: Path | None = None
    quiet: bool = False
    failed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.asked.seeds < 1:
            raise InputError(f"--seeds {self.asked.seeds} does not fit; it should be 1 or more.")
        if any(not 0 < one <= 1 for one in self.asked.fractions):
            raise InputError("--fractions are parts of the data, above 0 and at most 1, such as 0.01 0.1 1.")
        self.progress: Progress = silent if self.quiet else counted
        self.experiment, self.base = self._experiment()
        self.folder = self.out or Path("runs") / f"compare-{self.experiment.name}"
        axis = self.experiment.axis
        if axis is not None and self.asked.fractions:
            raise InputError(f"{self.experiment.name} is compared over {axis.name}; leave --fractions out.")
        self.axis = axis or over_fractions(sorted(self.asked.fractions) or [1.0])
        self.cells = cells(self.experiment.arms, self.asked.seeds, self.axis.values)

    @property
    def command(self) -> str:
        """Which asks for it."""
        return shlex.join(self.asked.words(self.folder))

    # What is compared.

    def _experiment(self) -> tuple[Experiment, dict[str, Any]]:
        """The arms, and the recipe that they start from."""
        what, rest = (self.asked.what or ("",))[0], self.asked.what[1:]
        recipes = [one for one in self.asked.what if one.endswith(".toml")]
        if self.asked.vary:
            base = self._table(self.asked.what or ("digits",))
            return Experiment("vary", "What does each value do?", varied(self.asked.vary)), base
        if len(recipes) == len(self.asked.what) > 1:
            return self._recipes(recipes)
        if what not in experiments:
            names = ", ".join(experiments)
            raise InputError(
                f"{what!r} is no experiment; choose one of {names}, or give recipes (a.toml b.toml), or data and what "
                f"is varied (--vary model.depth=2,4,6)."
            )
        base = self._table(rest or ("digits",))
        with self._working("Starting ..."):
            task = tasks[base.get("task", "pictures")].prepare(parse_recipe(base), silent)
        if base.get("task", "pictures") != "pictures":
            raise InputError(f"{what} is compared on pictures; vary fields of other tasks with --vary.")
        return experiments[what](Base(task.config, task.counts[0])), base

    def _table(self, what: Sequence[str]) -> dict[str, Any]:
        recipe = read_recipe(list(what), self.asked.settings)
        return recipe.model_dump(mode="json", exclude_unset=True)

    def _recipes(self, paths: Sequence[str]) -> tuple[Experiment, dict[str, Any]]:
        """Recipes as arms: what each of them says, over nothing."""
        tables = [self._table([path]) for path in paths]
        kinds = {table.get("task", "pictures") for table in tables}
        if len(kinds) > 1:
            raise InputError(f"the recipes are of several tasks, {', '.join(sorted(kinds))}; compare those of one.")
        arms = [
            Arm(
                Path(path).stem,
                {
                    f"{section}.{name}": one
                    for section, value in table.items()
                    if isinstance(value, dict)
                    for name, one in value.items()
                },
            )
            for path, table in zip(paths, tables, strict=True)
        ]
        return Experiment("recipes", "Which recipe is better?", arms), {"task": kinds.pop()}

    # The cells.

    def run(self) -> dict[str, Any]:
        """Run the cells that are not there yet, and say what came of all of them."""
        before = self._state()
        make_folder(self.folder)
        lock = Lock(self.folder)
        try:
            tables = self._tables(before)
            todo = self._todo(tables)
            self._plan(tables, todo)
            self._write(tables, finished=False)
            self._run(tables, todo)
            return self._write(tables, finished=True)
        finally:
            lock.release()

    def _state(self) -> dict[str, Any]:
        path = self.folder / STATE
        if not path.is_file():
            if self.folder.is_dir() and any(one.name != ".lock" for one in self.folder.iterdir()):
                raise InputError(f"{str(self.folder)!r} is there already, and is left alone; choose another --out.")
            return {}
        state = read_json(path)
        if not isinstance(state, dict) or state.get("asked") != self.asked.same():
            raise InputError(
                f"{str(self.folder)!r} holds another comparison, `{state.get('command', '')}`; give the same "
                f"with other --seeds or --fractions, or choose another --out."
            )
        return state

    def _tables(self, before: Mapping[str, Any]) -> dict[Cell, dict[str, Any]]:
        """The recipe of each cell, with fewer epochs where there is not time enough for all that it would have."""
        tables = {cell: cell.table(self.base, self.axis, self.experiment.shared) for cell in self.cells}
        epochs: dict[str, int] = dict(before.get("epochs", {}))
        if self.asked.minutes is not None:
            epochs = self._paced(tables, epochs)
            for cell, table in tables.items():
                if _place(cell) in epochs:
                    table.setdefault("train", {})["epochs"] = epochs[_place(cell)]
        self.epochs = epochs
        return tables

    def _paced(self, tables: Mapping[Cell, dict[str, Any]], known: dict[str, int]) -> dict[str, int]:
        """Epochs for each arm and place, so that all cells end in time; those that are known stay."""
        first = {_place(cell): table for cell, table in tables.items() if cell.seed == 0}
        if all(place in known for place in first):
            return known
        looked = {
            place: self._forecast(table) for place, table in self.progress("arms looked at", first.items(), len(first))
        }
        whole = self.asked.seeds * sum(seconds for _, seconds in looked.values()) / self._workers
        share = 60 * (self.asked.minutes or 0.0) / max(whole, 1e-9)
        found = {place: max(1, round(min(1.0, share) * epochs)) for place, (epochs, _) in looked.items() if epochs}
        return {**found, **known}

    def _forecast(self, table: Mapping[str, Any]) -> tuple[int, float]:
        """Epochs and seconds of a cell as it would be; no epochs of what is fitted at once."""
        recipe = parse_recipe(table)
        task = tasks[recipe.task].prepare(recipe)
        expected = forecast(task)
        return (0 if task.at_once else task.recipe.train.epochs), expected.seconds

    def _todo(self, tables: Mapping[Cell, dict[str, Any]]) -> list[Cell]:
        """The cells that are not there; what is there has to be by this code, on this data."""
        there = [cell for cell in tables if (self._folder(cell) / DONE).is_file()]
        strange = []
        seen: str | None = None
        for cell in there:
            told = read_json(self._folder(cell) / DONE)
            seen = seen or told.get("data")
            other = [
                name
                for name, own in (("code", code()), ("recipe", digest(tables[cell])), ("data", seen))
                if told.get(name) != own
            ]
            if other:
                strange.append((cell, other[0]))
        if strange and not self.asked.again:
            cell, why = strange[0]
            raise InputError(
                f"{len(strange)} of the cells in {str(self.folder)!r} were made by another {why}, such as {cell.name}, "
                f"and may not be comparable; run them anew with --again, or choose another --out."
            )
        for cell, _ in strange:
            shutil.rmtree(self._folder(cell))
        gone = {cell for cell, _ in strange}
        return [cell for cell in tables if cell not in there or cell in gone]

    def _plan(self, tables: Mapping[Cell, dict[str, Any]], todo: Sequence[Cell]) -> None:
        """Say what will be done, and refuse what there is no room for."""
        done = len(tables) - len(todo)
        room = sum(ROOM + 4 * self._parameters(tables[cell]) for cell in todo)
        free = shutil.disk_usage(self.folder).free
        if room + SPARE > free:
            raise InputError(
                f"{len(todo)} cells take about {room / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in "
                f"{str(self.folder)!r}; choose another --out, or fewer seeds."
            )
        arms = f"{len(self.experiment.arms)} arms"
        over = f" x {len(self.axis.values)} of {self.axis.name}" if len(self.axis.values) > 1 else ""
        said = f"{len(tables)} cells: {arms}{over} x {self.asked.seeds} seeds"
        self._say(f"{said}{f', {done} of them done' if done else ''}, {self._workers} at a time, in {self.folder}")

    def _parameters(self, table: Mapping[str, Any]) -> int:
        model = table.get("model", {})
        return int(model.get("width", 128)) ** 2 * 12 * int(model.get("depth", 6) if isinstance(model, dict) else 6)

    @property
    def _workers(self) -> int:
        return max(1, min(self.asked.workers or cores(), len(self.cells)))

    def _run(self, tables: Mapping[Cell, dict[str, Any]], todo: Sequence[Cell]) -> None:
        """Run cells, several at a time; those that fail are named, and the others go on."""
        folders = {self._ask(cell, tables[cell]): cell for cell in todo}
        ended = run_all(list(folders), self._workers, {"VITRAIL_COMMAND": self.command})
        for folder, status in self.progress("cells", ended, len(todo)) if todo else ():
            self._judge(folders[folder], folder, status)

    def _ask(self, cell: Cell, table: dict[str, Any]) -> Path:
        folder = self._folder(cell)
        make_folder(folder.parent)
        asked = {"recipe": table, "measures": list(self.experiment.measures), "command": self.command}
        write_json(folder.with_name(f"{folder.name}.{ASKED}"), asked)
        return folder

    def _judge(self, cell: Cell, folder: Path, status: int) -> None:
        if status == 0 and (folder / DONE).is_file():
            return
        failed = folder.with_name(f"{folder.name}.{FAILED}")
        why = read_json(failed)["why"] if failed.is_file() else f"it ended with status {status}; see {folder}.log"
        self.failed[cell.name] = why
        self._say(f"warning: {cell.name} failed: {why}")

    def _folder(self, cell: Cell) -> Path:
        return self.folder / CELLS / cell.name

    # What came of it.

    def _write(self, tables: Mapping[Cell, dict[str, Any]], *, finished: bool) -> dict[str, Any]:
        results = [read_result(cell, self.folder / CELLS) for cell in tables if (self._folder(cell) / DONE).is_file()]
        findings = Findings(self.experiment, self.axis, results, self._metric())
        state = {
            "command": self.command,
            "asked": self.asked.same(),
            "experiment": {
                "name": self.experiment.name,
                "question": self.experiment.question,
                "said": self.experiment.said,
            },
            "code": code(),
            "machine": {"processor": processor(), "cores": cores()},
            "finished": finished,
            "when": time.strftime("%Y-%m-%d"),
            "epochs": self.epochs,
            "failed": self.failed,
            **findings.table(),
        }
        write_json(self.folder / STATE, state)
        if results:
            findings.write_csv(self.folder / TABLE)
            write_comparison(self.folder / PAGE, state)
        return state

    def _metric(self) -> Any:
        return tasks[self.base.get("task", "pictures")].metric

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def _working(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self.quiet else working(what)


def _place(cell: Cell) -> str:
    return f"{cell.arm.name} @ {cell.at:g}"
