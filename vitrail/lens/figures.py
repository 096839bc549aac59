"""What the ViT paper shows of a trained model: its patch filters, and how alike its positions are (figure 7)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitrail.core import PatchStem
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
    """The cosine between what is added to each patch (y x) and to every other (v u), (y x v u)."""
    config, grid = model.config, model.config.grid
    table = model.embed.position.table(grid)
    if table is None:
        raise InputError(f"position={config.position!r} adds nothing to the tokens, and so has no likeness to show.")
    added = table[config.prefix :]
    unit = F.normalize(added.float(), dim=-1)
    return rearrange(unit @ unit.T, "(y x) (v u) -> y x v u", y=grid[0], v=grid[0])
