"""The model families: each a small composition of the core's parts, with named sizes."""

from vitrail.families.costs import Cost, cost, count_parameters
from vitrail.families.model import Adapted, Model, build, configure, families, family_of, models, presets
from vitrail.families.vit import ViT, ViTConfig

__all__ = [
    "Adapted",
    "Cost",
    "Model",
    "ViT",
    "ViTConfig",
    "build",
    "configure",
    "cost",
    "count_parameters",
    "families",
    "family_of",
    "models",
    "presets",
]
