"""What a training shows of itself: a bar that moves on a terminal, a line now and then elsewhere."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from vitrail.terminal.console import messages, say

if TYPE_CHECKING:
    from rich.console import Console

    from vitrail.progress import Progress
    from vitrail.training import Job, Measured, Step

T = TypeVar("T")
RECENT = 50  # steps that the shown numbers are averages over
SILENCE = 30.0  # seconds between two lines that are not on a terminal
PATIENCE = 2.0  # and before the first of them


class Recent:
    """The last steps: their mean loss, their speed, and the fraction of the time that went into waiting for data."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque(maxlen=RECENT)

    def add(self, step: "Step") -> None:
        self.steps.append(step)

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps) or 1e-9

    @property
    def loss(self) -> float:
        return sum(step.loss for step in self.steps) / max(1, len(self.steps))

    def speed(self, processes: int) -> float:
        return processes * sum(step.count for step in self.steps) / self.seconds

    @property
    def wait(self) -> float:
        return sum(step.wait for step in self.steps) / self.seconds

    def left(self, steps: int) -> float:
        """Seconds that so many steps would take."""
        return steps * self.seconds / max(1, len(self.steps))


def shown(job: "Job", events: "Iterable[Step | Measured]", *, quiet: bool = False) -> None:
    """Run a training and show how it goes; only the first of several processes shows anything."""
    console = messages()
    if quiet or not job.world.first:
        for _ in events:
            pass
    elif console.is_terminal:
        _bar(job, events, console)
    else:
        _lines(job, events)


def counted(what: str, items: Iterable[T], total: int) -> Iterator[T]:
    """Items on their way, with a bar on a terminal, and a line now and then elsewhere: how work of many parts is shown
    everywhere.
    """
    from rich.progress import track

    console = messages()
    if console.is_terminal and total:
        yield from track(items, f"{total:,} {what}", total, console=console, transient=True)
        return
    done = 0
    with _heard(lambda: f"{done:,} of {total:,} {what}"):
        for item in items:
            yield item
            done += 1


@contextmanager
def working(what: str) -> Iterator[None]:
    """A sign of life while something is done that has no parts: a line that moves, or one that is said if it lasts."""
    console = messages()
    if console.is_terminal:
        with console.status(what):
            yield
    else:
        with _heard(lambda: what):
            yield


@contextmanager
def _heard(line: Callable[[], str]) -> Iterator[None]:
    """A line after some seconds, and again from time to time, however long a single part takes."""
    over = threading.Event()

    def speak() -> None:
        pause = PATIENCE
        while not over.wait(pause):
            say(line())
            pause = SILENCE

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def counting(before: str) -> "Progress":
    """The same, behind words of its own."""

    def show(what: str, items: Iterable[T], total: int) -> Iterator[T]:
        from rich.markup import escape

        return counted(escape(f"{before}{what}"), items, total)

    return show


def span(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"  # noqa: PLR2004


def _bar(job: "Job", events: "Iterable[Step | Measured]", console: "Console") -> None:
    from rich.progress import BarColumn, Progress, TextColumn

    from vitrail.training import Step

    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[text]}"),
    )
    recent, measured = Recent(), ""
    with Progress(*columns, console=console, expand=True) as progress:
        task = progress.add_task("", total=job.total, completed=job.step, epoch=1, text="")
        for event in events:
            if isinstance(event, Step):
                recent.add(event)
            else:
                measured = _measured(job, event)
            text = (
                f"loss {recent.loss:.3f}  {measured}{recent.speed(job.world.size):,.0f} {job.task.unit}/s  "
                f"data {recent.wait:.0%}  {_left(job, recent)} left"
            )
            epoch = min(job.batches.epochs, job.step // job.batches.per_epoch + 1)
            progress.update(task, completed=job.gone, epoch=epoch, text=text)


def _lines(job: "Job", events: "Iterable[Step | Measured]") -> None:
    from vitrail.training import Step

    epochs, recent, shown_at = job.batches.epochs, Recent(), time.monotonic()
    every = max(1, epochs // 10)
    for event in events:
        now = time.monotonic()
        if isinstance(event, Step):
            recent.add(event)
            if now - shown_at < SILENCE:
                continue
            epoch, measured = f"{job.step / job.batches.per_epoch:.1f}", ""
        else:
            if event.epoch % every and event.epoch != epochs and now - shown_at < SILENCE:
                continue
            epoch, measured = f"{event.epoch}", _measured(job, event)
        shown_at = now
        speed, left = recent.speed(job.world.size), _left(job, recent)
        say(
            f"epoch {epoch}/{epochs}  loss {recent.loss:.3f}  {measured}{speed:,.0f} {job.task.unit}/s  "
            f"data {recent.wait:.1%}  {left} left"
        )


def _left(job: "Job", recent: Recent) -> str:
    """How long it will still take: all steps, or as long as there is time."""
    seconds = recent.left(job.total - job.step)
    return span(seconds if job.budget is None else max(0.0, min(seconds, job.budget - job.spent)))


def _measured(job: "Job", event: "Measured") -> str:
    metric = job.task.metric
    return f"{event.part} {metric.name} {metric.show(event.values[metric.name])}  " if metric.name != "loss" else ""
