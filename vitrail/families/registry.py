"""The model families and their named sizes."""

from typing import Any, ClassVar

from torch import nn

from vitrail.config import Config as Fields
from vitrail.errors import unknown
from vitrail.registry import Registry


class Model(nn.Module):
    """What every family's models have: the frozen configuration they were built from, and its type.

    A model is called as ``model(images)``, or as ``model(images, shortest=True)`` by who wants its answer and will not
    look inside.
    """

    Config: ClassVar[type[Fields]]
    config: Fields


families: Registry[type[Model]] = Registry("family")
presets: Registry[tuple[str, dict[str, Any]]] = Registry("model")


def models(pattern: str = "*") -> list[str]:
    """The names that ``build`` knows, those that match a pattern such as ``vit-b*``."""
    return presets.matching(pattern)


def configure(name: str, **fields: Any) -> Fields:
    """The configuration of a preset (``vit-b/16``) or of a family (``vit``) with some fields given."""
    if str(name).lower() not in {*presets, *families}:
        raise unknown("model", name, [*presets, *families])
    family, preset = presets[name.lower()] if name.lower() in presets else (name.lower(), {})
    if isinstance(fields.get("width"), int) and "hidden" in preset:  # which keeps its proportion to the width
        preset = {**preset, "hidden": preset["hidden"] * fields["width"] // preset["width"]}
    return families[family].Config(**{**preset, **fields})


def build(name: str, **fields: Any) -> Model:
    """A model with fresh weights: ``build("vit-b/16", classes=10)``, ``build("vit", image=28, patch=4, ...)``."""
    config = configure(name, **fields)
    return families[family_of(config)](config)


def family_of(config: Fields) -> str:
    """The name of the family that a configuration belongs to."""
    return next(name for name, family in families.items() if isinstance(config, family.Config))
