"""The means of a comparison as a table, in a terminal and on its page."""

from collections.abc import Callable, Mapping
from typing import Any

from vitrail.tasks.task import Metric

Table = tuple[list[str], list[list[str]]]  # its columns, of which those with > are of numbers, and its rows


def table_of(state: Mapping[str, Any]) -> Table:
    """The means of each arm at each place, and what it costs: a row for each arm."""
    metric, places = Metric(**state["metric"]), state["axis"]["values"]
    at = [f">{metric.name}"] if len(places) == 1 else [f">{place:g}" for place in places]
    first = "arm" if len(places) == 1 else state["axis"]["name"]
    most = seeds_of(state, metric.name)
    rows = [
        [arm["name"], *(mean(one, metric.show, most) for one in arm["means"][metric.name]), *costs]
        for arm, costs in zip(state["arms"], _costs(state), strict=True)
    ]
    return [first, *at, *_columns(state)], rows


def narrow_tables_of(state: Mapping[str, Any]) -> tuple[Table, Table]:
    """The same for where that is too wide: means in a row for each arm and place, and what arms cost by themselves."""
    metric, several = Metric(**state["metric"]), len(state["axis"]["values"]) > 1
    most, rows = seeds_of(state, metric.name), list[list[str]]()
    for arm in state["arms"]:
        there = [one for one in arm["means"][metric.name] if one is not None]
        for number, one in enumerate(there):
            place = [f"{one['at']:g}"] * several
            rows.append([arm["name"] * (not number), *place, mean(one, metric.show, most)])
    means = (["arm...", *[f">{state['axis']['name']}"] * several, f">{metric.name}"], rows)
    names = [arm["name"] for arm in state["arms"]]
    costs = [[name, *costs] for name, costs in zip(names, _costs(state), strict=True)]
    return means, (["arm...", *_columns(state)], costs)


def mean(one: Mapping[str, Any] | None, show: Callable[[float], str], most: int) -> str:
    """A mean and half of its interval; with how many seeds it is of, if others are of more."""
    if one is None:
        return "-"
    half = "" if one["low"] is None else f" ± {show((one['high'] - one['low']) / 2)}"
    some = f" ({one['count']} seed{'s' * (one['count'] > 1)})" if one["count"] < most else ""
    return f"{show(one['value'])}{half}{some}"


def seeds_of(state: Mapping[str, Any], name: str) -> int:
    """How many seeds the means of a number are of, at most."""
    return max((one["count"] for arm in state["arms"] for one in arm["means"][name] if one), default=0)


def _columns(state: Mapping[str, Any]) -> list[str]:
    return [*([">in the paper"] if _published(state) else []), ">parameters", ">multiply-adds", ">seconds"]


def _costs(state: Mapping[str, Any]) -> list[list[str]]:
    """Of each arm: what a paper has, numbers that are learned, multiply-adds of a picture, seconds of a training."""
    metric = Metric(**state["metric"])
    return [
        [
            *([("" if (paper := arm["published"]) is None else metric.show(paper))] if _published(state) else []),
            f"{arm['parameters']:,}",
            _millions(arm["multiply_adds"]),
            f"{arm['seconds']:,.0f}",
        ]
        for arm in state["arms"]
    ]


def _millions(count: int) -> str:
    """So many, in millions where they are."""
    return f"{count / 1e6:,.1f} M" if count >= 10**5 else f"{count:,}"


def _published(state: Mapping[str, Any]) -> bool:
    return any(arm["published"] is not None for arm in state["arms"])
