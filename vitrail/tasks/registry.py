"""All tasks, each added by its module."""

from vitrail.progress import Progress, silent
from vitrail.recipe import Recipe
from vitrail.tasks.language.task import LanguageTask
from vitrail.tasks.pictures.task import PictureTask
from vitrail.tasks.pixels.task import PixelTask
from vitrail.tasks.tags.task import TagTask
from vitrail.tasks.task import Task, tasks
from vitrail.tasks.translate.task import TranslateTask

__all__ = ["LanguageTask", "PictureTask", "PixelTask", "TagTask", "TranslateTask", "prepare", "tasks"]


def prepare(recipe: Recipe, progress: Progress = silent) -> Task:
    """The task of a recipe, with its data at hand."""
    return tasks[recipe.task].prepare(recipe, progress).gathered(progress)
