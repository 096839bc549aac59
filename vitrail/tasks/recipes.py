"""Recipes: what a training run is, as a TOML file that says which number it reached and with which command."""

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from vitrail.config import override
from vitrail.errors import InputError, unknown
from vitrail.recipe import Recipe, recipes


def built_in() -> dict[str, Path]:
    """The recipes that come with the package, by name."""
    folder = Path(str(files("vitrail"))) / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.toml"))}


def read_recipe(
    what: str | Sequence[str] | None,
    assignments: Iterable[str] = (),
    *,
    begun: Mapping[str, Any] | None = None,
    **fields: Mapping[str, Any],
) -> Recipe:
    """A built-in recipe, a TOML file, or data of a kind that a task knows, one path or several, with some fields set.

    To go on with a run, the recipe that it was begun with: what is given again is laid over it.
    """
    several = [] if what is None else [what] if isinstance(what, str) else list(what)
    what = several[0] if len(several) == 1 else None
    table = _table(several) if several else {}
    assignments, data = list(assignments), fields.get("data", {}).get("path")
    typed = override({}, assignments).get("model")
    if isinstance(typed, Mapping) and "name" in typed:  # another model, as where it is named by itself
        fields = {**fields, "model": {**fields.get("model", {}), "name": typed["name"]}}
    if data is not None and several and _is_data(several[0]):
        raise InputError(f"{several[0]!r} and --data {data!r} both name data; give one of them.")
    tables = [fields, table, begun or {}]
    weights = any(isinstance(one.get("weights"), Mapping) and one["weights"].get("path") for one in tables)
    if (weights or any(one.startswith("weights.path=") for one in assignments)) and what in built_in():
        # made for training from scratch
        table = {section: value for section, value in table.items() if section not in ("model", "optim", "train")}
    if begun is not None:
        table = {**begun, **{name: _laid(begun.get(name), value) for name, value in table.items()}}
    for section, changes in fields.items():
        if not isinstance(table.setdefault(section, {}), dict):
            raise InputError(
                f"{section}={table[section]!r} in recipe {what!r} does not fit; it should be a table [{section}]."
            )
        same = begun is not None and table[section].get("name") == changes.get("name")
        if section == "model" and "name" in changes and not same:  # another model, with none of this one's fields
            if what in built_in() and not _alike(table[section].get("name", "vit"), changes["name"]):
                table.pop("optim", None)  # nor what it was learned by
            table[section].clear()
        table[section].update(changes)
    return parse_recipe(override(table, assignments)).absolute()


def parse_recipe(table: Mapping[str, Any]) -> Recipe:
    """The recipe of the task that a table names."""
    return recipes[table.get("task", "pictures")](**table)


def _alike(one: str, other: str) -> bool:
    """Whether two models are of one family."""
    from vitrail.families import known_as  # noqa: PLC0415  # which needs torch

    return known_as(one)[0] is known_as(other)[0]


def _laid(section: Any, value: Any) -> Any:
    """A section with what is given of it again."""
    return {**section, **value} if isinstance(section, Mapping) and isinstance(value, Mapping) else value


def _is_data(what: str) -> bool:
    """Whether it is data itself, not a recipe."""
    return what not in built_in() and Path(what).suffix != ".toml"


def _table(several: Sequence[str]) -> dict[str, Any]:
    what = several[0]
    path = built_in().get(what) or Path(what)
    if len(several) > 1 or path.suffix != ".toml" or not path.is_file():
        if path.suffix == ".toml":
            raise InputError(
                f"recipe {what!r} is not there; check the path, or see `vitrail recipes`."
                if len(several) == 1
                else f"{what!r} is a recipe, and {several[1]!r} is given too; give one of them."
            )
        for name, recipe in recipes.items():
            fields = recipe.from_paths(several)
            if fields is not None:
                return {"task": name, **fields}
        if len(several) > 1:
            raise _no_pair(several)
        if os.sep in what or path.exists():
            raise InputError(
                f"{what!r} is not a folder, nor a recipe; give a folder of pictures, one folder a class; or two files "
                f"of sentences that go together line by line, or one with a tab between them."
            )
        raise unknown("recipe", what, built_in())
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"recipe {what!r} is not valid TOML: {error}.") from None


def _no_pair(several: Sequence[str]) -> InputError:
    missing = [one for one in several if not Path(one).is_file()]
    if missing:
        return InputError(f"{missing[0]!r} is not there, or no file; give two files that go together line by line.")
    return InputError(f"{len(several)} files are given; give two that go together line by line, or a single table.")
