"""What was found and what will be done, said before a training begins."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitrail.families import count_parameters, empty
from vitrail.terminal.progress import span

if TYPE_CHECKING:
    from vitrail.distributed import World
    from vitrail.tasks.task import Task
    from vitrail.training import Forecast


def plan(task: "Task", expected: "Forecast", world: "World", folder: Path) -> str:
    """The data, the model, the training, what it will take, and what was chosen for it."""
    return _lines(
        task,
        [
            _model(task),
            *_weights(task),
            ("train", task.head_alone if task.at_once else _training(task, world)),
            *task.settings(),
            ("time", _time(task, expected)),
            *_memory(expected),
            ("run", str(folder)),
        ],
    )


def found(task: "Task") -> str:
    """What came to light when the data was read."""
    return "\n".join(f"{name:<9} {text.replace(_here(), '')}" for name, text in task.findings())


def _training(task: "Task", world: "World") -> str:
    o, t = task.recipe.optim, task.recipe.train
    rates = f"Muon {o.muon:g} and AdamW {o.lr:g}" if o.name == "muon" else f"AdamW {o.lr:g}"
    count = task.per_epoch
    extras = [
        f"decay {o.decay:g}",
        f"{o.layer_decay:g} of the rate a layer down" * (o.layer_decay != 1),
        f"the last {task.recipe.weights.layers} layers alone" * bool(task.recipe.weights.layers),
        f"smoothing {t.smoothing:g}" * bool(t.smoothing),
        f"average {t.ema:g}" * bool(t.ema),
        f"{t.accumulate} micro-batches a step" * (t.accumulate > 1),
        "blocks computed again for the gradients" * t.recompute,
        t.precision * (t.precision != "float32"),
        f"{world.size} processes" * (world.size > 1),
        f"seed {t.seed}",
        str(world.device),
    ]
    steps = f"{count:,} step{'s' * (count > 1)}"
    how, size = ", ".join(filter(None, extras)), f"batch {t.batch} {task.batched}".rstrip()
    whole = f"{t.epochs} epoch{'s' * (t.epochs > 1)} of {steps}" if t.steps is None else f"{t.steps:,} steps"
    return f"{whole}, {size}, {rates}, {how}"


def _time(task: "Task", expected: "Forecast") -> str:
    minutes = task.recipe.train.minutes
    if minutes is None:
        return f"about {span(expected.seconds)}"
    return f"about {span(min(expected.seconds, 60 * minutes))}, and no more than {minutes:g} min"


def _memory(expected: "Forecast") -> list[tuple[str, str]]:
    if not expected.memory:
        return []
    free = "" if expected.free is None else f" of {expected.free / 2**30:,.1f} GB that are free"
    return [("memory", f"about {expected.memory / 2**30:,.1f}{free}")]


def _model(task: "Task") -> tuple[str, str]:
    model = empty(task.config)
    return "model", f"{model.summary()}: {count_parameters(model):,} parameters"


def _weights(task: "Task") -> list[tuple[str, str]]:
    weights = task.weights
    if weights is None:
        return []
    notes = [("", line) for note in weights.remarks for line in note.splitlines()]
    return [("weights", f"{weights.path} ({weights.format})"), *notes]


def _lines(task: "Task", lines: list[tuple[str, str]]) -> str:
    output = [f"{name:<9} {text.replace(_here(), '')}" for name, text in [*task.plan(), *lines]]
    if task.choices:
        rows = [(choice.field, str(choice.value), choice.why) for choice in task.choices]
        field, value = (max(len(row[column]) for row in rows) for column in (0, 1))
        output.append("chosen from the data; change any with --set FIELD=VALUE:")
        output += [f"  {row[0]:<{field}}  {row[1]:<{value}}  {row[2]}".rstrip() for row in rows]
    return "\n".join(output)


def _here() -> str:
    """What is left out of paths, which are absolute, and long to read."""
    return f"{Path.cwd()}{os.sep}"
