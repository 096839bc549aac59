"""What came of all cells: means, differences, and what of it is noise."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from vitrail.compare.cells import Result
from vitrail.compare.experiments import Arm, Axis, Experiment
from vitrail.compare.measures import PERCENT
from vitrail.compare.statistics import LEVEL, Difference, Mean, crossings, difference, holm, mean
from vitrail.files import whole
from vitrail.tasks.task import Metric


@dataclass(frozen=True)
class Contrast:
    """An arm less another at a place."""

    arm: str
    against: str
    at: float
    difference: Difference


@dataclass(frozen=True)
class Crossing:
    """Two arms of which the other is better beyond some place; clear, if both are so by more than noise."""

    one: str
    other: str
    at: tuple[float, ...]
    clear: bool


@dataclass(frozen=True)
class Followed:
    """A number of an arm at a place through its training: fractions of the steps, and means over the seeds there."""

    arm: str
    at: float
    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, eq=False)
class Findings:
    """The numbers of an experiment's cells."""

    experiment: Experiment
    axis: Axis
    results: Sequence[Result]
    metric: Metric

    @cached_property
    def arms(self) -> list[Arm]:
        """Those of which there is a number."""
        there = {result.cell.arm.name for result in self.results}
        return [arm for arm in self.experiment.arms if arm.name in there]

    def of(self, arm: Arm, at: float, name: str | None = None) -> dict[int, float]:
        """A number of an arm at a place, by seed."""
        name = name or self.metric.name
        return {
            result.cell.seed: result.values[name]
            for result in self.results
            if result.cell.arm.name == arm.name and result.cell.at == at and name in result.values
        }

    def mean(self, arm: Arm, at: float, name: str | None = None) -> Mean | None:
        """Over the seeds."""
        values = list(self.of(arm, at, name).values())
        return mean(values) if values else None

    @cached_property
    def contrasts(self) -> list[Contrast]:
        """Each arm less the one it is set against, at each place; corrected for how many there are."""
        rows = [
            Contrast(arm.name, other.name, at, apart)
            for at in self.axis.values
            for arm in self.arms
            if (other := self._against(arm)) is not arm
            if (apart := difference(self.of(other, at), self.of(arm, at))) is not None
        ]
        corrected = holm([row.difference.p_value for row in rows])
        return [
            replace(row, difference=replace(row.difference, corrected=p_value))
            for row, p_value in zip(rows, corrected, strict=True)
        ]

    def _against(self, arm: Arm) -> Arm:
        """What an arm is set against, of what there is."""
        named = {one.name: one for one in self.arms}
        other = named.get(arm.against, self.arms[0])
        return self.arms[0] if other is arm else other

    def _missing(self) -> list[str]:
        """Of arms that others are to be set against, and that have no number, where they have none."""
        first = self.experiment.arms[0]
        named = {arm.name: arm for arm in self.experiment.arms}
        wanted = dict.fromkeys(named.get(arm.against, first).name for arm in self.arms)
        lines = []
        for name in wanted:
            places = [at for at in self.axis.values if not self.of(named[name], at)]
            others = {self._against(arm).name for arm in self.arms if named.get(arm.against, first).name == name}
            if len(places) == len(self.axis.values):
                than = f"; what is set against it is set against {others.pop()}" if len(self.arms) > 1 else ""
                lines.append(f"{name} has no number{than}.")
            elif places:
                where = ", ".join(f"{at:g}" for at in places)
                lines.append(f"{name} has no number at {self.axis.name} {where}: nothing is set against it there.")
        return lines

    @property
    def names(self) -> list[str]:
        """All names of numbers, the headline first."""
        names = dict.fromkeys(name for result in self.results for name in result.values)
        return [self.metric.name, *(name for name in names if name != self.metric.name)]

    @cached_property
    def crossings(self) -> list[Crossing]:
        """Between which arms' curves, and where: of those that cross by more than noise, between places at which one
        is better and the other is, corrected for all pairs and places.
        """
        curves = {
            arm.name: [(at, mean.value) for at in self.axis.values if (mean := self.mean(arm, at)) is not None]
            for arm in self.arms
        }
        found = []
        for (one, other), signs in self._signs().items():
            places = crossings(curves[one], curves[other])
            turns = [(left, right) for (left, sign), (right, then) in pairwise(signs) if sign != then]
            clear = [at for at in places if any(left < at < right for left, right in turns)]
            if places:
                found.append(Crossing(one, other, tuple(clear or places), bool(clear)))
        return found

    def _signs(self) -> dict[tuple[str, str], list[tuple[float, bool]]]:
        """Of each pair of arms the places at which they differ by more than noise, and whether the second is above."""
        pairs = list(combinations(self.arms, 2))
        rows = [
            ((one.name, other.name), at, apart)
            for one, other in pairs
            for at in sorted(self.axis.values)
            if (apart := difference(self.of(one, at), self.of(other, at))) is not None
        ]
        signs: dict[tuple[str, str], list[tuple[float, bool]]] = {(one.name, other.name): [] for one, other in pairs}
        for (pair, at, apart), p_value in zip(rows, holm([apart.p_value for *_, apart in rows]), strict=True):
            if p_value is not None and p_value < LEVEL:
                signs[pair].append((at, apart.mean.value > 0))
        return signs

    def sentences(self) -> list[str]:
        """What is known now, in words."""
        if not self.arms:
            return ["No cell has come to a number yet."]
        clear = [one for one in self.contrasts if one.difference.differs]
        unsure = [one for one in self.contrasts if one.difference.differs is None]
        places: dict[tuple[str, str, bool], dict[float, Mean]] = defaultdict(dict)
        for one in clear:
            better = (one.difference.mean.value > 0) == self.metric.higher
            places[one.arm, one.against, better][one.at] = one.difference.mean
        lines = [
            f"{arm} is {'better' if better else 'worse'} than {against}{self._where(means)}."
            for (arm, against, better), means in places.items()
        ]
        noise = len(self.contrasts) - len(clear) - len(unsure)
        if noise:
            other, several = "other " * bool(clear), f"{noise} differences" if noise > 1 else "difference"
            what = f"{'The' if clear or noise == 1 else 'All'} {other}{several}"
            references = {one.against for one in self.contrasts}
            than = f" from {references.pop()}" if len(references) == 1 else ""
            lines.append(f"{what}{than} {'are' if noise > 1 else 'is'} not more than noise.")
        untold = _untold([one.difference.mean.count for one in unsure], len({one.cell.seed for one in self.results}))
        return [*self._missing(), *lines, *untold, *self._crossed()]

    def _crossed(self) -> list[str]:
        """Which curves cross, in words."""
        if len(self.axis.values) == 1 or len(self.arms) == 1:
            return []
        clear = [one for one in self.crossings if one.clear]
        unclear = len(self.crossings) - len(clear)
        lines = [
            f"{one.one} and {one.other} cross, about {self.axis.name} {' and '.join(map('{:.2g}'.format, one.at))}, by "
            f"more than noise."
            for one in clear
        ]
        if unclear:
            pairs = "One pair of curves crosses" if unclear == 1 else f"{unclear} pairs of curves cross"
            told = any(one.difference.p_value is not None for one in self.contrasts)
            lines.append(f"{pairs}{' within noise' if told else ', which one seed does not tell from noise'}.")
        return lines or ["No two curves cross."]

    def followed(self) -> list[Followed]:
        """Numbers that were had on the way."""
        found: dict[Any, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for result in self.results:
            for step, values in result.moments:
                for name, value in values.items():
                    found[result.cell.arm.name, result.cell.at, name][step / result.steps].append(value)
        return [
            Followed(arm, at, name, tuple((where, fmean(values)) for where, values in sorted(points.items())))
            for (arm, at, name), points in found.items()
        ]

    def _where(self, means: Mapping[float, Mean]) -> str:
        """At which places, and by how much there."""
        if len(self.axis.values) == 1:
            return "".join(f": {self._points(one)}" for one in means.values())
        return f" at {self.axis.name} " + ", ".join(f"{at:g}: {self._points(one)}" for at, one in means.items())

    def _points(self, one: Mean) -> str:
        scale, unit = (100, " points") if self.metric.percent else (1, "")
        between = "" if one.low is None or one.high is None else f" ({scale * one.low:+.2f} to {scale * one.high:+.2f})"
        return f"{scale * one.value:+.2f}{unit}{between}"

    def table(self) -> dict[str, Any]:
        """As it is written down."""
        return {
            "metric": asdict(self.metric),
            "percent": [self.metric.name] * self.metric.percent + [name for name in self.names if name in PERCENT],
            "measured": self._measured_on(),
            "axis": {"name": self.axis.name, "values": list(self.axis.values)},
            "arms": [self._arm(arm) for arm in self.arms],
            "differences": [
                {
                    "arm": one.arm,
                    "against": one.against,
                    "at": one.at,
                    **asdict(one.difference),
                    "differs": one.difference.differs,
                }
                for one in self.contrasts
            ],
            "crossings": [asdict(one) for one in self.crossings],
            "followed": [asdict(one) for one in self.followed()],
            "sentences": self.sentences(),
            "cells": [self._row(result) for result in self.results],
        }

    def _measured_on(self) -> dict[str, Any]:
        """Which part of the data, and how many examples, which are the same for all."""
        first = next(iter(self.results), None)
        return {} if first is None else {"part": first.part, "tested": first.tested}

    def _arm(self, arm: Arm) -> dict[str, Any]:
        own = [result for result in self.results if result.cell.arm.name == arm.name]
        means = {
            name: [
                None if (average := self.mean(arm, at, name)) is None else {"at": at, **asdict(average)}
                for at in self.axis.values
            ]
            for name in self.names
        }
        return {
            "name": arm.name,
            "fields": dict(arm.fields),
            "parameters": own[0].parameters,
            "multiply_adds": own[0].multiply_adds,
            "seconds": mean([result.seconds for result in own]).value,
            "published": self.experiment.published.get(arm.name),
            "means": means,
        }

    def _row(self, result: Result) -> dict[str, Any]:
        cell = result.cell
        rest: Mapping[str, Any] = {
            "parameters": result.parameters,
            "multiply_adds": result.multiply_adds,
            "seconds": result.seconds,
            "steps": result.steps,
            "epochs": result.epochs,
        }
        return {"arm": cell.arm.name, self.axis.name: cell.at, "seed": cell.seed, **result.values, **rest}

    def write_csv(self, path: Path) -> None:
        """A line for each cell."""
        rows = [self._row(result) for result in self.results]
        names = list(dict.fromkeys(name for row in rows for name in row))
        with whole(path) as part, part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


def _untold(pairs: Sequence[int], seeds: int) -> list[str]:
    """Of differences that seeds do not tell from noise, how many there are, by how many pairs of cells each has; with
    so many seeds.
    """
    one, several = sum(count == 1 for count in pairs), sum(count > 1 for count in pairs)
    lines = []
    if one:
        these = "this difference" if one == 1 else f"these {one} differences"
        more = "; give --seeds 3 or more" if seeds < 3 else ", which both arms have alone"  # noqa: PLR2004
        lines.append(f"One seed does not tell {these} from noise{more}.")
    if several:
        these, they = ("this difference", "it is") if several == 1 else (f"these {several} differences", "they are")
        lines.append(f"Seeds do not tell {these} from noise: {they} the same with each seed.")
    return lines
