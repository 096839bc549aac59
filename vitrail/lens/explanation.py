"""All that can be said of one picture: what it is taken for, where that comes from, and how far that is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.lens.attribution import answering, index_of, methods, site_of
from vitrail.lens.decomposition import Writes, logit_lens, writes
from vitrail.lens.faithfulness import STEPS, Curves, curves, random_curves
from vitrail.lens.heads import attention_distance, by_layer
from vitrail.lens.recording import Trace, layer_sites, record
from vitrail.lens.tokens import Tokens, check_head, looking
from vitrail.progress import Progress, silent

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Explanation:
    """One picture, seen through."""

    label: int  # the class that is explained
    layer: int  # of attention and gradcam
    head: int | None  # of attention; None: the mean of all
    probabilities: Tensor  # (classes)
    tokens: Tokens
    trace: Trace
    maps: dict[str, Tensor]  # of each method (y x)
    curves: dict[str, Curves]  # none of them if they were not asked for
    random: Curves | None
    attended: Tensor  # (l h n): by the token that answers, in every head; NaN of heads that are not there
    lens: Tensor  # (l + 1 classes): probabilities after each layer
    distance: Tensor | None  # (l h) pixels
    writes: Writes | None  # to the logits
    notes: tuple[str, ...]  # what does not hold for this model


@looking(ViT)
@torch.no_grad()
def explain(
    model: ViT,
    image: Tensor,
    *,
    label: int | None = None,
    names: Sequence[str] | None = None,
    layer: int | None = None,
    head: int | None = None,
    steps: int = STEPS,
    progress: Progress = silent,
) -> Explanation:
    """Explain one picture (1 c H W), for the likeliest class unless another is given.

    Deletion and insertion are measured at so many steps, which takes most of the time; at 0 they are not.
    """
    check_head(model)
    if len(image) != 1:
        raise InputError(
            f"{len(image)} pictures were given; explain them one at a time, as in explain(model, image[:1])."
        )
    with record(model) as trace:
        logits = model(image)
    if not logits.isfinite().all():
        raise InputError("the model's answer to this picture is not finite, and cannot be explained.")
    tokens = Tokens.of(model, trace, image)
    probabilities = logits[0].double().softmax(0)
    label = int(probabilities.argmax()) if label is None else label
    if not 0 <= label < len(probabilities):
        raise InputError(f"class {label} is not there; there are {len(probabilities)}, counted from 0.")
    rows = [None if site is None else answering(trace, tokens, site)[0].cpu().T for site in layer_sites(model)]
    attended = by_layer(rows).mT  # l h n
    last = max(number for number, row in enumerate(rows) if row is not None)
    layer = last if layer is None else index_of("layer", layer, len(rows))
    site_of(model, layer)
    head = None if head is None else index_of("head", head, model.config.layers[layer][0])
    options: dict[str, dict[str, Any]] = {"attention": {"layer": layer, "head": head}, "gradcam": {"layer": layer}}
    chosen, maps, lines, notes = names or list(methods), {}, {}, list[str]()
    for name in progress("methods", chosen, len(chosen)):
        make = partial(_map, name, model, image, label, options.get(name, {}))
        values = make() if names else _unless(notes, make)  # of all methods, those that this model has a map of
        if values is not None:
            maps[name] = values
    for name in progress("methods measured", maps, len(maps)) if steps else ():
        lines[name] = curves(model, image[0], maps[name].to(image.device), label, steps)
    return Explanation(
        label=label,
        layer=layer,
        head=head,
        probabilities=probabilities.cpu(),
        tokens=tokens,
        trace=trace,
        maps=maps,
        curves=lines,
        random=random_curves(model, image[0], tokens.grid, label, steps=steps) if steps else None,
        attended=attended,
        lens=logit_lens(model, image)[:, 0].double().softmax(-1).cpu(),
        distance=_unless(notes, partial(_distance, model, image)),
        writes=_unless(notes, partial(writes, model, image)),
        notes=tuple(notes),
    )


def _map(name: str, model: ViT, image: Tensor, label: int, options: dict[str, Any]) -> Tensor:
    return methods[name](model, image, label, **options)[0].float().cpu()


def _distance(model: ViT, image: Tensor) -> Tensor:
    return attention_distance(model, image)[:, 0].cpu()


def _unless(notes: list[str], make: Callable[[], T]) -> T | None:
    """What is made, or why it cannot be among the notes."""
    try:
        return make()
    except InputError as error:
        notes.append(str(error))
        return None
