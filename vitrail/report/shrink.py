"""shrink.html: what each step of a shrinking did to a model, and what it cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.report.charts import Dot, dot_chart
from vitrail.report.page import write_page
from vitrail.tasks.sections import Card, Table
from vitrail.tasks.task import Metric

CHANGED = 200  # answers that are listed


def write_shrink(path: Path, state: Mapping[str, Any]) -> Path:
    """Write the page, from what shrink.json says."""
    steps, metric = state["steps"], None if state["metric"] is None else Metric(**state["metric"])
    first, now = steps[0], [step for step in steps if step["kept"]][-1]
    sections = [_costs(steps), *([_worth(steps, metric)] if metric is not None else [])]
    charts = {} if metric is None else _frontiers(state, metric)
    return write_page(
        path,
        "shrink.html",
        title=f"{Path(state['asked']['what'][0]).name}, made smaller",
        state=state,
        cards=_cards(first, now, metric),
        sections=[{**vars(section), "kind": "table"} for section in sections],
        charts=charts,
        changed=None if metric is None else _changed(now),
        minutes=state["seconds"] / 60,
    )


def _cards(first: Mapping[str, Any], now: Mapping[str, Any], metric: Metric | None) -> list[Card]:
    cards = [
        Card(f"{fast:.2f}", f"times as fast, {one['batch']} at a time")
        for fast, one in zip(now["faster"], now["times"], strict=True)
    ]
    cards.append(Card(f"{first['costs']['bytes'] / now['costs']['bytes']:.2f}", "times smaller, the file that answers"))
    if metric is not None:
        before, after = (metric.show(step["worth"]["value"]) for step in (first, now))
        cards.append(Card(after, f"{metric.name}, which was {before}"))
    return cards


def _costs(steps: Sequence[Mapping[str, Any]]) -> Table:
    """What each step costs."""
    rows = []
    for step in steps:
        costs = step["costs"]
        times = [
            f"{1e3 * one['median']:.3g} ({1e3 * one['low']:.3g} to {1e3 * one['high']:.3g})" for one in step["times"]
        ]
        memory = "" if costs["memory"] is None else f"{costs['memory'] / 1e6:,.0f}"
        rows.append(
            [
                f"{step['number']}. {step['name']}",
                f"{costs['parameters']:,}",
                f"{costs['multiply_adds'] / 1e6:,.1f} M",
                f"{costs['bytes'] / 1e6:,.2f}",
                memory,
                *times,
                *(f"{one:.2f}" for one in step["faster"]),
            ]
        )
    at = [one["batch"] for one in steps[0]["times"]]
    return Table(
        title="What it costs",
        note="Milliseconds of one example, the median and between what half of the rounds lie, the original and the "
        "step in turns; how many times as fast is the median over rounds in which both ran. Memory is what a process "
        f"takes more at its peak to read the model and have it answer {at[-1]} at a time.",
        wide=True,
        columns=(
            "step",
            ">parameters",
            ">multiply-adds",
            ">MB of the file that answers",
            ">MB of memory",
            *(f">ms at {one}" for one in at),
            *(f">times as fast at {one}" for one in at),
        ),
        rows=rows,
    )


def _worth(steps: Sequence[Mapping[str, Any]], metric: Metric) -> Table:
    """What each step is worth."""
    rows = []
    for step in steps:
        worth = step["worth"]
        low_high = worth["interval"]
        compared = worth["comparison"]
        between = "" if low_high is None else f" ({metric.show(low_high[0])} to {metric.show(low_high[1])})"
        rows.append(
            [
                f"{step['number']}. {step['name']}",
                step["done"],
                "" if step["cut"] is None else metric.show(step["cut"]),
                f"{metric.show(worth['value'])}{between}",
                "" if step["number"] == 0 else f"{step['drop']:+.2f}",
                "" if compared is None else f"{compared['gained']}, {compared['lost']}",
                "" if compared is None else f"{compared['p_value']:.3g}",
                "" if step["number"] == 0 else step["why"] or "kept",
                f"{step['seconds']:,.0f} s" if step["number"] else "",
            ]
        )
    tests = {step["worth"]["comparison"]["test"] for step in steps if step["worth"]["comparison"]}
    note = f"The p-value is that of the difference from the original ({', '.join(tests)})."
    return Table(
        title="What it is worth",
        note=note if tests else "",
        wide=True,
        columns=(
            "step",
            "what was done",
            ">before it learned again",
            f">{metric.name}",
            ">points lost",
            ">became better, worse",
            ">p-value",
            "stays",
            ">time",
        ),
        rows=rows,
    )


def _frontiers(state: Mapping[str, Any], metric: Metric) -> dict[str, Any]:
    """Worth against time at each batch."""
    charts = {}
    for index, one in enumerate(state["steps"][0]["times"]):
        best = state["frontier"][str(one["batch"])]
        dots = [
            Dot(
                f"{step['number']}. {step['name']}",
                1 / step["faster"][index],
                step["worth"]["value"],
                filled=step["kept"],
                best=step["number"] in best,
            )
            for step in state["steps"]
        ]
        name = f"{metric.name.capitalize()} against time, {one['batch']} at a time"
        charts[name] = dot_chart(dots, "time of one example, in those of the original", percent=metric.percent)
    return charts


def _changed(now: Mapping[str, Any]) -> dict[str, Any] | None:
    """Which answers are others than the original's."""
    compared = now["worth"]["comparison"]
    if compared is None:
        return None
    every, (good, bad) = compared["changed"], compared["words"]
    others = ", the others were wrong before" * (good == "right")
    rows = [(one["what"], one["right"], one["before"], one["after"]) for one in every[:CHANGED]]
    more = f" The first {CHANGED} of them." if len(every) > CHANGED else ""
    table = Table(
        title=f"Answers that changed: {len(every):,}",
        note=f"{compared['gained']:,} became {good}, {compared['lost']:,} {bad}{others}.{more}",
        columns=("of", "right is", "before", "now"),
        rows=rows,
        empty="None did.",
    )
    return {**vars(table), "kind": "table"}
