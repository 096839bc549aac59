"""What was found and what will be done, said before a training begins."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.cli.progress import span

if TYPE_CHECKING:
    from vitrail.families import Model
    from vitrail.tasks.task import Task
    from vitrail.training import Job


def plan(job: "Job", seconds: float) -> str:
    """The data, the model, the training, and what was chosen for it."""
    recipe, world = job.recipe, job.world
    o, t = recipe.optim, recipe.train
    rates = f"Muon {o.muon:g} and AdamW {o.lr:g}" if o.name == "muon" else f"AdamW {o.lr:g}"
    extras = [
        f"decay {o.decay:g}",
        f"{o.layer_decay:g} of the rate a layer down" * (o.layer_decay != 1),
        f"smoothing {t.smoothing:g}" * bool(t.smoothing),
        f"average {t.ema:g}" * bool(t.ema),
        f"{t.accumulate} micro-batches a step" * (t.accumulate > 1),
        t.precision * (t.precision != "float32"),
        f"{world.size} processes" * (world.size > 1),
    ]
    left = (job.total - job.step) * seconds
    steps = f"{job.batches.per_epoch:,} step{'s' * (job.batches.per_epoch > 1)}"
    how = ", ".join(filter(None, [*extras, f"seed {t.seed}", str(world.device)]))
    return _lines(
        job.task,
        [
            _model(job.model),
            *_weights(job.task),
            ("train", f"{t.epochs} epoch{'s' * (t.epochs > 1)} of {steps}, batch {t.batch}, {rates}, {how}"),
            *job.task.settings(),
            ("time", f"about {span(left)}"),
            ("run", str(job.run.path)),
        ],
    )


def head_plan(task: "Task", model: "Model", folder: Path) -> str:
    """The same, where the head alone is trained."""
    lines = [_model(model), *_weights(task), ("train", task.head_alone), *task.settings(), ("run", str(folder))]
    return _lines(task, lines)


def _model(model: "Model") -> tuple[str, str]:
    from vitrail.families import count_parameters

    return "model", f"{model.summary()}: {count_parameters(model):,} parameters"


def _weights(task: "Task") -> list[tuple[str, str]]:
    weights = task.weights
    if weights is None:
        return []
    return [("weights", f"{weights.path} ({weights.format})"), *(("", note) for note in weights.remarks)]


def _lines(task: "Task", lines: list[tuple[str, str]]) -> str:
    here = f"{Path.cwd()}{os.sep}"  # paths are absolute, and long to read
    output = [f"{name:<9} {text.replace(here, '')}" for name, text in [*task.plan(), *lines]]
    if task.choices:
        rows = [(choice.field, str(choice.value), choice.why) for choice in task.choices]
        field, value = (max(len(row[column]) for row in rows) for column in (0, 1))
        output.append("chosen from the data; change any with --set FIELD=VALUE:")
        output += [f"  {row[0]:<{field}}  {row[1]:<{value}}  {row[2]}".rstrip() for row in rows]
    return "\n".join(output)
