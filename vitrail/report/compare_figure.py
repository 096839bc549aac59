"""compare.png: the headline number of every arm with its intervals, as a figure for a paper."""

from collections.abc import Mapping
from math import log10
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from vitrail.report.drawing import save_figure
from vitrail.tasks.task import Metric

# Told apart by people who see few colours too (Okabe and Ito 2008), and by marks where there are more arms.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
APART = 0.012  # of the axis, between the whiskers of two arms


def draw_comparison(path: Path, state: Mapping[str, Any]) -> Path:
    """Write the figure, from what compare.json says."""
    metric, arms = (
        Metric(**state["metric"]),
        [arm for arm in state["arms"] if any(arm["means"][state["metric"]["name"]])],
    )
    several = len(state["axis"]["values"]) > 1
    figure = Figure(figsize=(8.2, 4.6) if several else (7.4, 1.2 + 0.42 * len(arms)), layout="constrained")
    axes = figure.subplots()
    (_over_places if several else _side_by_side)(axes, arms, metric, state)
    axes.grid(visible=True, color="0.9")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
    return path


def _over_places(axes: Axes, arms: list[Any], metric: Metric, state: Mapping[str, Any]) -> None:
    places = state["axis"]["values"]
    wide = log10(places[-1]) - log10(places[0]) or 1.0
    for number, arm in enumerate(arms):
        points = [one for one in arm["means"][metric.name] if one]
        shift = 10 ** (APART * wide * (number - (len(arms) - 1) / 2))
        axes.errorbar(
            [one["at"] * shift for one in points],
            [_scaled(one["value"], metric) for one in points],
            yerr=_whiskers(points, metric),
            label=arm["name"],
            **_look(number),
        )
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=state["axis"]["name"], ylabel=_named(metric))
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))


def _side_by_side(axes: Axes, arms: list[Any], metric: Metric, state: Mapping[str, Any]) -> None:
    del state
    for number, arm in enumerate(arms):
        point = arm["means"][metric.name][0]
        look = {**_look(0), "linestyle": "none"}
        axes.errorbar([_scaled(point["value"], metric)], [number], xerr=_whiskers([point], metric), **look)
    axes.set_yticks(range(len(arms)), [arm["name"] for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(_named(metric))


def _look(number: int) -> dict[str, Any]:
    marker, colour = MARKS[number % len(MARKS)], COLOURS[number % len(COLOURS)]
    return {"marker": marker, "color": colour, "markersize": 5, "capsize": 2.5, "linewidth": 1.4}


def _scaled(value: float, metric: Metric) -> float:
    return 100 * value if metric.percent else value


def _whiskers(points: list[Any], metric: Metric) -> list[list[float]] | None:
    """Below and above each mean; none where one seed was run."""
    if all(one["low"] is None for one in points):
        return None
    ends = [(one["value"], one["value"]) if one["low"] is None else (one["low"], one["high"]) for one in points]
    below = [_scaled(one["value"] - low, metric) for one, (low, _) in zip(points, ends, strict=True)]
    above = [_scaled(high - one["value"], metric) for one, (_, high) in zip(points, ends, strict=True)]
    return [below, above]


def _named(metric: Metric) -> str:
    return f"{metric.name}, %" if metric.percent else metric.name
