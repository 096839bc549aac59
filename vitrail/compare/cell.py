"""One cell, in a process of its own: ``python -m vitrail.compare.cell FOLDER``."""

import shutil
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from math import isfinite, nan
from pathlib import Path

from vitrail.compare.cells import ASKED, DONE, FAILED, code
from vitrail.compare.measures import measures
from vitrail.errors import InputError
from vitrail.families import cost_of
from vitrail.files import read_json, write_json
from vitrail.machine import keep_memory
from vitrail.runs import HISTORY, Run
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import Task
from vitrail.trainer import Training
from vitrail.training import Interrupted
from vitrail.weights import Weights

STOPPED, WRONG = 130, 1
USUAL = ("seconds", "waited", "epochs")  # numbers of every run, that say nothing of how good it is


def run_cell(folder: Path) -> None:
    """Train what FOLDER.asked.json asks for, from the beginning or from where it was interrupted, and write its
    numbers.
    """
    asked = read_json(folder.with_name(f"{folder.name}.{ASKED}"))
    if asked["by"]["code"] != code():
        raise InputError("the code is other code than when the comparison began; give its command again.")
    recipe = parse_recipe(asked["recipe"])
    keep_memory()
    run = Run(folder)
    if "result" not in run.about:
        Training([], {}, [], quiet=True, recipe=recipe, typed=asked["command"]).run(
            str(folder), None, resume=run.started
        )
        run = Run(folder)
    weights = run.weights()
    values = {name: one for name, one in run.result.items() if isinstance(one, float) and name not in USUAL}
    moments: dict[int, dict[str, float]] = {}
    if asked["measures"]:
        task = tasks[recipe.task].prepare(recipe).gathered()
        measured = partial(_measured, names=asked["measures"], task=task)
        values |= measured(weights)
        moments = {step: measured(kept.weights()) for step, kept in run.history.items()} if asked["followed"] else {}
    if not isfinite(values.get(asked["metric"], nan)):
        raise InputError(f"its {asked['metric']} is no number.")
    counted = cost_of(weights.config)
    numbers = {
        "values": values,
        "moments": [[step, found] for step, found in moments.items() if found],
        "parameters": counted.parameters,
        "multiply_adds": counted.multiply_adds,
        "seconds": run.result.get("seconds", 0.0),
        "steps": run.result.get("steps", 0),
        "epochs": run.result.get("epochs", 0),
        "part": run.result.get("part", ""),
        "tested": run.result.get("tested", 0),
        "by": asked["by"],
    }
    write_json(folder / DONE, numbers)
    for what in ("checkpoints", *([HISTORY] if asked["followed"] else [])):  # whose numbers are there
        shutil.rmtree(folder / what, ignore_errors=True)


def _measured(weights: Weights, names: Sequence[str], task: Task) -> dict[str, float]:
    """More numbers of a model, those of several measures."""
    model, values = weights.model().float(), dict[str, float]()
    for name in names:
        values |= measures[name](model, task)
    return values


def main(folder: Path) -> int:
    """Run it; the status of the process."""
    failed = folder.with_name(f"{folder.name}.{FAILED}")
    try:
        run_cell(folder)
    except (Interrupted, KeyboardInterrupt):
        return STOPPED
    except InputError as error:
        write_json(failed, {"why": str(error)})
        return WRONG
    except Exception as error:  # noqa: BLE001  # which is named, and the others go on
        traceback.print_exc()
        write_json(failed, {"why": f"{type(error).__name__}: {error}"})
        return WRONG
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
