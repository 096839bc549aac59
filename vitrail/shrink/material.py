"""What a shrinking measures and learns on: the task's examples, as some weights look at them."""

from dataclasses import dataclass, field
from typing import Any

from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import Metric, Task
from vitrail.weights import Weights


@dataclass(frozen=True, eq=False)
class Material:
    """The recipe of a task and the task itself, as the original looks at it; of other sizes it is read once more."""

    recipe: Recipe
    task: Task
    progress: Progress = silent
    others: dict[str, Task] = field(default_factory=dict)

    @classmethod
    def gathered(cls, recipe: Recipe, progress: Progress = silent) -> "Material":
        """Read the data."""
        return cls(recipe, _gathered(recipe, progress), progress)

    def seen_by(self, weights: Weights) -> Task:
        """The task as some weights look at it: pictures of their size."""
        size = size_of(weights)
        if not size or size == size_of_task(self.task):
            return self.task
        if str(size) not in self.others:
            table = self.recipe.model_dump(mode="json", exclude_unset=True)
            model = {**table.get("model", {}), **size}
            self.others[str(size)] = _gathered(parse_recipe({**table, "model": model}), self.progress)
        return self.others[str(size)]

    @property
    def metric(self) -> Metric:
        """The headline number."""
        return self.task.metric


def _gathered(recipe: Recipe, progress: Progress) -> Task:
    return tasks[recipe.task].prepare(recipe, progress).gathered(progress)


def size_of(weights: Weights) -> dict[str, Any]:
    """The fields of a recipe's model that have it look at inputs as some weights do."""
    return _size(weights.config) if weights.pictures else {}


def size_of_task(task: Task) -> dict[str, Any]:
    """The same of a task's own model."""
    return _size(task.config)


def _size(config: Any) -> dict[str, Any]:
    down, across = config.size
    return {"image": down if down == across else [down, across]}
