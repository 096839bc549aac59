"""What a training will take, before it is begun: memory by a pass without numbers, time by a pass of few examples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, TypeVar

from vitrail.errors import InputError
from vitrail.families import ROOM, Shape, empty, kept, speed
from vitrail.machine import available_memory
from vitrail.tasks.task import Choice, Task
from vitrail.training.loop import Precision
from vitrail.training.optim import hold

AnyTask = TypeVar("AnyTask", bound=Task)

LEARNED = 16  # bytes for each number that is learned: itself, its gradient, and what AdamW keeps of it
AVERAGED = 4  # and for its running average
OVER = 1.3  # what a step was seen to take, over what is counted (bench/README.md)
HOLES = 11.0  # the same where batches have ever other shapes, whose blocks leave holes between them
PLANNED = 0.8  # of the memory that is free; the rest is left
FIXED = 2**28  # bytes of everything else, as seen
HOPED = 1.2  # times what the time seems enough for is planned: the rate falls by the clock, and ends with it
FEWEST = 4  # examples at a time, below which a computer does less than it can
LONGER = 2  # times the epochs that are enough are the most that time is used for


@dataclass(frozen=True)
class Forecast:
    """What a training will take: seconds of a step, of a measurement and in all; bytes, and how many are free."""

    step: float
    measurement: float
    seconds: float
    memory: int
    free: int | None
    before: float = 0.0  # seconds before the first step, such as a head is fitted in

    def of(self, task: Task) -> "Forecast":
        """For as many epochs as a task has."""
        train = task.recipe.train
        steps = train.steps or train.epochs * task.per_epoch
        measured = 1 + steps // task.per_epoch // train.evaluate
        return replace(self, seconds=self.before + steps * self.step + measured * self.measurement)


def fitted(task: AnyTask, processes: int = 1) -> AnyTask:
    """The task with its batches taken in parts, where a whole one would take more memory than there is."""
    free = available_memory()
    if free is None or not isinstance(task.config, Shape):
        return task
    train = task.recipe.train
    for accumulate, recompute in _ways(task, processes):
        smaller = _with(task, accumulate=accumulate, recompute=recompute)
        if memory(smaller, processes) <= PLANNED * free:
            if (accumulate, recompute) == (train.accumulate, train.recompute):
                return task
            why = f"a whole batch takes {_gigabytes(memory(task, processes))}, and {_gigabytes(free)} are free"
            fields = {"accumulate": accumulate, **({"recompute": True} if recompute else {})}
            return _chosen(smaller, fields, why)
    raise InputError(
        f"this training takes {_gigabytes(memory(smaller, processes))} of memory even with "
        f"{ceil(task.per_update / (processes * accumulate))} at a time, and {_gigabytes(free)} are free here; choose "
        f"smaller inputs (--image), {'--freeze, ' * (task.weights is not None)}or a smaller model."
    )


def _ways(task: Task, processes: int) -> Iterator[tuple[int, bool]]:
    """In how many parts a batch may be taken, and whether blocks are computed again: the fastest first."""
    train = task.recipe.train
    each, given = ceil(task.per_update / processes), _given(task)
    halves = [2**power for power in range(each.bit_length()) if 2**power <= each]
    parts = [train.accumulate] if "accumulate" in given else sorted({*halves, each})
    for recompute in (train.recompute,) if "recompute" in given else (False, True):
        for accumulate in parts:
            if recompute or "recompute" in given or each / accumulate >= FEWEST or accumulate == 1:
                yield accumulate, recompute


def paced(task: AnyTask, expected: "Forecast", seconds: float) -> AnyTask:
    """The task with as many epochs as there is time for, if its time is given and its epochs are not."""
    train = task.recipe.train
    if train.minutes is None or "epochs" in _given(task) or train.steps is not None:
        return task
    epoch = task.per_epoch * expected.step + expected.measurement / train.evaluate
    epochs = max(1, min(LONGER * train.epochs, int(HOPED * seconds / epoch)))
    if epochs == train.epochs:
        return task
    why = f"{train.minutes:g} minutes, with about {epoch:,.0f} s for an epoch"
    evaluate = max(1, min(train.evaluate, epochs))
    return _chosen(_with(task, epochs=epochs, evaluate=evaluate), {"epochs": epochs}, why)


def memory(task: Task, processes: int = 1) -> int:
    """Bytes that a training takes at its peak, in all processes of a machine together."""
    train, config = task.recipe.train, task.config
    each = ceil(task.per_update / (processes * train.accumulate))
    one = kept(config)
    learned = config.parameters() * (LEARNED + AVERAGED * bool(train.ema))
    layers = task.recipe.weights.layers
    fraction = 1.0 if layers is None else min(1.0, (layers + 1) / max(1, len(empty(config).blocks)))
    over = HOLES if task.varied else OVER
    activations = over * each * fraction * (one.recomputing if train.recompute else one.training)
    return task.stored + processes * int(learned + activations + FIXED)


def forecast(task: Task, processes: int = 1) -> Forecast:
    """What a training of the task will take."""
    train, (examples, tests) = task.recipe.train, task.counts
    start, free = task.recipe.weights, available_memory()
    model = hold(task.model(), start.layers)
    look = 1 / speed(model)
    measurement = tests * look / processes
    if task.at_once:
        return Forecast(0.0, measurement, (examples + tests) * look, _looking(task), free)
    head = examples * look if task.weights is not None else 0.0  # which is fitted first
    each = ceil(task.per_update / (processes * train.accumulate))
    again = 4 / 3 if train.recompute else 1.0
    forward = Precision(train.precision).forward
    step = again * each * train.accumulate / speed(model, training=True, most=each, within=forward)
    wanted = memory(task, processes) if isinstance(task.config, Shape) else 0
    return Forecast(step, measurement, 0.0, wanted, free, head).of(task)


def _looking(task: Task) -> int:
    """Bytes that are taken where a model answers, and learns nothing but a head."""
    each = task.config.answering() or ROOM
    return task.stored + FIXED + 4 * task.config.parameters() + min(ROOM, task.counts[0] * each)


def _given(task: Task) -> set[str]:
    """Fields of the training that the user gave, or that a run was begun with."""
    return task.recipe.train.model_fields_set - {choice.field.partition(".")[2] for choice in task.choices}


def _with(task: AnyTask, **fields: Any) -> AnyTask:
    train = task.recipe.train.model_copy(update=fields)
    return replace(task, recipe=task.recipe.model_copy(update={"train": train}))


def _chosen(task: AnyTask, fields: dict[str, Any], why: str) -> AnyTask:
    """With what was chosen, and why."""
    chosen = [Choice(f"train.{name}", value, why) for name, value in fields.items()]
    before = [choice for choice in task.choices if choice.field not in {one.field for one in chosen}]
    return replace(task, choices=[*before, *chosen])


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:,.1f} GB"
