"""What the ViT paper shows of a trained model: its patch filters, and how alike its positions are (figure 7)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitrail.core import PatchStem
from vitrail.core.attention import Attention
from vitrail.errors import InputError
from vitrail.families import ViT

COMPONENTS = 28


@torch.no_grad()
def filter_components(model: ViT, most: int = COMPONENTS) -> tuple[Tensor, Tensor]:
    """The principal components of the patch projection's filters, (k c p p), the strongest first, and the fraction of
    the filters' variance that each explains, (k).
    """
    stem = model.embed.stem
    if not isinstance(stem, PatchStem):
        raise InputError(f"stem={model.config.stem!r} has no filters of a whole patch to show.")
    filters = stem.projection.weight.float()
    _, strength, components = torch.linalg.svd(filters - filters.mean(0), full_matrices=False)
    fractions = strength**2 / (strength**2).sum()
    return rearrange(components[:most], "k (c p q) -> k c p q", p=stem.patch, q=stem.patch), fractions[:most]


@torch.no_grad()
def position_similarity(model: ViT) -> Tensor:
    """The cosine between what is added to each patch (y x) and to every other (v u), (y x v u); where nothing is added
    and queries and keys are turned instead, between one vector, of ones, in both places.
    """
    config, grid = model.config, model.config.grid
    table = model.embed.position.table(grid)
    if table is None:
        table = _ones_turned(model, config.prefix + grid[0] * grid[1])
    if table is None:
        raise InputError(f"position={config.position!r} adds nothing to the tokens, and so has no likeness to show.")
    unit = F.normalize(table[config.prefix :].float(), dim=-1)
    return _between(unit @ unit.T, grid)


@torch.no_grad()
def position_bias(model: ViT) -> Tensor:
    """What is added to the score of each patch (y x) for every other (v u), a mean over the heads, (y x v u)."""
    grid = model.config.grid
    bias = model.embed.position.mask(grid, 0).bias
    if bias is None:
        raise InputError(f"position={model.config.position!r} adds nothing to the scores, and so has none to show.")
    return _between(bias[0].float().mean(0), grid)


def _ones_turned(model: ViT, count: int) -> Tensor | None:
    """A vector of ones as the first attention turns it in so many places, (n d); None where it turns nothing."""
    for one in model.modules():
        if isinstance(one, Attention) and one.turn is not None:
            ones = torch.ones(1, 1, count, one.widths[0] // one.heads)
            return one.turn(ones, ones)[0][0, 0]
    return None


def _between(patches: Tensor, grid: tuple[int, int]) -> Tensor:
    return rearrange(patches, "(y x) (v u) -> y x v u", y=grid[0], v=grid[0])
