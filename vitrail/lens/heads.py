"""What is to be said of each head: how far it looks, and how much would be lost without it.

Layers may have different numbers of heads, or none: NaN is the number of a head that is not there.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.lens.editing import edit
from vitrail.lens.gradients import gradients
from vitrail.lens.recording import layer_sites, record
from vitrail.lens.tokens import Tokens, check_head, looking, patch_centres, some
from vitrail.progress import Progress, silent


@looking(ViT)
@torch.no_grad()
def attention_distance(model: ViT, images: Tensor) -> Tensor:
    """The mean distance in pixels between a patch and those it attends to, weighed by how much (ViT, figure 7).

    (b c H W) -> (l b h). Attention to tokens that have no place, such as the class token, is left out, and the rest
    counts as if it were all; a patch that attends to none is left out too.
    """
    if model.config.tokens:
        raise InputError("the model's tokens are groups of pixels (tokens=...), which have no distance to each other.")
    return torch.cat([_distance(model, few) for (few,) in some(model, images)], 1)


def _distance(model: ViT, images: Tensor) -> Tensor:
    with record(model) as trace:
        model(images)
    tokens = Tokens.of(model, trace, images)
    centres, start = tokens.centres().to(images.device), len(tokens.prefix)
    layers: list[Tensor | None] = []
    for site in layer_sites(model):
        if site is None:
            layers.append(None)
            continue
        rows_of_head = []
        for rows, a in trace.in_rows(site):
            among = centres[max(0, rows.start - start) : max(0, rows.stop - start)]
            here = torch.cdist(among, centres)
            seen = a[:, :, a.shape[2] - len(here) :, start:].to(here)
            if (seen < 0).any():
                raise InputError(f"weights of {site!r} are negative, and no distance can be weighed by them.")
            rows_of_head.append((seen * here).sum(-1) / seen.sum(-1))  # NaN where a patch attends to none
        layers.append(torch.cat(rows_of_head, -1).nanmean(-1))
    return by_layer(layers)


def uniform_distance(grid: tuple[int, int], patch: int) -> float:
    """What that distance is for a head that attends to all patches alike."""
    centres = patch_centres(grid, patch)
    return float(torch.cdist(centres, centres).mean())


@looking(ViT)
@torch.no_grad()
def loss_without(model: ViT, images: Tensor, labels: Tensor, progress: Progress = silent) -> Tensor:
    """How much the loss grows when a head reads nothing, (l h): its importance (Michel et al. 2019, section 3).

    That takes a pass for each head.
    """
    whole, layers = _loss(model, images, labels), model.config.layers
    grown = torch.full((len(layers), model.config.most_heads), torch.nan, dtype=whole.dtype)
    every = [
        (layer, site, head)
        for layer, site in enumerate(layer_sites(model))
        if site is not None
        for head in range(layers[layer][0])
    ]
    for layer, site, head in progress("heads left out, one by one", every, len(every)):
        with edit(model) as edits:
            edits.silence(site, head)
            grown[layer, head] = _loss(model, images, labels) - whole
    return grown


@looking(ViT)
def sensitivity(model: ViT, images: Tensor, labels: Tensor) -> Tensor:
    """E |z_h . dL/dz_h|, (l h): how much the loss would move if a head were a little weaker, which one pass tells
    (Michel et al. 2019, eq. 2).
    """
    check_head(model)
    parts = [_sensitivity(model, *few) for few in some(model, images, labels, gradients=True)]
    return torch.stack(parts).sum(0) / len(images)


def _sensitivity(model: ViT, images: Tensor, labels: Tensor) -> Tensor:
    trace, by_z = gradients(model, images, lambda logits: F.cross_entropy(logits.double(), labels, reduction="sum"))
    each = {
        site: (trace.visit(site).read * gradient).sum((2, 3)).abs().sum(0).detach() for site, gradient in by_z.items()
    }
    return by_layer([None if site is None else each[site] for site in layer_sites(model)])


def by_layer(layers: Sequence[Tensor | None]) -> Tensor:
    """Numbers of the heads of each layer, (... h), as one tensor (l ... h), with NaN for heads that are not there."""
    there = [layer for layer in layers if layer is not None]
    most = max(layer.shape[-1] for layer in there)
    nothing = torch.full_like(there[0][..., :1], torch.nan)
    padded = [
        nothing.expand(*nothing.shape[:-1], most)
        if layer is None
        else torch.cat([layer, nothing.expand(*nothing.shape[:-1], most - layer.shape[-1])], -1)
        for layer in layers
    ]
    return torch.stack(padded)


def _loss(model: ViT, images: Tensor, labels: Tensor) -> Tensor:
    check_head(model)
    parts = [F.cross_entropy(model(few).double(), right, reduction="sum") for few, right in some(model, images, labels)]
    return torch.stack(parts).sum() / len(images)
