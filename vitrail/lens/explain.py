"""All that can be said of one picture: what it is taken for, where that comes from, and how far that is true."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.lens.attribution import answering, methods, place
from vitrail.lens.decompose import Writes, logit_lens, writes
from vitrail.lens.faithful import STEPS, Curves, curves, random_curves
from vitrail.lens.heads import attention_distance
from vitrail.lens.record import Trace, record
from vitrail.lens.tokens import Tokens, attention_sites, check_head, looking

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Explanation:
    """One picture, seen through."""

    label: int  # the class that is explained
    layer: int  # of attention and gradcam
    head: int | None  # of attention; None: the mean of all
    chances: Tensor  # (classes)
    tokens: Tokens
    trace: Trace
    maps: dict[str, Tensor]  # of each method (y x)
    curves: dict[str, Curves]  # none of them if they were not asked for
    random: Curves | None
    attended: Tensor  # (l h n): by the token that answers, in every head
    lens: Tensor  # (l + 1 classes): probabilities after each layer
    distance: Tensor | None  # (l h) pixels
    writes: Writes | None  # to the logits
    notes: tuple[str, ...]  # what does not hold for this model


@looking
@torch.no_grad()
def explain(
    model: Model,
    image: Tensor,
    *,
    label: int | None = None,
    names: Sequence[str] | None = None,
    layer: int | None = None,
    head: int | None = None,
    steps: int = STEPS,
    tell: Callable[[str], object] = str,
) -> Explanation:
    """Explain one picture (1 c H W), for the likeliest class unless another is given.

    Deletion and insertion are measured at so many steps, which takes most of the time; at 0 they are not. ``tell`` is
    told what is done next.
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
    chances = logits[0].double().softmax(0)
    label = int(chances.argmax()) if label is None else label
    if not 0 <= label < len(chances):
        raise InputError(f"class {label} is not there; there are {len(chances)}, counted from 0.")
    attended = torch.cat([answering(trace, tokens, n).cpu() for n in range(len(attention_sites(trace.names())))])
    layer = place("layer", -1 if layer is None else layer, len(attended))
    head = None if head is None else place("head", head, attended.shape[1])
    options: dict[str, dict[str, Any]] = {"attention": {"layer": layer, "head": head}, "gradcam": {"layer": layer}}
    maps, lines, notes = {}, {}, list[str]()
    for name in names or list(methods):
        tell(name)
        make = partial(_map, name, model, image, label, options.get(name, {}))
        found = make() if names else _unless(notes, make)  # of all methods, those that this model has a map of
        if found is not None:
            maps[name] = found
    for name in maps if steps else ():
        tell(f"how true {name} is")
        lines[name] = curves(model, image[0], maps[name].to(image.device), label, steps)
    tell("heads and layers")
    return Explanation(
        label=label,
        layer=layer,
        head=head,
        chances=chances.cpu(),
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


def _map(name: str, model: Model, image: Tensor, label: int, options: dict[str, Any]) -> Tensor:
    return methods[name](model, image, label, **options)[0].float().cpu()


def _distance(model: Model, image: Tensor) -> Tensor:
    return attention_distance(model, image)[:, 0].cpu()


def _unless(notes: list[str], make: Callable[[], T]) -> T | None:
    """What is made, or why it cannot be among the notes."""
    try:
        return make()
    except InputError as error:
        notes.append(str(error))
        return None
