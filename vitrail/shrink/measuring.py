"""What a step is worth and costs, beside the original."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from vitrail.errors import InputError
from vitrail.runs import Run
from vitrail.shrink.costs import BATCHES, costs, ratio, summed, times
from vitrail.shrink.material import Material
from vitrail.shrink.steps import Step, Worth
from vitrail.tasks.task import Measurement, Metric, ask


@dataclass(frozen=True, eq=False)
class Subject:
    """A run as it answers, and what it answered."""

    run: Run
    model: Any
    measurement: Measurement | None


class Scale:
    """The original, on the examples of a task where there are some; ``working`` shows what is done."""

    def __init__(
        self, original: Run, material: Material | None, working: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self.original, self.material, self.working = original, material, working
        self.first = self._subject(original)

    def step(self, run: Run, number: int, name: str, done: str) -> Step:
        """What a run costs and is worth, beside the original in the same minutes."""
        one = self.first if number == 0 else self._subject(run)
        taken, faster = [], []
        for count in BATCHES:
            calls = {what: self._asking(each.model, count) for what, each in (("original", self.first), ("now", one))}
            with self.working(f"Timing {run.path.name}, {count} at a time ..."):
                seconds = times(calls, count)
            taken.append(summed(count, seconds["now"]))
            faster.append(1.0 if number == 0 else ratio(seconds["original"], seconds["now"]))
        return Step(number, name, done, costs(run), tuple(taken), tuple(faster), *self._worth(one))

    def value(self, run: Run) -> float:
        """The headline number of a run."""
        return self._value(self._subject(run))

    def loses(self, value: float) -> float:
        """How many points a number is below the original's."""
        return self._metric.drop(self._value(self.first), value)

    def check(self, before: Step) -> None:
        """The original is what it was when the shrinking began."""
        if before.worth is not None and before.worth.value != self._value(self.first):
            raise InputError(
                f"{self.original.name!r} is not what it was when this shrinking began: its number was "
                f"{self._metric.show(before.worth.value)}, and is {self._metric.show(self._value(self.first))}; begin "
                f"anew with another --out."
            )

    def _subject(self, run: Run) -> Subject:
        weights = run.answering()
        model = weights.model().float()
        if self.material is None:
            return Subject(run, model, None)
        held = self.material.seen_by(weights).held_out
        with self.working(f"Measuring {run.path.name} ..."):
            return Subject(run, model, held.seen_by(weights).measure(model))

    def _asking(self, model: Any, count: int) -> Callable[[], Any]:
        return ask(model, count) if self.material is None else self.material.task.held_out.asking(model, count)

    def _worth(self, one: Subject) -> tuple[Worth | None, float | None]:
        """The headline number beside the original's, and how many points it is below it."""
        if self.material is None or one.measurement is None or self.first.measurement is None:
            return None, None
        held = self.material.task.held_out
        comparison = None if one is self.first else held.compare(self.first.measurement, one.measurement)
        value = self._value(one)
        return Worth(value, held.interval(one.measurement), comparison), self.loses(value)

    def _value(self, subject: Subject) -> float:
        if subject.measurement is None:
            raise RuntimeError("nothing was measured, for there is no data")
        return subject.measurement.values[self._metric.name]

    @property
    def _metric(self) -> Metric:
        if self.material is None:
            raise RuntimeError("there is no task, for there is no data")
        return self.material.metric
