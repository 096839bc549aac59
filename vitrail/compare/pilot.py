"""What a step of a training takes: some are taken, on noise, before the examples are at hand."""

from dataclasses import replace
from statistics import median

from vitrail.distributed import world
from vitrail.runs import Run
from vitrail.tasks.task import Task
from vitrail.training import Job

LONG = 0.5  # seconds of steps that are enough to know
STEPS = 40  # and how many are


def step_seconds(task: Task) -> float | None:
    """The median of some steps but the first, all of their parts included; None of a task that has no stand-in."""
    stand_in = task.stand_in()
    if stand_in is None:
        return None
    train = stand_in.recipe.train.model_copy(update={"epochs": STEPS, "steps": None})
    stand_in = replace(stand_in, recipe=stand_in.recipe.model_copy(update={"train": train}))
    with world(train.device) as here:
        times = list[float]()
        for step in Job(stand_in, Run("."), here).updates():
            times.append(step.seconds)
            if (sum(times) > LONG and len(times) > 1) or len(times) == STEPS:
                break
    return median(times[1:] or times)
