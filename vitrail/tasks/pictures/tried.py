"""What no tensor of a stranger's ViT says, found by trying: what labelled pictures score in each way of reading it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F

from vitrail.data import Pictures, View, find, read_items, unit
from vitrail.data.normalise import NORMALISATIONS
from vitrail.errors import InputError
from vitrail.files import Pathlike
from vitrail.progress import Progress, silent
from vitrail.tasks.pictures.choices import sides_for
from vitrail.tasks.pictures.head import features, fit_head
from vitrail.weights import Weights, read
from vitrail.weights.weights import normalisation

if TYPE_CHECKING:
    from vitrail.families import ViT

PICTURES, LEAST = 200, 3  # that are looked at each time, and of each class at least
SURE = 3.0  # standard errors above chance, from which a head is one for these classes
WIDTHS = (8, 16, 24, 32, 48, 64, 80, 96, 128)  # of a head


@dataclass(frozen=True)
class Tried:
    """One way of reading weights, and what it scores: the loss of the model's own head, or of one that is fitted."""

    stated: dict[str, Any]
    loss: float
    accuracy: float


def tried(
    source: Pathlike, data: Pathlike, progress: Progress = silent, **options: Any
) -> tuple[Weights, list[Tried], str]:
    """Weights read in the way that scores best on labelled pictures, every way that was tried, and how it was judged.

    What is not given is tried: first the order of norms with the activation, then the heads, then what answers and the
    normalisation, of which a fitted head knows nothing.
    """
    weights = read(source, **options)
    if weights.family != "vit":
        raise InputError(f"{weights.path!r} is a {weights.family}, and pictures can say nothing of it.")
    pictures = _some(Path(data), weights, progress)
    own = weights.config.classes == len(pictures.names)
    best, every = _search(source, options, pictures, weights, own=own, progress=progress)
    guessing = 1 / len(pictures.names)
    known = guessing + SURE * (guessing * (1 - guessing) / len(pictures)) ** 0.5
    if own and max(one.accuracy for one in every) < known:  # it is for other classes
        own = False
        best, every = _search(source, options, pictures, weights, own=own, progress=progress)
    how = "its own head" if own else "a linear head on its features, in cross-validation"
    return read(source, **{**options, **best.stated}), every, how


def _search(
    source: Pathlike, options: dict[str, Any], pictures: Pictures, weights: Weights, *, own: bool, progress: Progress
) -> tuple[Tried, list[Tried]]:
    every: dict[str, Tried] = {}
    stated: dict[str, Any] = {}
    best: Tried | None = None
    for step in _steps(options, weights, own=own):
        for choice in progress("ways tried", iter(step), len(step)):
            ways = {**stated, **choice}
            if str(ways) not in every:
                try:
                    weights = read(source, **{**options, **ways})
                except InputError:  # a way in which it cannot be read
                    continue
                every[str(ways)] = _scored(weights, ways, pictures, own=own)
        best = min(every.values(), key=lambda one: one.loss, default=None)
        stated = {} if best is None else best.stated
    if best is None:
        raise InputError("everything that could be tried is given already; leave the data out.")
    return best, list(every.values())


def _steps(options: dict[str, Any], weights: Weights, *, own: bool) -> Iterator[list[dict[str, Any]]]:
    """What is tried together, one after the other."""
    config = weights.config
    orders = [config.order] if options.get("order") or weights.format != "names of its own" else ["pre", "post"]
    gated = config.activation == "swiglu" or bool(options.get("activation"))
    activations = [config.activation] if gated else ["gelu", "relu"]
    both = [{"order": order, "activation": one} for order in orders for one in activations]
    if len(both) > 1:
        yield [{name: value for name, value in one.items() if not options.get(name)} for one in both]
    queries = config.heads * (config.head or config.width // config.heads)
    counts = [queries // width for width in WIDTHS if queries % width == 0]
    if not options.get("heads") and len(counts) > 1:
        yield [{"heads": count} for count in counts]
    if own and not options.get("answers") and config.pool == "class" and weights.format == "names of its own":
        yield [{"answers": name} for name in ("class", "mean")]
    if own and not options.get("normalise") and config.channels == 3:  # noqa: PLR2004
        yield [{"normalise": name} for name in NORMALISATIONS]
    if len(both) > 1:
        yield [{name: value for name, value in one.items() if not options.get(name)} for one in both]


def _some(path: Path, weights: Weights, progress: Progress) -> Pictures:
    """A few of the pictures of each class."""
    view = View((sides_for(weights.config)[-1],) * 2, weights.config.channels, weights.fit)
    classes: dict[str, list[str]] = {}
    for item in find(path).items:
        classes.setdefault(item.label, []).append(str(item.file))
    names, each = tuple(sorted(classes)), max(LEAST, PICTURES // max(1, len(classes)))
    few = [(file, name) for name in names for file in classes[name][:: -(-len(classes[name]) // each)]]
    pictures, _ = read_items(few, names, view, progress)
    counts = pictures.labels.bincount(minlength=len(names))
    if len(names) < 2 or counts.min() < LEAST:  # noqa: PLR2004
        raise InputError(
            f"{str(path)!r} should hold two classes or more, with {LEAST} pictures of each that can be read, to try "
            f"weights on."
        )
    return pictures


def _scored(weights: Weights, stated: dict[str, Any], pictures: Pictures, *, own: bool) -> Tried:
    size = (pictures.store.shape[-2], pictures.store.shape[-1])
    model, normalise = cast("ViT", weights.adapted(image=size).model().float()), normalisation(weights)
    if not own:
        fitted = fit_head(features(model, pictures, normalise), pictures.labels, len(pictures.names), [])
        return Tried(stated, fitted.loss, fitted.accuracy or 0.0)
    with torch.inference_mode():
        seen = [model(normalise(unit(pictures.store[rows]))) for rows in pictures.rows.split(32)]
    logits = torch.cat(seen)
    right = (logits.argmax(1) == pictures.labels).float().mean()
    return Tried(stated, F.cross_entropy(logits, pictures.labels).item(), right.item())
