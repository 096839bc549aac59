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


def long_table_of(state: Mapping[str, Any]) -> Table:
    """The same for where that is too wide: a row for each arm and place, with an arm's name and costs in its first."""
    metric, rows = Metric(**state["metric"]), list[list[str]]()
    most = seeds_of(state, metric.name)
    for arm, costs in zip(state["arms"], _costs(state), strict=True):
        means = [one for one in arm["means"][metric.name] if one is not None]
        for number, one in enumerate(means):
            blank = [""] * len(costs)
            rows.append(
                [
                    arm["name"] * (not number),
                    f"{one['at']:g}",
                    mean(one, metric.show, most),
                    *(blank if number else costs),
                ]
            )
    return ["arm...", f">{state['axis']['name']}", f">{metric.name}", *_columns(state)], rows


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
            f"{arm['multiply_adds'] / 1e6:,.1f} M",
            f"{arm['seconds']:,.0f}",
        ]
        for arm in state["arms"]
    ]


def _published(state: Mapping[str, Any]) -> bool:
    return any(arm["published"] is not None for arm in state["arms"])
