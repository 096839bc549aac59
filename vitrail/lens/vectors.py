"""Words as vectors: which are near to which, and how a text moves the vector of a word from layer to layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.core import TokenEmbedding
from vitrail.errors import InputError
from vitrail.families import Model


def embedding(model: Model) -> Tensor:
    """The vectors of all tokens of a model's vocabulary (tokens w); of what reads, where there are two."""
    for name in ("embed", "source"):
        part = getattr(model, name, None)
        if isinstance(part, TokenEmbedding):
            return part.table.weight.detach()
    raise InputError(f"a {type(model).__name__} has no vectors of words.")


def nearest(table: Tensor, vector: Tensor, without: Sequence[int], most: int) -> list[tuple[int, float]]:
    """The tokens whose vectors point most nearly where a vector does, with the cosine of each; some left out."""
    alike = F.cosine_similarity(table, vector[None], dim=-1)
    alike[list(without)] = -torch.inf
    top = alike.topk(min(most, len(alike)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [(token, value) for token, value in pairs if value > -torch.inf]


@dataclass(frozen=True, eq=False)
class Followed:
    """A word in several texts, after the embedding and each layer."""

    vectors: Tensor  # (l + 1 t w)

    @property
    def similarity(self) -> Tensor:
        """Cosines between the texts (l + 1 t t)."""
        unit = F.normalize(self.vectors, dim=-1)
        return unit @ unit.mT

    @property
    def moved(self) -> Tensor:
        """The cosine between the word after each layer and as it came in, in each text (l + 1 t)."""
        return F.cosine_similarity(self.vectors, self.vectors[:1], dim=-1)

    def plane(self) -> Tensor:
        """Where the texts' vectors stand in the plane in which they differ most, after each layer (l + 1 t 2)."""
        places = []
        for layer in self.vectors:
            centred = layer - layer.mean(0)
            _, _, directions = torch.linalg.svd(centred, full_matrices=False)
            flat = centred @ directions[:2].T
            places.append(F.pad(flat, (0, 2 - flat.shape[1])))
        return torch.stack(places)


@torch.no_grad()
def streams_of(model: Any, inputs: Any) -> Tensor:
    """The residual stream after the embedding and each block of what reads, (l + 1 b n w)."""
    model.eval()
    seen: list[Tensor] = []
    blocks = list(getattr(model, "encoder", model.blocks))
    handles = [blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))]
    handles += [block.register_forward_hook(lambda _, __, out: seen.append(out)) for block in blocks]
    try:
        model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(seen).float().cpu()


def follow(model: Model, texts: Sequence[tuple[Any, Sequence[int]]]) -> Followed:
    """A word in texts, each given as inputs and the places of the word's tokens, whose mean it is."""
    return Followed(torch.stack([streams_of(model, one)[:, 0, list(places)].mean(1) for one, places in texts], 1))
