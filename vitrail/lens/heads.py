"""What is to be said of each head: how far it looks, and how much would be lost without it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.lens.edit import edit
from vitrail.lens.record import record, sites
from vitrail.lens.slopes import slopes
from vitrail.lens.tokens import Tokens, attention_sites, check_head, looking, places, some

Watch = Callable[[Iterable[tuple[str, int]]], Iterator[tuple[str, int]]]


@looking
@torch.no_grad()
def attention_distance(model: Model, images: Tensor) -> Tensor:
    """The mean distance in pixels between a patch and those it attends to, weighed by how much (ViT, figure 7).

    (b c H W) -> (l b h). Attention to tokens that have no place, such as the class token, is left out, and the rest
    counts as if it were all; a patch that attends to none is left out too.
    """
    config: Any = model.config
    if config.tokens:
        raise InputError("the model's tokens are groups of pixels (tokens=...), which have no distance to each other.")
    return torch.cat([_distance(model, few) for (few,) in some(model, images)], 1)


def _distance(model: Model, images: Tensor) -> Tensor:
    with record(model) as trace:
        model(images)
    tokens = Tokens.of(model, trace, images)
    centres, start = tokens.centres().to(images.device), len(tokens.prefix)
    away = torch.cdist(centres, centres)
    found = []
    for site in attention_sites(trace.names()):
        each = []
        for rows, a in trace.in_rows(site):
            here = away[max(0, rows.start - start) : max(0, rows.stop - start)]
            seen = a[:, :, a.shape[2] - len(here) :, start:].to(away)
            if (seen < 0).any():
                raise InputError(f"weights of {site!r} are negative, and no distance can be weighed by them.")
            each.append((seen * here).sum(-1) / seen.sum(-1))  # NaN where a patch attends to none
        found.append(torch.cat(each, -1).nanmean(-1))
    return torch.stack(found)


def uniform_distance(grid: tuple[int, int], patch: int) -> float:
    """What that distance is for a head that attends to all patches alike."""
    centres = places(grid, patch)
    return float(torch.cdist(centres, centres).mean())


@looking
@torch.no_grad()
def loss_without(model: Model, images: Tensor, labels: Tensor, watch: Watch = iter) -> Tensor:
    """How much the loss grows when a head reads nothing, (l h): its importance (Michel et al. 2019, section 3).

    That takes a pass for each head; ``watch`` sees them go by.
    """
    whole, names = _loss(model, images, labels), attention_sites(sites(model))
    every = [(site, head) for site in names for head in range(_heads(model, site))]
    found = []
    for site, head in watch(every):
        with edit(model) as edits:
            edits.silence(site, head)
            found.append(_loss(model, images, labels) - whole)
    return torch.stack(found).unflatten(0, (len(names), -1))


@looking
def sensitivity(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """E |z_h . dL/dz_h|, (l h): how much the loss would move if a head were a little weaker, which one pass tells
    (Michel et al. 2019, eq. 2).
    """
    check_head(model)
    parts = [_sensitivity(model, *few) for few in some(model, images, labels, slopes=True)]
    return torch.stack(parts).sum(0) / len(images)


def _sensitivity(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    trace, by_z = slopes(model, images, lambda logits: F.cross_entropy(logits.double(), labels, reduction="sum"))
    each = [(trace.visit(site).read * slope).sum((2, 3)).abs().sum(0) for site, slope in by_z.items()]
    return torch.stack(each).detach()


def _loss(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    check_head(model)
    parts = [F.cross_entropy(model(few).double(), right, reduction="sum") for few, right in some(model, images, labels)]
    return torch.stack(parts).sum() / len(images)


def _heads(model: Model, site: str) -> int:
    owner: Any = sites(model)[site][1]
    return int(owner.heads)
