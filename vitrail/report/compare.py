"""compare.html: many runs beside each other, with what differs and what is noise."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.report.charts import Line, line_chart
from vitrail.report.compare_table import mean, seeds_of, table_of
from vitrail.report.intervals import Curve, Point, curves_chart, rows_chart, style
from vitrail.report.page import write_page
from vitrail.tasks.sections import Table
from vitrail.tasks.task import Metric


def write_comparison(path: Path, state: Mapping[str, Any]) -> Path:
    """Write the page, from what compare.json says."""
    metric = Metric(**state["metric"])
    charts = {name: _chart(state, name, percent=name in state["percent"]) for name in _charted(state, metric)}
    sections = [_means(state, metric), _differences(state, metric), *_more(state, metric)]
    return write_page(
        path,
        "compare.html",
        title=f"{state['experiment']['name']}, compared",
        state=state,
        charts=charts,
        sections=[{**vars(section), "kind": "table"} for section in sections if section.rows],
        followed=_followed(state),
        measured=_measured(state),
    )


def _charted(state: Mapping[str, Any], metric: Metric) -> list[str]:
    """The numbers that are drawn: the headline, and what the experiment is about."""
    names = dict.fromkeys(name for arm in state["arms"] for name, means in arm["means"].items() if any(means))
    return [metric.name, *(name for name in names if name != metric.name)]


def _curves(state: Mapping[str, Any], name: str) -> list[Curve]:
    return [
        Curve(
            arm["name"],
            [Point(one["at"], one["value"], one["low"], one["high"]) for one in arm["means"].get(name, []) if one],
        )
        for arm in state["arms"]
    ]


def _measured(state: Mapping[str, Any]) -> str:
    """What all are measured on, and what that means for the intervals."""
    on = state["measured"]
    if not on.get("tested"):
        return ""
    kept = " Each run keeps the best of its models by the same examples." if on["part"] == "validation" else ""
    return (
        f"All are measured on the same {on['tested']:,} examples ({on['part']}). Intervals and tests are over seeds: "
        f"how far these examples stand for others is not in them.{kept}{_cut(state)}"
    )


def _cut(state: Mapping[str, Any]) -> str:
    """What it means that trainings are cut, where they are."""
    pace = state.get("pace")
    if pace is None or pace >= 1:
        return ""
    return f" All have {pace:.0%} of their epochs (--minutes): what is ahead may be what learns faster."


def _chart(state: Mapping[str, Any], name: str, *, percent: bool) -> Any:
    curves = _curves(state, name)
    if len(state["axis"]["values"]) > 1:
        return curves_chart(curves, state["axis"]["name"], percent=percent)
    return rows_chart(curves, percent=percent)


def _followed(state: Mapping[str, Any]) -> dict[str, Any]:
    """A chart for each number of each arm through its training, with a line for each place."""
    lines: dict[str, list[Line]] = {}
    for one in state["followed"]:
        drawn = lines.setdefault(f"{one['arm']}: {one['name']}", [])
        drawn.append(Line(f"{state['axis']['name']} {one['at']:g}", one["points"], *style(len(drawn))))
    percent = {f"{one['arm']}: {one['name']}": one["name"] in state["percent"] for one in state["followed"]}
    return {
        title: line_chart(some, "fraction of the training", percent=percent[title]) for title, some in lines.items()
    }


def _means(state: Mapping[str, Any], metric: Metric) -> Table:
    columns, rows = table_of(state)
    return Table(
        title=f"Means of {metric.name}",
        note="Over the seeds, with the half of the interval in which the mean of many more lies with 95 %."
        if seeds_of(state, metric.name) > 1
        else "Of one seed, which has no intervals.",
        wide=True,
        columns=columns,
        rows=rows,
    )


def _differences(state: Mapping[str, Any], metric: Metric) -> Table:
    scale, unit = (100, " points") if metric.percent else (1, "")
    references = list(dict.fromkeys(one["against"] for one in state["differences"]))
    several = len(references) > 1
    counts = {one["mean"]["count"] for one in state["differences"]}
    rows = []
    for one in state["differences"]:
        average = one["mean"]
        between = "" if average["low"] is None else f"{scale * average['low']:+.2f} to {scale * average['high']:+.2f}"
        verdict = {True: "differs", False: "noise", None: "not told by seeds"}[one["differs"]]
        place = [f"{one['at']:g}"] if len(state["axis"]["values"]) > 1 else []
        p_values = [_p_value(one["p_value"]), _p_value(one["corrected"])]
        against = [one["against"]] * several
        pairs = [f"{average['count']}"] if len(counts) > 1 else []
        row = [one["arm"], *against, *place, *pairs, f"{scale * average['value']:+.2f}{unit}", between]
        rows.append([*row, *p_values, verdict])
    place = [f">{state['axis']['name']}"] if len(state["axis"]["values"]) > 1 else []
    place += [">pairs"] if len(counts) > 1 else []
    return Table(
        title="Against each other" if several else f"Against {''.join(references)}",
        note="Differences between cells of the same seed and the same examples, with the p-value of a paired t-test, "
        "and the same corrected for how many there are (Holm 1979), by which it is judged at 5 %.",
        wide=True,
        columns=("arm", *["against"] * several, *place, ">difference", ">95 %", ">p-value", ">corrected", "which is"),
        rows=rows,
    )


def _p_value(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _more(state: Mapping[str, Any], metric: Metric) -> list[Table]:
    """A table for each other number that an experiment is about."""
    tables, places = [], state["axis"]["values"]
    for name in _charted(state, metric)[1:]:
        show = (lambda value: f"{value:.1%}") if name in state["percent"] else (lambda value: f"{value:.3g}")
        most, arms = seeds_of(state, name), [arm for arm in state["arms"] if any(arm["means"][name])]
        rows = [[arm["name"], *(mean(one, show, most) for one in arm["means"][name])] for arm in arms]
        at = [f">{name}"] if len(places) == 1 else [f">{state['axis']['name']} {place:g}" for place in places]
        tables.append(Table(title=name[:1].upper() + name[1:], wide=True, columns=("arm", *at), rows=rows))
    return tables
