"""Which pictures a finished model is measured on: those of its own run, or those that are named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.data import (
    Aside,
    Pictures,
    View,
    find,
    held_out,
    idx_parts,
    labelled,
    read_idx_part,
    read_items,
    sources,
)
from vitrail.errors import InputError
from vitrail.progress import Progress
from vitrail.tasks.pictures.predictor import class_names
from vitrail.tasks.task import Trained
from vitrail.weights import Weights

Measured = tuple[Pictures, str, list[Aside]]  # which part of the data they are, and what could not be used


def view_of(weights: Weights) -> View:
    """How pictures are made for weights."""
    return View(weights.config.size, weights.config.channels, weights.fit)


def own(trained: Trained, progress: Progress) -> Measured | None:
    """The run's own test pictures, else those that it was measured on; None of a run that kept no list of them.

    No others are decoded, but where both parts come from one file.
    """
    weights, recipe = trained.weights, trained.recipe
    if recipe is None:
        raise InputError(f"{weights.path!r} does not say what it was trained on; name the pictures.")
    data, names = recipe.data, class_names(weights)
    path = None if data.path is None else Path(data.path)
    files, part = trained.record.get("measured files") or trained.record.get("test files"), _part(trained.record)
    if trained.record.get("left for later") and path is not None and not (path.is_dir() and idx_parts(path)):
        return _later(path, weights, progress)
    if files:
        if not isinstance(files, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)  # noqa: PLR2004
            for pair in files
        ):
            raise InputError(f"the list of pictures in {str(trained.folder / 'data.json')!r} is damaged.")
        pictures, bad = read_items(files, names, view_of(weights), progress)
        if len(bad) > data.bad * len(files):
            raise InputError(
                f"{len(bad)} of the {len(files)} pictures that {weights.path!r} was measured on cannot be read, such "
                f"as {bad[0].what!r} ({bad[0].why}); bring them back, or name others: vitrail evaluate RUN DATA."
            )
        return pictures, part, bad
    if data.source == "pictures" and not (path is not None and path.is_dir() and idx_parts(path)):
        return None
    pictures, part = held_out(data.source, path, data.test, data.seed)
    known = pictures.among(names)
    if not len(known):
        raise InputError(
            f"the classes of the pictures are no longer those that {weights.path!r} learned; name the pictures."
        )
    return known.fitted(weights.config.size, weights.config.channels), part, []


def given(data: str, weights: Weights, progress: Progress) -> Measured:
    """Pictures that the user names, of the classes that the model has."""
    config, path, names = weights.config, Path(data), class_names(weights)
    if data not in sources and not (path.is_dir() and idx_parts(path)):
        listing = find(path)
        pictures, aside = labelled(listing, names, view_of(weights), progress)
        return pictures, "test" if listing.later else listing.held or "all", aside
    pictures, part = (sources[data](None, 0.2, 0).test, "test") if data in sources else read_idx_part(path)
    known = pictures.among(names)
    if not len(known):
        raise InputError(f"{data!r} holds no class that the model knows: {', '.join(pictures.present().names)}.")
    others = len(pictures) - len(known)
    aside = [Aside(f"{others} pictures", "of classes that the model does not know")] if others else []
    return known.fitted(config.size, config.channels), part if part != "train" else "all", aside


def _part(record: Mapping[str, Any]) -> str:
    """Which part a run was measured on."""
    return "validation" if "validation" in record else "test"


def _later(path: Path, weights: Weights, progress: Progress) -> Measured:
    """The test part, which was left for the end."""
    listing = find(path)
    if not listing.later:
        raise InputError(
            f"the test pictures of {weights.path!r} are no longer in {str(path)!r}; name some to measure on."
        )
    pictures, aside = labelled(listing, class_names(weights), view_of(weights), progress)
    return pictures, "test", aside
