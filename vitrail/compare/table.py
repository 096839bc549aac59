"""What a comparison shows in a terminal."""

from collections.abc import Mapping
from typing import Any

from vitrail.tasks.task import Metric


def table_of(state: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The means of each arm at each place, and what it costs."""
    metric, places = Metric(**state["metric"]), state["axis"]["values"]
    at = [f">{metric.name}"] if len(places) == 1 else [f">{place:g}" for place in places]
    published = any(arm["published"] is not None for arm in state["arms"])
    rows = []
    for arm in state["arms"]:
        means = []
        for one in arm["means"][metric.name]:
            if one is None:
                means.append("-")
                continue
            half = "" if one["low"] is None else f" ± {metric.show((one['high'] - one['low']) / 2)}"
            means.append(f"{metric.show(one['value'])}{half}")
        paper = [] if not published else ["" if arm["published"] is None else metric.show(arm["published"])]
        rows.append([arm["name"], *means, *paper, f"{arm['parameters']:,}", f"{arm['multiply_adds'] / 1e6:,.1f} M"])
    first = "arm" if len(places) == 1 else state["axis"]["name"]
    return [first, *at, *([">in the paper"] if published else []), ">parameters", ">multiply-adds"], rows
