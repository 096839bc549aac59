"""A comparison: every cell an ordinary run, several at a time, and what came of all of them."""

import json
import os
import shlex
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from pathlib import Path
from typing import Any

from vitrail.compare.cell import STOPPED
from vitrail.compare.cells import Cell, code, digest
from vitrail.compare.findings import Findings
from vitrail.compare.forecasts import Expected, elapsed, expected, paced, together
from vitrail.compare.plan import laid, planned, seldom
from vitrail.compare.processes import run_all
from vitrail.compare.request import Request
from vitrail.compare.sources import digest_of, placeless, sources_of
from vitrail.compare.store import FIGURE, PAGE, TABLE, Mark, Store, refuse
from vitrail.config import assignments
from vitrail.errors import InputError
from vitrail.files import Pathlike, make_folder
from vitrail.machine import cores, processor
from vitrail.progress import Progress, silent
from vitrail.report import write_comparison
from vitrail.report.compare_figure import draw_comparison
from vitrail.report.positions import draw_arms
from vitrail.runs import Run
from vitrail.terminal.console import say
from vitrail.terminal.progress import counted, span, working
from vitrail.training.checkpoint import Lock

OFTEN = 10.0  # seconds between two looks at what came so far
SPARE = 2**30  # bytes that stay free on the disk
Tables = Mapping[Cell, dict[str, Any]]  # the recipe of each cell


