"""Names that are loaded when they are first used, so that a package which needs torch is imported without it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names live in modules: ``{"run": "vitrail.runs:open_run"}``."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        module, _, thing = homes[name].partition(":")
        return getattr(import_module(module), thing or name)

    return load
