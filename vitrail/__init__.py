"""Vitrail: a toolkit for Vision Transformers and the Transformers behind them.

The names here load what they need when first used, so that importing vitrail, and asking the command line for help, is
quick and imports no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitrail.lazy import loader

if TYPE_CHECKING:
    from vitrail import core
    from vitrail.errors import InputError
    from vitrail.families import build, models
    from vitrail.lens import edit, record
    from vitrail.runs import open_run as run
    from vitrail.trainer import train
    from vitrail.weights import load, save

__version__ = "0.1.0"
__all__ = ["InputError", "build", "core", "edit", "load", "models", "record", "run", "save", "train"]

_HOMES = {
    "InputError": "vitrail.errors",
    "build": "vitrail.families",
    "models": "vitrail.families.catalogue",
    "edit": "vitrail.lens",
    "record": "vitrail.lens",
    "run": "vitrail.runs:open_run",
    "load": "vitrail.weights",
    "save": "vitrail.weights",
    "train": "vitrail.trainer",
}


_load = loader(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return import_module("vitrail.core") if name == "core" else _load(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
