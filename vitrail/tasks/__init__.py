"""Tasks: what is learned from what. Recipes are read without torch; ``vitrail.tasks.registry`` brings the rest."""

import vitrail.tasks.pictures.recipe  # each task's recipe adds itself
import vitrail.tasks.translate.recipe  # noqa: F401
from vitrail.tasks.recipes import built_in, parse_recipe, read_recipe

__all__ = ["built_in", "parse_recipe", "read_recipe"]
