"""A comparison: every cell an ordinary run, several at a time, and what came of all of them.

OUT/compare.json     what was asked for, every number, what differs
OUT/compare.csv      the numbers, a line for each cell
OUT/compare.png      the headline number as a figure
OUT/compare.html     all of it as a page
OUT/positions-*.png  where positions are compared: what each became
OUT/cells/ARM/...    the runs
"""

import json
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
from vitrail.compare.cell import STOPPED
from vitrail.compare.cells import ASKED, DONE, FAILED, Cell, code, digest, read_result
from vitrail.compare.findings import Findings
from vitrail.compare.forecasts import START, Expected, expected, together
from vitrail.compare.plan import planned, seldom
from vitrail.compare.running import run_all
from vitrail.compare.sources import data_digest
from vitrail.config import assignments
from vitrail.errors import InputError
from vitrail.files import Pathlike, make_folder, read_json, write_json
from vitrail.machine import cores, processor
from vitrail.progress import Progress, silent
from vitrail.report import write_comparison
from vitrail.report.compare_figure import draw_comparison
from vitrail.report.positions import draw_arms
from vitrail.runs import Run
from vitrail.terminal.console import say
from vitrail.terminal.progress import counted, span, working
from vitrail.training.checkpoint import Lock

STATE, TABLE, FIGURE, PAGE, CELLS = "compare.json", "compare.csv", "compare.png", "compare.html", "cells"
OFTEN = 10.0  # seconds between two looks at what came so far
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
    if isinstance(vary, Mapping):
        vary = [f"{name}={','.join(map(json.dumps, values))}" for name, values in vary.items()]
    asked = Asked(
        tuple(os.fspath(one) for one in what),
        seeds,
        tuple(fractions),
        tuple(vary),
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
        self.progress: Progress = silent if self.quiet else counted
        with self._working("Starting ..."):
            self.plan = planned(self.asked)
        self.folder = self.out or Path("runs") / f"compare-{self.plan.experiment.name}"
        self.workers = max(1, min(self.asked.workers or cores(), len(self.plan.tables)))
        self.expected: dict[str, Expected] = {}  # of a cell at each place
        self.pace: float | None = None  # of the epochs that cells would have, where there are minutes
        self.epochs: dict[str, int] = {}
        self.data: dict[str, str] = {}  # of each data section, what tells it from others

    @property
    def command(self) -> str:
        """Which asks for it."""
        return shlex.join(self.asked.words(self.folder))

    def run(self) -> dict[str, Any]:
        """Run the cells that are not there yet, and say what came of all of them."""
        before = self._state()
        make_folder(self.folder)
        lock = Lock(self.folder)
        try:
            tables = self._paced(before)
            with self._working("Looking at the data ..."):
                todo = self._todo(tables)
            self._say_plan(tables, {cell: tables[cell] for cell in todo})
            self._write(finished=False)
            self._run(tables, todo)
            return self._write(finished=not self._missing())
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
            command = state.get("command", "") if isinstance(state, dict) else ""
            raise InputError(
                f"{str(self.folder)!r} holds another comparison, `{command}`; give the same with other --seeds or "
                f"--fractions, or choose another --out."
            )
        return state

    # The cells.

    def _paced(self, before: Mapping[str, Any]) -> dict[Cell, dict[str, Any]]:
        """The recipe of each cell; where there are minutes, with all epochs cut by one factor, found once."""
        tables = dict(self.plan.tables)
        if "train.evaluate" not in self.plan.said:
            tables = {cell: seldom(table) for cell, table in tables.items()}
        if self.asked.minutes is None:
            return tables
        self.pace, self.epochs = before.get("pace"), dict(before.get("epochs", {}))
        new = {cell: table for cell, table in tables.items() if cell.place not in self.epochs}
        self._try_shapes(new)
        if self.pace is None:
            training = sum(self.expected[cell.place].seconds - START for cell in new)
            given = 60 * self.asked.minutes * self.workers - START * len(new)
            self.pace = min(1.0, max(0.0, given) / max(training, 1e-9))
        for place in {cell.place for cell in new}:
            epochs = self.expected[place].epochs
            self.epochs[place] = max(1, round(self.pace * epochs)) if epochs else 0
        for cell, table in tables.items():
            if self.epochs[cell.place]:
                train = {**table.get("train", {}), "epochs": self.epochs[cell.place]}
                often = {"evaluate": min(train["evaluate"], train["epochs"])} if train.get("evaluate") else {}
                table["train"] = {**train, **often}
        return tables

    def _try_shapes(self, tables: Mapping[Cell, dict[str, Any]]) -> None:
        """Find what cells will take, each place once, and how many of them there is memory for at a time."""
        new = {cell.place: table for cell, table in tables.items() if cell.place not in self.expected}
        for place, table in self.progress("shapes tried", new.items(), len(new)) if new else ():
            self.expected[place] = expected(table, self.workers)
        if self.asked.workers is None:
            self.workers = together(self.workers, self.expected.values())

    def _todo(self, tables: Mapping[Cell, dict[str, Any]]) -> list[Cell]:
        """The cells that are not there; what is there has to be by this code, of this recipe, on this data."""
        todo, strange = list[Cell](), list[tuple[Cell, str]]()
        for cell, table in tables.items():
            folder = self._folder(cell)
            asked = folder.with_name(f"{folder.name}.{ASKED}")
            record = _table(folder / DONE) or (_table(asked) if folder.is_dir() else {})
            own = {"code": code(), "recipe": digest(table), "data": self._data(table)}
            other = next(
                (name for name, value in own.items() if record and record.get("by", {}).get(name) != value), None
            )
            if other is not None and (folder / DONE).is_file():
                strange.append((cell, other))
            elif other is not None:  # it was not finished, and nothing of it counts
                shutil.rmtree(folder)
            if not (folder / DONE).is_file():
                todo.append(cell)
        if strange and not self.asked.again:
            cell, why = strange[0]
            raise InputError(
                f"{len(strange)} of the cells in {str(self.folder)!r} were made by other {why}, such as {cell.name}, "
                f"and may not be comparable; run them anew with --again, or choose another --out."
            )
        for cell, _ in strange:
            shutil.rmtree(self._folder(cell))
        return [*todo, *(cell for cell, _ in strange)]

    def _data(self, table: Mapping[str, Any]) -> str:
        section = repr(sorted(table.get("data", {}).items(), key=lambda one: one[0]))
        if section not in self.data:
            self.data[section] = data_digest(table)
        return self.data[section]

    def _say_plan(self, tables: Mapping[Cell, dict[str, Any]], todo: Mapping[Cell, dict[str, Any]]) -> None:
        """Say what will be done, and refuse what there is no room for."""
        self._try_shapes(todo)
        looked = [self.expected[cell.place] for cell in todo]
        meanwhile = self.workers * max((one.meanwhile for one in looked), default=0)
        done, axis, size = len(tables) - len(todo), self.plan.axis, sum(one.room for one in looked) + meanwhile
        free = shutil.disk_usage(self.folder).free
        if size + SPARE > free:
            raise InputError(
                f"{len(todo)} cells take about {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in "
                f"{str(self.folder)!r}; choose another --out, or fewer seeds."
            )
        over = f" x {len(axis.values)} of {axis.name}" if len(axis.values) > 1 else ""
        seeds = f"{self.asked.seeds} seed{'s' * (self.asked.seeds > 1)}"
        count = f"{len(tables)} cells: {len(self.plan.experiment.arms)} arms{over} x {seeds}"
        cut = f", with {self.pace:.0%} of the epochs" if self.pace is not None and self.pace < 1 else ""
        ended = f", {done} of them done" if done else ""
        self._say(f"{count}{ended}{cut}, in {self.folder}")
        if todo:
            took = span(sum(self._seconds(cell) for cell in todo) / self.workers)
            self._say(f"about {took} with {self.workers} at a time, and {size / 1e6:,.0f} MB")

    def _seconds(self, cell: Cell) -> float:
        """That a cell will take."""
        found = self.expected[cell.place]
        return found.of(self.epochs.get(cell.place, found.epochs))

    def _run(self, tables: Mapping[Cell, dict[str, Any]], todo: Sequence[Cell]) -> None:
        """Run cells, several at a time; those that fail are named, and the others go on."""
        folders = {self._ask(cell, tables[cell]): cell for cell in todo}
        written = time.monotonic()
        ended = run_all(list(folders), self.workers, {"VITRAIL_COMMAND": self.command})
        try:
            for folder, status in self.progress("cells", ended, len(todo)) if todo else ():
                self._judge(folders[folder], folder, status)
                if time.monotonic() - written > OFTEN:
                    self._write(finished=False)
                    written = time.monotonic()
        finally:
            ended.close()
            self._write(finished=False)

    def _ask(self, cell: Cell, table: dict[str, Any]) -> Path:
        folder = self._folder(cell)
        make_folder(folder.parent)
        by = {"code": code(), "recipe": digest(table), "data": self._data(table)}
        own = {"measures": list(self.plan.experiment.measures), "followed": bool(self.plan.experiment.followed)}
        asked = {"recipe": table, **own, "command": self.command, "by": by}
        write_json(folder.with_name(f"{folder.name}.{ASKED}"), asked)
        return folder

    def _judge(self, cell: Cell, folder: Path, status: int) -> None:
        if status == STOPPED or (status == 0 and (folder / DONE).is_file()):
            return
        failed = _table(folder.with_name(f"{folder.name}.{FAILED}"))
        why = failed.get("why") or f"it ended with status {status}; see {folder}.log"
        self.failed[cell.name] = why
        self._say(f"warning: {cell.name} failed: {why}")

    def _missing(self) -> bool:
        """Whether there are cells that neither came to an end nor failed."""
        left = [cell for cell in self.plan.tables if not (self._folder(cell) / DONE).is_file()]
        return any(cell.name not in self.failed for cell in left)

    def _folder(self, cell: Cell) -> Path:
        return self.folder / CELLS / cell.name

    # What came of it.

    def _write(self, *, finished: bool) -> dict[str, Any]:
        experiment, there = self.plan.experiment, self.folder / CELLS
        results = [read_result(cell, there) for cell in self.plan.tables if (self._folder(cell) / DONE).is_file()]
        findings = Findings(experiment, self.plan.axis, results, self.plan.metric)
        state = {
            "command": self.command,
            "asked": self.asked.same(),
            "experiment": {"name": experiment.name, "question": experiment.question, "said": experiment.said},
            "code": code(),
            "machine": {"processor": processor(), "cores": cores()},
            "finished": finished,
            "when": time.strftime("%Y-%m-%d"),
            "pace": self.pace,
            "epochs": self.epochs,
            "failed": self.failed,
            **findings.table(),
        }
        write_json(self.folder / STATE, state)
        if results:
            findings.write_csv(self.folder / TABLE)
            draw_comparison(self.folder / FIGURE, state)
            write_comparison(self.folder / PAGE, {**state, "pictures": self._pictures(finished=finished)})
        return state

    def _pictures(self, *, finished: bool) -> list[Any]:
        """What is drawn of the models of each arm, once they are all there: of the first seed, at the last place."""
        if not finished or not self.plan.experiment.positions:
            return []
        last = {cell.arm.name: cell for cell in self.plan.tables if cell.seed == 0}
        there = [cell for cell in last.values() if (self._folder(cell) / DONE).is_file()]
        models = {cell.folder: (cell.arm.name, Run(self._folder(cell)).weights().model()) for cell in there}
        return draw_arms(models, self.folder)

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def _working(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self.quiet else working(what)


def _table(path: Path) -> dict[str, Any]:
    """What a file says; nothing, if it is not there or not whole."""
    try:
        table = read_json(path) if path.is_file() else {}
    except InputError:
        return {}
    return table if isinstance(table, dict) else {}
