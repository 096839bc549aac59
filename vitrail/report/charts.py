"""Charts as SVG text: drawn with currentColor and the page's own variables, so that they follow light and dark."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil, floor, log10

from markupsafe import Markup

from vitrail.tasks.sections import Bin

WIDTH, HEIGHT = 560, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 26, 12, 38
POINTS = 400  # a line is drawn with at most so many
DARK = 0.55  # of a cell, beyond which its number is written in the page's own colour


@dataclass(frozen=True)
class Line:
    """A named line of points, drawn in one of the page's colours."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dash: str = ""  # strokes and gaps, for whoever does not see the colours
    mark: tuple[float, float] | None = None  # a point of it that stands out, such as the best


def line_chart(
    lines: Sequence[Line], across: str, *, percent: bool = False, span: tuple[float, float] | None = None
) -> Markup:
    """Lines over a common axis, from the least to the greatest of their numbers, or over a span."""
    drawn = [replace(line, points=thinned(line.points)) for line in lines if line.points]
    if not drawn:
        return Markup("<p>Nothing was recorded.</p>")
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    frame = Frame((min(0.0, *xs), max(xs)), nice(*(span or (min(ys), max(ys)))))
    parts = [frame.axes(across, percent=percent)]
    for line in drawn:
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in line.points)
        if len(line.points) == 1:
            x, y = line.points[0]
            parts.append(f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="4" fill="var(--{line.colour})"/>')
        stroke = f'stroke="var(--{line.colour})" stroke-width="2" stroke-dasharray="{line.dash or "none"}"'
        parts.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        if line.mark is not None:
            x, y = line.mark
            title = f"<title>best: epoch {x:g}</title>"
            at = f'cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}"'
            parts.append(f'<circle {at} r="5" fill="none" {stroke} class="best">{title}</circle>')
    legend = "".join(key(line) for line in drawn)
    names = " and ".join(line.name for line in drawn)
    return svg(parts, f"{names} by {across}") + Markup(f'<p class="legend">{legend}</p>')  # noqa: S704


def smoothed(points: Sequence[tuple[float, float]], width: int) -> list[tuple[float, float]]:
    """Each value as the mean of so many around it, of as many as there are near an end."""
    half, sums = width // 2, [0.0, *accumulate(y for _, y in points)]
    ends = [(max(0, at - half), min(len(points), at + half + 1)) for at in range(len(points))]
    return [(x, (sums[end] - sums[start]) / (end - start)) for (x, _), (start, end) in zip(points, ends, strict=True)]


def key(line: Line) -> str:
    """What a line is called, beside a piece of it."""
    stroke = f'stroke="var(--{line.colour})" stroke-width="2.5" stroke-dasharray="{line.dash or "none"}"'
    sample = f'<svg viewBox="0 0 28 6" aria-hidden="true"><line x1="0" x2="28" y1="3" y2="3" {stroke}/></svg>'
    return f'<span class="key">{sample}{Markup.escape(line.name)}</span>'


@dataclass(frozen=True)
class Dot:
    """A named point: filled or hollow, and perhaps one of the best, which a line joins."""

    name: str
    x: float
    y: float
    filled: bool = True
    best: bool = False


def dot_chart(dots: Sequence[Dot], across: str, *, percent: bool = False) -> Markup:
    """Named points over an axis from 0, and a line through the best of them."""
    frame = Frame((0.0, max(dot.x for dot in dots)), nice(min(dot.y for dot in dots), max(dot.y for dot in dots)))
    parts = [frame.axes(across, percent=percent)]
    line = sorted((dot for dot in dots if dot.best), key=lambda dot: dot.x)
    path = " ".join(f"{frame.x(dot.x):.1f},{frame.y(dot.y):.1f}" for dot in line)
    parts.append(f'<polyline points="{path}" fill="none" stroke="var(--first)" stroke-dasharray="4 4"/>')
    for dot in dots:
        x, y = frame.x(dot.x), frame.y(dot.y)
        fill = "var(--first)" if dot.filled else "var(--card)"
        name = Markup.escape(dot.name)
        end, shift = ("end", -8) if x > WIDTH / 2 else ("start", 8)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="var(--first)"><title>{name}</title>'
            f'</circle><text x="{x + shift:.1f}" y="{y - 6:.1f}" text-anchor="{end}">{name}</text>'
        )
    return svg(parts, f"by {across}")


