"""Tasks: what is learned from what. Recipes are read without torch; ``vitrail.tasks.registry`` brings the rest."""

# Each task's recipe adds itself, and the first of them that knows data by its path takes it.
# isort: off
import vitrail.tasks.pictures.recipe
import vitrail.tasks.tags.recipe
import vitrail.tasks.translate.recipe
import vitrail.tasks.language.recipe
import vitrail.tasks.pixels.recipe  # noqa: F401

# isort: on
from vitrail.tasks.recipes import built_in, parse_recipe, read_recipe

__all__ = ["built_in", "parse_recipe", "read_recipe"]
