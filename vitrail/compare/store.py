"""The folder of a comparison: what was asked for, and the cells that are there.

OUT/compare.json     what was asked for, every number, what differs
OUT/compare.csv      the numbers, a line for each cell
OUT/compare.png      the headline number as a figure
OUT/compare.html     all of it as a page
OUT/positions-*.png  where positions are compared: what each became
OUT/cells/ARM/...    the runs
"""

import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.compare.cells import ASKED, DONE, FAILED, Cell, Result, read_result
from vitrail.compare.request import Request
from vitrail.errors import InputError
from vitrail.files import make_folder, read_json, write_json

STATE, TABLE, FIGURE, PAGE, CELLS = "compare.json", "compare.csv", "compare.png", "compare.html", "cells"
Mark = Mapping[str, str]  # what the numbers of a cell depend on: the code, the recipe, the data


@dataclass(frozen=True)
class Others:
    """Cells that are there and were made by something else: finished ones, with what; and what is left of others."""

    finished: list[tuple[Cell, str]]
    unfinished: list[tuple[Cell, str]]


@dataclass(frozen=True)
class Store:
    """A folder, which may not be there yet."""

    folder: Path

    def state(self, request: Request) -> dict[str, Any]:
        """What was asked for before; the request has to be of the same."""
        path = self.folder / STATE
        if not path.is_file():
            if self.folder.is_dir() and any(one.name != ".lock" for one in self.folder.iterdir()):
                raise InputError(f"{str(self.folder)!r} is there already, and is left alone; choose another --out.")
            return {}
        state = read_json(path)
        if not isinstance(state, dict) or state.get("asked") != request.same():
            command = state.get("command", "") if isinstance(state, dict) else ""
            raise InputError(
                f"{str(self.folder)!r} holds another comparison, `{command}`; give the same with other --seeds or "
                f"--fractions, or choose another --out."
            )
        return state

    def path(self, cell: Cell) -> Path:
        """The run of a cell."""
        return self.folder / CELLS / cell.name

    def done(self, cell: Cell) -> bool:
        """Whether it came to its numbers."""
        return (self.path(cell) / DONE).is_file()

    def others(self, marks: Mapping[Cell, Mark]) -> Others:
        """Cells whose numbers depend on something else than they would now."""
        finished, unfinished = list[tuple[Cell, str]](), list[tuple[Cell, str]]()
        for cell, mark in marks.items():
            folder = self.path(cell)
            record = _table(folder / DONE) or (_table(_beside(folder, ASKED)) if folder.is_dir() else {})
            before = record.get("by", {})
            other = next((name for name, value in mark.items() if record and before.get(name) != value), None)
            if other is not None and self.done(cell):
                finished.append((cell, other))
            elif other is not None:
                unfinished.append((cell, other))
        return Others(finished, unfinished)

    def remove(self, cells: Iterable[Cell]) -> None:
        """So that they begin anew."""
        for cell in cells:
            shutil.rmtree(self.path(cell), ignore_errors=True)

    def ask(self, cell: Cell, recipe: Mapping[str, Any], mark: Mark, **more: Any) -> Path:
        """Write what a cell is to do, which its process reads; the folder of its run."""
        folder = self.path(cell)
        make_folder(folder.parent)
        _beside(folder, FAILED).unlink(missing_ok=True)
        write_json(_beside(folder, ASKED), {"recipe": recipe, "by": mark, **more})
        return folder

    def failed(self, cell: Cell) -> bool:
        """Whether it came to no numbers when it last ran."""
        return not self.done(cell) and _beside(self.path(cell), FAILED).is_file()

    def why_failed(self, cell: Cell, status: int | None = None) -> str:
        """What a cell said of its end; of one that could say nothing, how its process ended, and where to look."""
        path = _beside(self.path(cell), FAILED)
        if status is not None and not path.is_file():
            why = f"its process ended {_status(status)}; see {str(_beside(self.path(cell), 'log'))!r}"
            with suppress(OSError):  # of a full disk, of which the cell may have died
                write_json(path, {"why": why})
            return why
        return str(_table(path).get("why", ""))

    def results(self, cells: Iterable[Cell]) -> list[Result]:
        """Of those that are done."""
        return [read_result(cell, self.folder / CELLS) for cell in cells if self.done(cell)]

    def write(self, state: Mapping[str, Any]) -> None:
        """Keep what was asked for, and what came of it."""
        write_json(self.folder / STATE, state)


def refuse(others: Sequence[tuple[Cell, str]], folder: Path) -> None:
    """Numbers that may not be comparable are not mixed in silence."""
    if others:
        cell, why = others[0]
        raise InputError(
            f"{len(others)} of the cells in {str(folder)!r} were made by other {why}, such as {cell.name}, and may not "
            f"be comparable; run them anew with --again, or choose another --out."
        )


def _status(status: int) -> str:
    """How a process ended, in words: with a status, or by a signal."""
    if status >= 0:
        return f"with status {status}"
    memory = ", as where memory runs out" if -status == signal.SIGKILL else ""
    return f"by {signal.Signals(-status).name}{memory}"


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f"{folder.name}.{what}")


def _table(path: Path) -> dict[str, Any]:
    """What a file says; nothing, if it is not there or not whole."""
    try:
        table = read_json(path) if path.is_file() else {}
    except InputError:
        return {}
    return table if isinstance(table, dict) else {}