def calibration_chart(bins: Sequence[Bin], unit: str) -> Markup:
    """How often answers were right, by how confident they were; on the diagonal, as often as they were confident."""
    frame = Frame((0.0, 1.0), [0.0, 0.25, 0.5, 0.75, 1.0])
    parts = [frame.axes("confidence", percent=True, across_percent=True)]
    start, end = (frame.x(0), frame.y(0)), (frame.x(1), frame.y(1))
    parts.append(
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="currentColor" '
        f'stroke-dasharray="4 4" opacity="0.5"/>'
    )
    most = max(one.count for one in bins)
    for one in bins:
        radius = 3 + 7 * (one.count / most) ** 0.5
        title = f"{one.count} {unit}, confidence {one.confidence:.1%}, accuracy {one.accuracy:.1%}"
        parts.append(
            f'<circle cx="{frame.x(one.confidence):.1f}" cy="{frame.y(one.accuracy):.1f}" r="{radius:.1f}" '
            f'fill="var(--first)" fill-opacity="0.75"><title>{title}</title></circle>'
        )
    return svg(parts, "accuracy by confidence")


def confusion_chart(
    confusion: Sequence[Sequence[int]], names: Sequence[str], behind: Collection[tuple[int, int]] = ()
) -> Markup:
    """A cell for each class (down) and answer (across), the darker the larger its fraction of the class; a link to
    what is behind it, if there is something.
    """
    letters = min(16, max(map(len, names)))
    cell, label = max(18, min(44, 560 // len(names))), 8 + 10 * letters  # room for the larger letters of a phone too
    side = label + cell * len(names)
    parts = []
    for down, row in enumerate(confusion):
        middle = label + cell * (down + 0.5)
        name = Markup.escape(short(names[down]))
        parts.append(f'<text x="{label - 6}" y="{middle + 4}" text-anchor="end">{name}</text>')
        parts.append(
            f'<text transform="translate({middle + 4} {label - 6}) rotate(-90)" text-anchor="start">{name}</text>'
        )
        total = sum(row) or 1
        for across, count in enumerate(row):
            x, y, fraction = label + cell * across, label + cell * down, count / total
            title = Markup.escape(f"{names[down]} taken for {names[across]}: {count} of {total}")
            colour = "first" if down == across else "second"
            linked = (down, across) in behind
            parts.append(f'<a href="#cell-{down}-{across}">' if linked else "<g>")
            parts.append(
                f'<rect x="{x + 1}" y="{y + 1}" width="{cell - 2}" height="{cell - 2}" rx="2" fill="var(--{colour})" '
                f'fill-opacity="{0.04 + 0.96 * fraction**0.6 if count else 0.04:.3f}"><title>{title}</title></rect>'
            )
            if count and cell >= 26:  # noqa: PLR2004
                fill = "var(--page)" if fraction**0.6 > DARK else "currentColor"
                parts.append(
                    f'<text x="{x + cell / 2}" y="{y + cell / 2 + 4}" text-anchor="middle" fill="{fill}" '
                    f'class="count">{count}</text>'
                )
            parts.append("</a>" if linked else "</g>")
    return svg(parts, "confusion matrix", side + 4, side + 4)


class Frame:
    """From numbers to points of the picture."""

    def __init__(self, across: tuple[float, float], ticks: Sequence[float]) -> None:
        self.across, self.ticks = across, ticks

    def x(self, value: float) -> float:
        """Where a number is across."""
        low, high = self.across
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        """Where a number is down."""
        low, high = self.ticks[0], self.ticks[-1]
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value - low) / ((high - low) or 1)

    def axes(self, across: str, *, percent: bool = False, across_percent: bool = False) -> str:
        """Lines at round numbers, and what they are."""
        parts = [self.rules(percent=percent)]
        low, high = self.across
        for tick in (one for one in nice(low, high) if low <= one <= high):
            text = f"{100 * tick:.4g} %" if across_percent else f"{tick:.4g}"
            parts.append(self.mark(tick, text))
        parts.append(self.named(across))
        return "".join(parts)

    def mark(self, value: float, text: str) -> str:
        """What stands below a place."""
        return f'<text x="{self.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'

    def named(self, across: str) -> str:
        """What the axis is."""
        middle = (LEFT + WIDTH - RIGHT) / 2
        name = Markup.escape(across)
        return f'<text x="{middle}" y="{HEIGHT - 3}" text-anchor="middle" class="axis">{name}</text>'

    def rules(self, *, percent: bool = False) -> str:
        """Lines across at round numbers."""
        parts = []
        for tick in self.ticks:
            text = f"{100 * tick:.4g} %" if percent else f"{tick:.4g}"
            y = self.y(tick)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
        return "".join(parts)


def nice(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers from below the least to above the greatest, about so many."""
    gap = (high - low) or abs(high) or 1.0
    power = 10 ** floor(log10(gap / count))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power * count >= gap * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most so many points, each the mean of its neighbours."""
    size = -(-len(points) // POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group)) for group in groups]


def short(name: str, most: int = 16) -> str:
    """A name no longer than so many letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def svg(parts: Sequence[str], title: str, width: float = WIDTH, height: float = HEIGHT) -> Markup:
    """A picture of some parts."""
    body = "".join(parts)
    return Markup(  # noqa: S704  # every name in it was escaped
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{Markup.escape(title)}" '
        f'style="max-width:{width}px">{body}</svg>'
    )
