"""What a comparison shows in a terminal."""

from collections.abc import Mapping
from typing import Any

from vitrail.tasks.task import Metric

Table = tuple[list[str], list[list[str]]]  # its columns, of which those with > are of numbers, and its rows


def table_of(state: Mapping[str, Any]) -> Table:
    """The means of each arm at each place, and what it costs: a row for each arm."""
    metric, places = Metric(**state["metric"]), state["axis"]["values"]
    at = [f">{metric.name}"] if len(places) == 1 else [f">{place:g}" for place in places]
    first = "arm" if len(places) == 1 else state["axis"]["name"]
    rows = [
        [arm["name"], *(_mean(one, metric) for one in arm["means"][metric.name]), *costs]
        for arm, costs in zip(state["arms"], _costs(state), strict=True)
    ]
    return [first, *at, *_columns(state)], rows


def long_table_of(state: Mapping[str, Any]) -> Table:
    """The same for where that is too wide: a row for each arm and place, with an arm's name and costs in its first."""
    metric, rows = Metric(**state["metric"]), list[list[str]]()
    for arm, costs in zip(state["arms"], _costs(state), strict=True):
        means = [one for one in arm["means"][metric.name] if one is not None]
        for number, one in enumerate(means):
            blank = [""] * len(costs)
            rows.append(
                [arm["name"] * (not number), f"{one['at']:g}", _mean(one, metric), *(blank if number else costs)]
            )
    return ["arm...", f">{state['axis']['name']}", f">{metric.name}", *_columns(state)], rows


def _mean(one: Mapping[str, Any] | None, metric: Metric) -> str:
    """With half of its interval."""
    if one is None:
        return "-"
    half = "" if one["low"] is None else f" ± {metric.show((one['high'] - one['low']) / 2)}"
    return f"{metric.show(one['value'])}{half}"


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