def compare(
    *what: Pathlike,
    out: Pathlike | None = None,
    seeds: int = 3,
    fractions: Sequence[float] = (),
    vary: Mapping[str, Sequence[Any]] | Iterable[str] = (),
    minutes: float | None = None,
    settings: Mapping[str, Any] | Iterable[str] = (),
    only: Sequence[str] = (),
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
    request = Request(
        tuple(os.fspath(one) for one in what),
        seeds,
        tuple(fractions),
        tuple(vary),
        minutes,
        tuple(assignments(settings)),
        tuple(only),
        workers,
        again,
    )
    return Comparison(request, None if out is None else Path(out), quiet=quiet).run()


class Comparison:
    """One call of ``compare``."""

    def __init__(self, request: Request, out: Path | None = None, *, quiet: bool = False) -> None:
        self.request, self.quiet = request, quiet
        self.progress: Progress = silent if quiet else counted
        self.folder = out or Path("runs") / request.folder
        self.store = Store(self.folder)
        with self._working("Starting ..."):
            self.before = before = self.store.state(request)
            self.everything = request.and_before(before)
            self.plan = planned(self.everything, before.get("timed"))
        self.pinned: dict[str, dict[str, Any]] = dict(before.get("pinned", {}))  # fields of a place, chosen once
        self.pace: float | None = before.get("pace")  # of the epochs that cells would have, where there are minutes
        self.workers = max(1, min(request.workers or cores(), len(self.plan.tables)))
        self.expected: dict[str, Expected] = {}  # of a cell at each place
        self.digests: dict[tuple[str, ...], str] = {}  # of data and weights, by their paths

    @property
    def command(self) -> str:
        """Which asks for it."""
        return shlex.join(self.request.words(str(self.folder)))

    def run(self) -> dict[str, Any]:
        """Run the cells that are not there yet, and say what came of all of them."""
        self._check_folder()
        make_folder(self.folder)
        lock = Lock(self.folder)
        try:
            if self.store.state(self.request) != self.before:
                raise InputError(f"another comparison was at work in {str(self.folder)!r}; give the command again.")
            tables = self._seldom(self._pinned(self.plan.tables))
            with self._working("Looking at the data ..."):
                marks = {cell: self._mark(table) for cell, table in tables.items()}
                others = self.store.others(marks)
            outdated = [cell for cell, _ in others.finished]
            if not self.request.again:
                refuse(others.finished, self.folder)
            anew = {cell: why for cell, why in others.unfinished if self._wanted(cell)}
            todo = [cell for cell in tables if cell in outdated or (self._wanted(cell) and not self.store.done(cell))]
            self._announce({cell: tables[cell] for cell in todo})
            for cell, why in anew.items():
                self._say(f"{cell.name} was begun by other {why}, and begins anew")
            self.store.remove([*outdated, *anew])
            self._write(finished=False)
            self._run(tables, marks, todo)
            for cell in self.plan.tables:
                if cell not in todo and self.store.failed(cell):
                    self._say(f"warning: {cell.name} failed before: {self.store.why_failed(cell)}")
            return self._write(finished=not [cell for cell in todo if not self._ended(cell)])
        finally:
            lock.release()

    def _check_folder(self) -> None:
        """It is in none of what cells learn from, of which it would become a part."""
        sources = {Path(name) for table in self.plan.tables.values() for name in sources_of(table)[1:]}
        for source in sources:
            if source.is_dir() and self.folder.resolve().is_relative_to(source.resolve()):
                raise InputError(
                    f"{str(self.folder)!r} is in {str(source)!r}, which is learned from, and would become a part of "
                    f"it; choose another --out."
                )

    # The cells.

    def _seldom(self, tables: Tables) -> Tables:
        """Recipes of cells, measured a few times on their way, unless someone says how often."""
        if "train.evaluate" in self.plan.given:
            return tables
        return {cell: seldom(table) for cell, table in tables.items()}

    def _pinned(self, tables: Tables) -> Tables:
        """With what is chosen once for each place, when it is first asked for: how a batch goes into memory; and where
        there are minutes the epochs, all cut by one factor. What cannot be is left as it is, for its cells to say.
        """
        began = time.monotonic()
        new = {cell: table for cell, table in tables.items() if cell.place not in self.pinned}
        self._try_shapes(self._seldom(new))
        new = {cell: table for cell, table in new.items() if not self.expected[cell.place].wrong}
        if new and self._minutes is not None and self.pace is None:
            tried = time.monotonic() - began
            self.pace = self._pace([self.expected[cell.place] for cell in new], 60 * self._minutes - tried)
        for cell, table in new.items():
            found = self.expected[cell.place]
            fields = dict(found.fields)
            if self.pace is not None and found.epochs:
                fields["train.epochs"] = found.cut(self.pace)
                often = table.get("train", {}).get("evaluate")
                fields |= {"train.evaluate": min(often, fields["train.epochs"])} if often else {}
            self.pinned[cell.place] = fields
        return {cell: laid(table, self.pinned.get(cell.place, {})) for cell, table in tables.items()}

    @property
    def _minutes(self) -> float | None:
        """For all of it: as asked for, or as the recipes have for each training."""
        return self.plan.minutes if self.request.minutes is None else self.request.minutes

    def _pace(self, cells: Sequence[Expected], seconds: float) -> float:
        """By which the epochs of cells are cut; refused where one epoch of each takes longer."""
        least = elapsed((cell.of(min(1, cell.epochs)) for cell in cells), self.workers)
        if least > seconds:
            raise InputError(
                f"with one epoch each, {len(cells)} cells take about {span(least)}; give --minutes "
                f"{ceil(least / 60) + 1} or more, or fewer seeds or arms (--only)."
            )
        return paced(cells, seconds, self.workers)

    def _try_shapes(self, tables: Tables) -> None:
        """Find what cells will take, each place once, and how many of them there is memory for at a time."""
        new = {cell.place: table for cell, table in tables.items() if cell.place not in self.expected}
        for place, table in self.progress("shapes tried", new.items(), len(new)) if new else ():
            experiment = self.plan.experiment
            measures, followed = len(experiment.measures), bool(experiment.followed)
            self.expected[place] = expected(table, self.workers, measures, followed=followed)
        if self.request.workers is None:
            self.workers = together(self.workers, self.expected.values())

    def _mark(self, table: Mapping[str, Any]) -> Mark:
        """What the numbers of a cell depend on."""
        sources = sources_of(table)
        if sources not in self.digests:
            self.digests[sources] = digest_of(sources)
        recipe = digest({**placeless(table), "measured": self._measured})
        return {"code": code(), "data": self.digests[sources], "recipe": recipe}

    @property
    def _measured(self) -> dict[str, Any]:
        """What is measured of a cell beside its own report."""
        return {"measures": list(self.plan.experiment.measures), "followed": bool(self.plan.experiment.followed)}

    def _wanted(self, cell: Cell) -> bool:
        """Whether it is asked for now, and not only before."""
        return self.request.asks_for(cell.arm.name, cell.seed, cell.at if self.everything.fractions else None)

    def _announce(self, todo: Tables) -> None:
        """Say what will be done, and refuse what there is no room for."""
        self._try_shapes(todo)
        looked = [self.expected[cell.place] for cell in todo]
        if looked and all(one.wrong for one in looked) and not any(map(self.store.done, self.plan.tables)):
            raise InputError(looked[0].wrong)
        size = sum(one.room for one in looked) + self.workers * max((one.meanwhile for one in looked), default=0)
        free = shutil.disk_usage(self.folder).free
        if size + SPARE > free:
            raise InputError(
                f"{len(todo)} cells take about {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in "
                f"{str(self.folder)!r}; choose another --out, or fewer seeds."
            )
        count, places, seeds = len(self.plan.tables), self.plan.axis.values, self.everything.seeds
        over = f" x {len(places)} values of {self.plan.axis.name}" if len(places) > 1 else ""
        arms = f"{_several(len(self.plan.experiment.arms), 'arm')}{over} x {_several(seeds, 'seed')}"
        cut = f", with {self.pace:.0%} of the epochs" if self.pace is not None and self.pace < 1 else ""
        done = sum(self.store.done(cell) for cell in self.plan.tables if cell not in todo)
        left = count - done - len(todo)
        ended = f", {done} of them done" * bool(done) + f", {left} of them left for later" * bool(left)
        self._say(f"{_several(count, 'cell')}: {arms}{ended}{cut}, in {self.folder}")
        for note in self.plan.experiment.notes:
            self._say(note)
        if todo:
            seconds = span(elapsed(map(self._seconds, todo), self.workers))
            self._say(f"about {seconds} with {self.workers} at a time, and {size / 1e6:,.0f} MB")

    def _seconds(self, cell: Cell) -> float:
        """That a cell will take."""
        found = self.expected[cell.place]
        return found.of(self.pinned.get(cell.place, {}).get("train.epochs", found.epochs))

    def _run(self, tables: Tables, marks: Mapping[Cell, Mark], todo: Sequence[Cell]) -> None:
        """Run cells, several at a time; those that fail are named, and the others go on."""
        more = {**self._measured, "metric": self.plan.metric.name, "command": self.command}
        folders = {self.store.ask(cell, tables[cell], marks[cell], **more): cell for cell in todo}
        written = time.monotonic()
        ended = run_all(list(folders), self.workers)
        try:
            for folder, status in self.progress("cells", ended, len(todo)) if todo else ():
                self._judge(folders[folder], status)
                if time.monotonic() - written > OFTEN:
                    self._write(finished=False)
                    written = time.monotonic()
        finally:
            ended.close()
            self._write(finished=False)

    def _judge(self, cell: Cell, status: int) -> None:
        """Name a cell that came to no numbers."""
        if self.store.done(cell):
            return
        if status == STOPPED:
            self._say(f"warning: {cell.name} was stopped, and goes on with the same command")
            return
        self._say(f"warning: {cell.name} failed: {self.store.why_failed(cell, status)}")

    def _ended(self, cell: Cell) -> bool:
        """Whether it came to its numbers, or failed."""
        return self.store.done(cell) or self.store.failed(cell)

    # What came of it.

    def _write(self, *, finished: bool) -> dict[str, Any]:
        """Write what is there of all cells, of those that were asked for before too."""
        experiment = self.plan.experiment
        results = self.store.results(self.plan.tables)
        findings = Findings(experiment, self.plan.axis, results, self.plan.metric)
        state = {
            "command": self.command,
            "asked": self.request.same(),
            "seeds": self.everything.seeds,
            "fractions": list(self.everything.fractions),
            "only": list(self.everything.only),
            "experiment": {name: getattr(experiment, name) for name in ("name", "question", "said", "notes")},
            "code": code(),
            "machine": {"processor": processor(), "cores": cores()},
            "finished": finished,
            "when": time.strftime("%Y-%m-%d"),
            "pace": self.pace,
            "pinned": self.pinned,
            "timed": self.plan.timed,
            "failed": {cell.name: self.store.why_failed(cell) for cell in self.plan.tables if self.store.failed(cell)},
            **findings.table(),
        }
        self.store.write(state)
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
        there = [cell for cell in last.values() if self.store.done(cell)]
        models = {cell.folder: (cell.arm.name, Run(self.store.path(cell)).weights().model()) for cell in there}
        return draw_arms(models, self.folder)

    def _say(self, text: str) -> None:
        if not self.quiet:
            say(text)

    def _working(self, what: str) -> AbstractContextManager[None]:
        return nullcontext() if self.quiet else working(what)


def _several(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
