"""Tasks: what is learned from what. Recipes are read without torch; ``vitrail.tasks.registry`` brings the rest."""

import vitrail.tasks.pictures.recipe  # noqa: F401  # each task's recipe adds itself
from vitrail.tasks.recipes import built_in, parse_recipe, read_recipe

__all__ = ["built_in", "parse_recipe", "read_recipe"]
