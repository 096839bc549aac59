"""What is known of each step of a shrinking: what was done, what it costs, what it is worth, and whether it stays."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vitrail.shrink.costs import Costs, Time
from vitrail.tasks.task import Changed, Comparison

MORE = 1.1  # times the minutes that were given are still within them
GAIN = 1.03  # times as fast, or as small, at least, for a step to pay


@dataclass(frozen=True)
class Worth:
    """The task's headline number, between what it lies, and how it compares with the original's."""

    value: float
    interval: tuple[float, float] | None = None
    comparison: Comparison | None = None


@dataclass(frozen=True)
class Step:
    """The original (number 0), or what a way made of the model before it."""

    number: int
    name: str  # of the way, and its folder
    done: str  # what was done, in a line
    costs: Costs
    times: tuple[Time, ...]  # at each batch
    faster: tuple[float, ...]  # times as fast as the original in the same rounds, at each batch
    worth: Worth | None = None
    drop: float | None = None  # points that the number is below the original's
    cut: float | None = None  # the number before what was left had learned again
    kept: bool = True
    why: str = ""  # it was undone
    costly: bool = False  # whether because it lost more than it may
    again: bool = False  # whether it is the step before it by half
    halved: bool = False  # whether its half was tried, and could not be
    seconds: float = 0.0  # that it took in all
    folder: str = ""

    def speedup(self) -> float:
        """Times as fast as the original, at the batch where that is least."""
        return min(self.faster)

    def table(self) -> dict[str, Any]:
        """As it is written down."""
        return asdict(self)


def read_step(table: dict[str, Any]) -> Step:
    """What ``table`` gave."""
    worth = table.get("worth")
    if worth is not None:
        fields, interval = worth.get("comparison"), worth.get("interval")
        comparison = fields and Comparison(
            **{**fields, "changed": [Changed(**one) for one in fields["changed"]], "words": tuple(fields["words"])}
        )
        worth = Worth(worth["value"], None if interval is None else tuple(interval), comparison)
    return Step(
        **{
            **table,
            "costs": Costs(**table["costs"]),
            "times": tuple(Time(**one) for one in table["times"]),
            "faster": tuple(table["faster"]),
            "worth": worth,
        }
    )


@dataclass(frozen=True)
class Goals:
    """How much may be lost, and what is wanted for it."""

    max_drop: float = 0.5  # points of the headline number
    speedup: float | None = None  # times as fast, at each batch
    compression: float | None = None  # times smaller on disk
    minutes: float | None = None  # in all

    def met(self, original: Step, now: Step, *, ahead: tuple[float, float] = (1.0, 1.0)) -> bool:
        """Whether a step reaches them, if what comes after it brings so many times more speed and compression."""
        if self.speedup is None and self.compression is None:
            return False
        fast = self.speedup is None or now.speedup() * ahead[0] >= self.speedup
        small = self.compression is None or compression(original, now) * ahead[1] >= self.compression
        return fast and small

    def missed(self, original: Step, now: Step, minutes: float = 0.0) -> list[str]:
        """What was wanted and is not reached, and by how much; it took so many minutes."""
        lines = []
        if self.minutes is not None and minutes > MORE * self.minutes:
            lines.append(f"it took {minutes:.1f} minutes, and {self.minutes:g} were given")
        if self.speedup is not None and now.speedup() < self.speedup:
            lines.append(f"it is {now.speedup():.2f} times as fast, and {self.speedup:g} were wanted")
        small = compression(original, now)
        if self.compression is not None and small < self.compression:
            lines.append(f"it is {small:.2f} times smaller, and {self.compression:g} were wanted")
        return lines


def compression(original: Step, now: Step) -> float:
    """Times that what answers is smaller on disk."""
    return original.costs.bytes / now.costs.bytes


def pays(before: Step, now: Step, *, asked: bool = False) -> bool:
    """Whether a step made a model faster, or smaller, than it was before; and no slower, unless it was asked for."""
    gains = [one / other for one, other in zip(now.faster, before.faster, strict=True)]
    smaller = before.costs.bytes / now.costs.bytes
    return max(*gains, smaller) >= GAIN and (asked or min(gains) > 1 / GAIN)


@dataclass(frozen=True)
class History:
    """All steps so far."""

    original: Step
    steps: Sequence[Step] = ()
    skipped: Sequence[tuple[str, str]] = ()  # ways that were not tried, and why

    @property
    def now(self) -> Step:
        """The last that stays."""
        return next((step for step in reversed(self.steps) if step.kept), self.original)

    def frontier(self, batch: int) -> list[Step]:
        """Steps to which no other is both as fast, so many at a time, and worth as much."""
        every = [step for step in (self.original, *self.steps) if step.worth is not None and step.drop is not None]
        column = next(number for number, one in enumerate(self.original.times) if one.batch == batch)
        best: list[Step] = []
        for step in sorted(every, key=lambda one: (-one.faster[column], one.drop or 0.0)):
            if not best or (step.drop or 0.0) < (best[-1].drop or 0.0):
                best.append(step)
        return best
