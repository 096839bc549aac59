"""Charts of means with their intervals: over an axis of logarithms, or side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from markupsafe import Markup

from vitrail.report.charts import BOTTOM, RIGHT, TOP, WIDTH, Frame, Line, key, nice, svg

COLOURS = ("first", "second", "third", "fourth", "fifth")
DASHES = ("", "7 4", "2 4", "10 3 2 3")
ROW = 30  # pixels
NAMES = 220


@dataclass(frozen=True)
class Point:
    """A mean, and between what it lies, if that is known."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """Means of one arm."""

    name: str
    points: Sequence[Point]


def style(number: int) -> tuple[str, str]:
    """The colour and the dashes of one of many curves."""
    return COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]


def curves_chart(curves: Sequence[Curve], across: str, *, percent: bool = False) -> Markup:
    """Curves with whiskers over an axis of logarithms."""
    drawn = [one for one in curves if one.points]
    if not drawn:
        return Markup("<p>Nothing was recorded.</p>")
    places = sorted({point.x for one in drawn for point in one.points})
    left, right = log10(places[0]), log10(places[-1])
    margin = 0.05 * (right - left) or 0.5
    ticks = nice(*_span([point for one in drawn for point in one.points], percent=percent))
    frame = Frame((left - margin, right + margin), ticks)
    parts = [frame.rules(percent=percent), *(frame.mark(log10(one), f"{one:g}") for one in places), frame.named(across)]
    keys = []
    for number, one in enumerate(drawn):
        colour, dash = style(number)
        path = " ".join(f"{frame.x(log10(point.x)):.1f},{frame.y(point.y):.1f}" for point in one.points)
        stroke = f'stroke="var(--{colour})" stroke-width="2"'
        parts.append(f'<polyline points="{path}" fill="none" {stroke} stroke-dasharray="{dash or "none"}"/>')
        shift = 3 * (number - (len(drawn) - 1) / 2)  # so that whiskers stand side by side
        for point in one.points:
            at = frame.x(log10(point.x)) + shift
            if point.low is not None and point.high is not None:
                low, high = (min(ticks[-1], max(ticks[0], end)) for end in (point.low, point.high))
                ends = f'y1="{frame.y(low):.1f}" y2="{frame.y(high):.1f}"'
                parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" {ends} {stroke}/>')
            title = f"<title>{Markup.escape(one.name)}, {point.x:g}: {_shown(point, percent=percent)}</title>"
            parts.append(
                f'<circle cx="{at:.1f}" cy="{frame.y(point.y):.1f}" r="3.5" fill="var(--{colour})">{title}</circle>'
            )
        keys.append(key(Line(one.name, [], colour, dash)))
    return svg(parts, f"by {across}") + Markup(f'<p class="legend">{"".join(keys)}</p>')  # noqa: S704


def rows_chart(curves: Sequence[Curve], *, percent: bool = False) -> Markup:
    """One mean of each arm with its whiskers, one below the other."""
    drawn = [one for one in curves if one.points]
    if not drawn:
        return Markup("<p>Nothing was recorded.</p>")
    ticks = nice(*_span([one.points[0] for one in drawn], percent=percent))
    height = TOP + ROW * len(drawn) + BOTTOM

    def x(value: float) -> float:
        return NAMES + (WIDTH - NAMES - RIGHT) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts = []
    for tick in ticks:
        shown = f"{tick:.1%}" if percent else f"{tick:g}"
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>')
        parts.append(f'<text x="{x(tick):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{shown}</text>')
    for number, one in enumerate(drawn):
        point, middle = one.points[0], TOP + ROW * (number + 0.5)
        name = Markup.escape(one.name)
        parts.append(f'<text x="{NAMES - 12}" y="{middle + 4}" text-anchor="end">{name}</text>')
        if point.low is not None and point.high is not None:
            low, high = (min(ticks[-1], max(ticks[0], end)) for end in (point.low, point.high))
            ends = f'x1="{x(low):.1f}" x2="{x(high):.1f}"'
            parts.append(f'<line {ends} y1="{middle}" y2="{middle}" stroke="var(--first)" stroke-width="2"/>')
        title = f"<title>{name}: {_shown(point, percent=percent)}</title>"
        parts.append(f'<circle cx="{x(point.y):.1f}" cy="{middle}" r="4.5" fill="var(--first)">{title}</circle>')
    return svg(parts, "means and their intervals", WIDTH, height)


def _span(points: Sequence[Point], *, percent: bool) -> tuple[float, float]:
    """From the least to the greatest; of fractions not beyond what there can be."""
    lows = [point.y if point.low is None else point.low for point in points]
    highs = [point.y if point.high is None else point.high for point in points]
    if not percent:
        return min(lows), max(highs)
    most = max(highs)
    return max(0.0, min(lows)), most if max(point.y for point in points) > 1 else min(1.0, most)


def _shown(point: Point, *, percent: bool) -> str:
    form = ".2%" if percent else ".4g"
    between = "" if point.low is None or point.high is None else f" ({point.low:{form}} to {point.high:{form}})"
    return f"{point.y:{form}}{between}"
