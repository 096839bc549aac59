"""The model families: each a small composition of the core's parts, with named sizes.

Loaded when first used, since the shapes and what they cost (``catalogue``) are asked for without torch.
"""

from typing import TYPE_CHECKING

from vitrail.lazy import loader

if TYPE_CHECKING:
    from vitrail.families.catalogue import Cost, Shape, models, presets
    from vitrail.families.costs import cost, cost_of, count_parameters, kept, speed
    from vitrail.families.model import (
        ROOM,
        Adapted,
        Model,
        at_once,
        build,
        check_memory,
        configure,
        empty,
        families,
        family_of,
        known_as,
    )
    from vitrail.families.vit.config import ViTConfig
    from vitrail.families.vit.model import ViT

__all__ = [
    "ROOM",
    "Adapted",
    "Cost",
    "Model",
    "Shape",
    "ViT",
    "ViTConfig",
    "at_once",
    "build",
    "check_memory",
    "configure",
    "cost",
    "cost_of",
    "count_parameters",
    "empty",
    "families",
    "family_of",
    "kept",
    "known_as",
    "models",
    "presets",
    "speed",
]

_HOMES = {
    "vitrail.families.catalogue": ("Cost", "Shape", "models", "presets"),
    "vitrail.families.costs": ("cost", "cost_of", "count_parameters", "kept", "speed"),
    "vitrail.families.model": (
        "ROOM",
        "at_once",
        "Adapted",
        "Model",
        "build",
        "check_memory",
        "configure",
        "empty",
        "families",
        "family_of",
        "known_as",
    ),
    "vitrail.families.vit.config": ("ViTConfig",),
    "vitrail.families.vit.model": ("ViT",),
}
__getattr__ = loader(__name__, {name: home for home, names in _HOMES.items() for name in names})
