"""What cells will take, before they are begun: each shape of them is tried for a moment."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapreplace
from typing import Any

from vitrail.compare.pilot import step_seconds
from vitrail.errors import InputError
from vitrail.families import cost_of
from vitrail.machine import available_memory, cores, threads
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.training import fitted, forecast
from vitrail.training.estimates import AVERAGED, LEARNED, PLANNED

START = 4.0  # seconds that a cell takes beside its training, as seen
ROOM = 1_500_000  # bytes on the disk beside its weights
PINNED = ("accumulate", "recompute")  # chosen for the memory that is free, once
CHECKPOINTS = 3 * (LEARNED + AVERAGED)  # bytes for each of its weights: the last two, and one that is being written
LOOKED = 2  # measurements that each number more takes as long as


@dataclass(frozen=True)
class Expected:
    """Of one cell: its epochs, none of what is fitted at once or has steps; its seconds in all, and those beside its
    training; bytes of memory and of the disk, those of the disk that it takes until its training has ended; fields
    chosen for the memory there is; and what is wrong with its recipe.
    """

    epochs: int
    seconds: float
    start: float = START
    memory: int = 0
    room: int = ROOM
    meanwhile: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""

    def of(self, epochs: int) -> float:
        """The seconds with so many epochs."""
        return self.start + (self.seconds - self.start) * (epochs / self.epochs if self.epochs else 1.0)

    def cut(self, pace: float) -> int:
        """The epochs of a training that goes on for a part of them; none of what has none."""
        return max(1, round(pace * self.epochs)) if self.epochs else 0


def expected(table: Mapping[str, Any], workers: int, measures: int = 0, *, followed: bool = False) -> Expected:
    """Of a cell as its recipe has it, with so many others beside it, and more numbers that are had of it at its end;
    or of all models kept on its way, which are then removed.
    """
    try:
        recipe = parse_recipe(table)
        each = max(1, cores() // workers)
        with threads(each):
            task = tasks[recipe.task].prepare(recipe)
            task = task if task.at_once else fitted(task)
            found = forecast(task)
            step = None if task.at_once else step_seconds(task)
            found = found if step is None else replace(found, step=step).of(task)
    except InputError as error:
        return Expected(0, START, wrong=str(error))
    train, weights = task.recipe.train, 4 * cost_of(task.config).parameters
    fixed = task.at_once or train.steps is not None
    gathered = (1 + bool(measures)) * task.gathering() / each
    models = LOOKED * measures * (1 + followed * train.keep)
    looks = 0 if fixed else 1 + train.epochs // train.evaluate  # as many, whatever its epochs
    start = START + gathered + (models + looks) * found.measurement
    seconds = START + gathered + models * found.measurement + found.seconds
    kept = train.keep * weights
    return Expected(
        0 if fixed else train.epochs,
        seconds,
        start,
        found.memory,
        ROOM + 2 * weights + (0 if followed else kept),
        (kept if followed else 0) + (0 if task.at_once else CHECKPOINTS * weights // 4),
        {} if task.at_once else {f"train.{name}": getattr(train, name) for name in PINNED},
    )


def elapsed(seconds: Iterable[float], workers: int) -> float:
    """Until the last of some cells has ended, where so many run at a time and each begins when another ends."""
    free = [0.0] * workers
    for one in seconds:
        heapreplace(free, free[0] + one)
    return max(free)


def paced(cells: Sequence[Expected], seconds: float, workers: int) -> float:
    """The fraction of their epochs with which cells take so long together, the same for all of them; 1 at most."""

    def too_long(pace: float) -> bool:
        return elapsed((cell.of(cell.cut(pace)) for cell in cells), workers) > seconds

    if not too_long(1.0):
        return 1.0
    steps = 2**12
    return bisect_left(range(1, steps), True, key=lambda step: too_long(step / steps)) / steps


def together(workers: int, cells: Iterable[Expected]) -> int:
    """How many of so many cells this machine has the memory for at a time."""
    free, most = available_memory(), max((one.memory for one in cells), default=0)
    return workers if free is None or not most else max(1, min(workers, int(PLANNED * free / most)))
