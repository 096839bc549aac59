"""Models of other kinds that cost as much as one: the size at which they do."""

from collections.abc import Iterable
from math import log
from typing import Any, Literal

from vitrail.families import configure, cost_of

Cost = Literal["parameters", "multiply_adds"]


def matched(name: str, target: float, by: Cost, sizes: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of some sizes of a model the fields of the one whose cost is nearest to what is wanted, by its ratio."""

    def apart(fields: dict[str, Any]) -> float:
        return abs(log(getattr(cost_of(configure(name, **fields)), by) / target))

    return min(sizes, key=apart)
