"""report.html: what a run did and what came of it, in one file that asks nothing of the network."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.errors import InputError
from vitrail.report.charts import Line, calibration_chart, confusion_chart, line_chart, smoothed
from vitrail.report.page import write_page
from vitrail.runs import Run
from vitrail.tasks.sections import Confusion, Reliability, Section
from vitrail.tasks.task import Task
from vitrail.training import Result

SMOOTH = 60  # the loss is shown as a mean over one part of so many of the training


def write_report(run: Run, task: Task, result: Result) -> Path:
    """Write report.html beside the model, from what the run has written and what its task has to show."""
    metric, metrics, part = task.metric, run.metrics(), task.held_out.part
    per_epoch = max(1, round(result.steps / result.epochs))
    steps = [line for line in metrics if "epoch" not in line]
    tests = [line for line in metrics if "epoch" in line]

    def over_epochs(name: str) -> list[tuple[float, float]]:
        return [(float(line["epoch"]), line[name]) for line in tests if line.get(name) is not None]

    def over_steps(name: str) -> list[tuple[float, float]]:
        return [(line["step"] / per_epoch, line[name]) for line in steps if line.get(name) is not None]

    taken = over_steps("loss")
    width = max(1, len(taken) // SMOOTH) | 1  # odd, so that it has a middle
    name = f"training loss, mean of {width} steps" if width > 1 else "training loss"
    losses = [Line(name, smoothed(taken, width), "first"), Line(f"{part} loss", over_epochs("loss"), "second")]
    headline = [Line(f"{part} {metric.name}", over_epochs(metric.name), "second")]
    charts = {"Loss": line_chart(losses, "epoch")}
    if metric.name != "loss":
        title = metric.name.capitalize()
        if headline[0].points:
            epoch, value = metric.best(headline[0].points)
            title += f", best after epoch {epoch:g}: {metric.show(value)}"
            headline = [replace(headline[0], mark=(epoch, value))]
        charts[title] = line_chart(headline, "epoch", percent=metric.percent)
    sections = task.sections(result.measurement)
    if task.sampled:
        sections = [*sections, *task.samples(run.weights().model().float())]
    return write_page(
        run.path / "report.html",
        "report.html",
        run=run.path.name,
        title=task.headline(result.measurement),
        summary=task.plan()[0][1],
        begun=run.begun,
        result=result,
        head_alone=task.head_alone,
        cards=task.cards(result.measurement),
        recipe=_rows(task, trained=bool(steps)),
        trained=bool(steps),
        charts=charts,
        rate=line_chart([Line("learning rate", over_steps("lr"), "first")], "epoch"),
        warnings=[_drawn(section) for section in sections if section.warning],
        pairs=[_drawn(section) for section in sections if not section.wide and not section.warning],
        wide=[_drawn(section) for section in sections if section.wide and not section.warning],
    )


def write_preview(path: Path, task: Task) -> Path:
    """Write a page of what the model will be given, as it is changed at random."""
    sections = [_drawn(section) for section in task.preview()]
    if not sections:
        raise InputError(f"the task {task.recipe.task!r} has nothing to preview; leave --preview out.")
    what = task.plan()[0][1]
    return write_page(path, "preview.html", title="What the model is given", summary=what, sections=sections)


def _drawn(section: Section) -> dict[str, Any]:
    """A section's fields, and how it is shown."""
    fields = {**vars(section), "kind": type(section).__name__.lower()}
    if isinstance(section, Confusion):
        return {**fields, "chart": confusion_chart(section.counts, section.names, section.figures)}
    if isinstance(section, Reliability):
        return {**fields, "chart": calibration_chart(section.bins, section.unit)}
    return fields


def _rows(task: Task, *, trained: bool) -> list[tuple[str, Any]]:
    """The recipe, field by field, without what had no part in the run."""
    recipe = task.recipe
    without = set() if recipe.weights.path else {"weights"}
    without |= set() if trained else set(recipe.of_updates)
    table = recipe.model_dump(mode="json")
    return [
        (f"{section}.{field}", value)
        for section in recipe.sections
        if section not in without
        for field, value in table[section].items()
    ]
