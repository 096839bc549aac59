"""What cells will take, before they are begun: each shape of them is tried for a moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vitrail.errors import InputError
from vitrail.families import cost_of
from vitrail.machine import available_memory, cores, threads
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.training import fitted, forecast
from vitrail.training.estimates import LEARNED, PLANNED

START = 4.0  # seconds that a cell takes beside its training, as seen
ROOM = 1_500_000  # bytes on the disk beside its weights
PINNED = ("train.accumulate", "train.recompute")
CHECKPOINTS = 2 * LEARNED  # bytes for each of its weights, while it is trained


@dataclass(frozen=True)
class Expected:
    """Of one cell: its epochs, none of what is fitted at once or has steps; its seconds in all, bytes of memory and of
    the disk, those of the disk that it takes until its training has ended; fields chosen for the memory there is; and
    what is wrong with its recipe.
    """

    epochs: int
    seconds: float
    memory: int = 0
    room: int = ROOM
    meanwhile: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    wrong: str = ""

    def of(self, epochs: int) -> float:
        """The seconds with so many epochs."""
        return START + (self.seconds - START) * (epochs / self.epochs if self.epochs else 1.0)


def expected(table: Mapping[str, Any], workers: int) -> Expected:
    """Of a cell as its recipe has it, with so many others beside it."""
    try:
        recipe = parse_recipe(table)
        with threads(max(1, cores() // workers)):
            task = tasks[recipe.task].prepare(recipe)
            task = task if task.at_once else fitted(task)
            found = forecast(task)
    except InputError as error:
        return Expected(0, START, wrong=str(error))
    train, weights = task.recipe.train, 4 * cost_of(task.config).parameters
    fixed = task.at_once or train.steps is not None
    return Expected(
        0 if fixed else train.epochs,
        START + found.seconds,
        found.memory,
        ROOM + weights,
        train.keep * weights + (0 if fixed else CHECKPOINTS * weights // 4),
        {choice.field: choice.value for choice in task.choices if choice.field in PINNED},
    )


def together(workers: int, cells: Iterable[Expected]) -> int:
    """How many of so many cells this machine has the memory for at a time."""
    free, most = available_memory(), max((one.memory for one in cells), default=0)
    return workers if free is None or not most else max(1, min(workers, int(PLANNED * free / most)))
