"""From a recipe to pictures in memory, with what it left out chosen on the way."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.data import Parts, collect, find, from_idx, idx_parts, sources, survey
from vitrail.errors import InputError
from vitrail.families import configure
from vitrail.recipe import Recipe
from vitrail.train.plan import Choice, Facts, choose


@dataclass(frozen=True, eq=False)
class Prepared:
    """A recipe with nothing left out, what was chosen for it and why, and its pictures."""

    recipe: Recipe
    choices: list[Choice]
    parts: Parts
    config: Any


def unshown(_: str, items: Iterable[Any], __: int) -> Iterable[Any]:
    """The items, with no progress shown."""
    return items


def prepare(recipe: Recipe, shown: Any = unshown) -> Prepared:
    """Find the pictures, choose what the recipe leaves out, then decode them at the model's size."""
    data = recipe.data
    path = Path(data.path) if data.path is not None else None
    if data.source != "pictures":
        return _decoded(recipe, sources[data.source](path, data.test, data.seed))
    if path is None:
        raise InputError("the recipe names no pictures; give a folder with --data, or set data.source.")
    if path.is_dir() and "train" in idx_parts(path):
        return _decoded(recipe, from_idx(path, data.test, data.seed))
    looked = survey(find(path), shown)
    train = sum(item.part == "train" for item in looked.items)
    facts = Facts(
        train or max(1, round((1 - data.test) * len(looked.items))), len(looked.names), looked.sizes[1], looked.grey
    )
    filled, choices = choose(recipe, facts)
    config = _config(filled, facts.classes)
    if config.channels not in (1, 3):
        raise InputError(f"model.channels={config.channels} is not what pictures have; choose 1 (grey) or 3 (colour).")
    parts = collect(
        looked,
        config.size,
        config.channels,
        test=data.test,
        seed=data.seed,
        limit=data.bad,
        memory=data.memory,
        shown=shown,
    )
    if len(parts.train.names) != facts.classes:
        config = _config(filled, len(parts.train.names))
    return Prepared(filled, choices, parts, config)


def _decoded(recipe: Recipe, parts: Parts) -> Prepared:
    """Pictures that come decoded."""
    channels, *size = parts.train.store.shape[1:]
    facts = Facts(len(parts.train), len(parts.train.names), (size[0], size[1]), channels == 1)
    filled, choices = choose(recipe, facts)
    config = _config(filled, facts.classes)
    train, test = (part.fitted(config.size, config.channels) for part in (parts.train, parts.test))
    return Prepared(filled, choices, replace(parts, train=train, test=test), config)


def _config(recipe: Recipe, classes: int) -> Any:
    fields = {"classes": classes, **recipe.model}
    config = configure(fields.pop("name"), **fields)
    if config.classes < classes:  # type: ignore[attr-defined]
        raise InputError(f"model.classes={fields['classes']} is too few for {classes} classes; leave it out.")
    return config
