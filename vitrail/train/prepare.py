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
from vitrail.weights import Weights, read
from vitrail.weights.load import SAID


@dataclass(frozen=True, eq=False)
class Prepared:
    """A recipe with nothing left out, what was chosen for it and why, and its pictures."""

    recipe: Recipe
    choices: list[Choice]
    parts: Parts
    config: Any
    weights: Weights | None = None  # to start from, as the configuration has them


def unshown(_: str, items: Iterable[Any], __: int) -> Iterable[Any]:
    """The items, with no progress shown."""
    return items


def prepare(recipe: Recipe, shown: Any = unshown) -> Prepared:
    """Find the pictures, choose what the recipe leaves out, then decode them at the model's size."""
    data = recipe.data
    path = Path(data.path) if data.path is not None else None
    weights = _weights(recipe)
    if data.source != "pictures":
        return _decoded(recipe, sources[data.source](path, data.test, data.seed), weights)
    if path is None:
        raise InputError("the recipe names no pictures; give a folder with --data, or set data.source.")
    if path.is_dir() and "train" in idx_parts(path):
        return _decoded(recipe, from_idx(path, data.test, data.seed), weights)
    looked = survey(find(path), shown)
    train = sum(item.part == "train" for item in looked.items)
    train = train or max(1, round((1 - data.test) * len(looked.items)))
    tests = len(looked.items) - train
    facts = Facts(train, len(looked.names), looked.sizes[1], looked.grey, tests, weights)
    filled, choices = choose(recipe, facts)
    config = _config(filled, facts.classes, weights)
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
    return _with(weights, Prepared(filled, choices, parts, _config(filled, len(parts.train.names), weights)))


def _decoded(recipe: Recipe, parts: Parts, weights: Weights | None) -> Prepared:
    """Pictures that come decoded."""
    channels, *size = parts.train.store.shape[1:]
    train, test = parts.train, parts.test
    facts = Facts(len(train), len(train.names), (size[0], size[1]), channels == 1, len(test), weights)
    filled, choices = choose(recipe, facts)
    config = _config(filled, facts.classes, weights)
    train, test = (part.fitted(config.size, config.channels) for part in (train, test))
    return _with(weights, Prepared(filled, choices, replace(parts, train=train, test=test), config))


def _weights(recipe: Recipe) -> Weights | None:
    start = recipe.weights
    if start.path is None:
        if start.freeze:
            raise InputError("weights.freeze trains the head of weights that are given; give some with --weights.")
        return None
    if "name" in recipe.model:
        raise InputError(
            f"the weights in {start.path!r} say what the model is; leave model.name={recipe.model['name']!r} out."
        )
    for name in ("classes", "prelogits"):
        if name in recipe.model:
            raise InputError(
                f"model.{name}={recipe.model[name]!r} is for the head, which the classes decide; leave it out, "
                f"or see weights.head and weights.prelogits."
            )
    said = {name: recipe.model[name] for name in SAID if name in recipe.model}
    image, channels = recipe.model.get("image"), recipe.model.get("channels")
    return read(start.path, strict=start.strict, image=image, channels=channels, normalise=start.normalise, **said)


def _with(weights: Weights | None, prepared: Prepared) -> Prepared:
    """The weights as these pictures need them: of their size, and with a head for their classes."""
    if weights is None:
        return prepared
    start, names = prepared.recipe.weights, prepared.parts.train.names
    if start.freeze and start.head == "keep":
        raise InputError("weights.head='keep' leaves nothing to train with weights.freeze; leave one of them out.")
    keep = start.head == "keep" or (start.head == "auto" and weights.labels == names and not start.freeze)
    if start.head == "keep" and weights.config.classes != len(names):
        raise InputError(
            f"weights.head='keep' cannot be: {weights.path!r} has a head for {weights.config.classes} classes, and the "
            f"pictures have {len(names)}."
        )
    changes = _changes(prepared.recipe)
    prelogits = True if keep else (start.prelogits or 0)
    adapted = weights.adapted(head="keep" if keep else "fresh", classes=len(names), prelogits=prelogits, **changes)
    return replace(prepared, weights=adapted, config=adapted.config)


def _changes(recipe: Recipe) -> dict[str, Any]:
    return {name: value for name, value in recipe.model.items() if name not in SAID}


def _config(recipe: Recipe, classes: int, weights: Weights | None) -> Any:
    if weights is not None:  # whose head is seen to when the classes are known
        return type(weights.config)(**{**weights.config.model_dump(), **_changes(recipe)})
    fields = {"classes": classes, **recipe.model}
    config = configure(fields.pop("name"), **fields)
    if config.classes < classes:  # type: ignore[attr-defined]
        raise InputError(f"model.classes={fields['classes']} is too few for {classes} classes; leave it out.")
    return config
