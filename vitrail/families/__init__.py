"""The model families: each a small composition of the core's parts, with named sizes."""

from vitrail.families import vit
from vitrail.families.measure import Cost, cost
from vitrail.families.registry import Model, build, configure, families, family_of, models, presets

__all__ = ["Cost", "Model", "build", "configure", "cost", "families", "family_of", "models", "presets", "vit"]
