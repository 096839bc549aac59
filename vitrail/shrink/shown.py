"""What is said of a shrinking on a terminal: a line for each step as it is done, a table and a sentence at the end."""

from collections.abc import Sequence
from pathlib import Path

from vitrail.shrink.steps import History, Step, compression
from vitrail.tasks.task import Metric


def line(step: Step, metric: Metric | None) -> str:
    """A step in a line, as it is said when it is done."""
    fast = " and ".join(f"{one.median * 1e3:.3g} ms" for one in step.times)
    faster = "" if step.number == 0 else f" ({step.faster[0]:.2f} and {step.faster[1]:.2f} times as fast)"
    size = f"{step.costs.bytes / 1e6:.3g} MB"
    worth = ""
    if metric is not None and step.worth is not None:
        dropped = "" if step.number == 0 else f" ({-(step.drop or 0.0):+.2f} points)"
        worth = f"{metric.name} {metric.show(step.worth.value)}{dropped}, "
    end = "" if step.number == 0 else f"; {step.why or 'kept'}"
    return f"   {step.done}: {worth}{fast} at {step.times[0].batch} and {step.times[1].batch}{faster}, {size}{end}"


def table_of(history: History, metric: Metric | None) -> tuple[list[str], list[list[str]]]:
    """The columns of a table that fits a narrow terminal, and a row for each step."""
    at = [f">ms at {one.batch}" for one in history.original.times]
    columns = ["step", *([f">{metric.name}"] if metric else []), *at, ">faster", ">MB", ""]
    return columns, [_row(step, metric) for step in (history.original, *history.steps)]


def _row(step: Step, metric: Metric | None) -> list[str]:
    value = [] if metric is None or step.worth is None else [metric.show(step.worth.value)]
    spent = [f"{one.median * 1e3:.3g}" for one in step.times]
    kept = "" if step.number == 0 else "kept" if step.kept else "undone"
    return [step.name, *value, *spent, f"{step.speedup():.2f}", f"{step.costs.bytes / 1e6:.3g}", kept]


def summary(history: History, metric: Metric | None, missed: Sequence[str], out: Path) -> str:
    """What came of it, in a sentence or two."""
    first, now = history.original, history.now
    short = f"\nshort of the goal: {'; '.join(missed)}" if missed else ""
    if now.number == 0:
        return f"nothing was found that pays within the bound; {out} is the original{short}"
    fast = " and ".join(f"{one:.2f}" for one in now.faster)
    at = " and ".join(str(one.batch) for one in now.times)
    text = f"{fast} times as fast at {at} at a time, {compression(first, now):.2f} times smaller"
    if metric is not None and now.worth is not None and first.worth is not None:
        text += f", {metric.name} {metric.show(first.worth.value)} -> {metric.show(now.worth.value)}"
    return f"{text}; run in {out}{short}"
