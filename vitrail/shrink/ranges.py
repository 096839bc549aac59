"""The same model with numbers that eight bits hold better.

A product of eight bits has one range for all that comes in. Where a few columns go far beyond the others, those are
left with few of its 256 steps: in DINOv2's ViT-S/14 four neurons of a layer say up to 80, and all others less than 5.
What that is worth is in bench/README.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import FeedForward, Sublayer
from vitrail.data import Batch
from vitrail.families import Model
from vitrail.shrink.refit import Call, each_input
from vitrail.weights import Weights

ALPHA = 0.5  # how much of what is uneven in numbers their maps take over (Xiao et al. 2023, section 4)
FEW = 8  # neurons of a layer that may be apart
FAR = 1.5  # times as wide as without them a range is, at least, for that
READ = {Attention: ("query", "key_value"), FeedForward: ("inner",)}  # all maps that read what comes in, of these alone


def column_maxima(model: Model, call: Call, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """max|x_j| of what comes into each linear map, (i), by its path."""
    most: dict[str, Tensor] = {}

    def keep(path: str, x: Tensor) -> None:
        here = x.abs().flatten(0, -2).amax(0)
        most[path] = torch.maximum(most[path], here) if path in most else here

    each_input(model, [path for path, one in model.named_modules() if isinstance(one, nn.Linear)], keep, call, batches)
    return most


def even(weights: Weights, most: Mapping[str, Tensor]) -> Weights:
    """Weights that answer the same, with ranges made even: x W = (x / s)(s W), s_j = max|x_j|^a / max|W_j|^(1 - a).

    What comes out of a norm is divided in the norm (SmoothQuant, Xiao et al. 2023), and what heads read in the map of
    their values.
    """
    model, state = weights.model(), dict(weights.state)

    def times(path: str, factor: Tensor) -> None:
        if path in state:
            state[path] = state[path] * factor.to(state[path].dtype)

    for name, sublayer in _sublayers(model):
        f = sublayer.f
        paths = [f"{name}.f.{one}" for one in READ.get(type(f), ())]
        if sublayer.order == "pre" and hasattr(sublayer.norm, "weight") and _whole(model, paths, most):
            s = _scales(most[paths[0]], [state[f"{path}.weight"] for path in paths])
            for part in ("weight", "bias"):
                times(f"{name}.norm.{part}", 1 / s)
            for path in paths:
                times(f"{path}.weight", s)
        if type(f) is Attention and _whole(model, [f"{name}.f.key_value", f"{name}.f.out"], most):
            s = _scales(most[f"{name}.f.out"], [state[f"{name}.f.out.weight"]])
            values = torch.cat([torch.ones(f.widths[0]), 1 / s])  # behind the keys
            times(f"{name}.f.key_value.weight", values[:, None])
            times(f"{name}.f.key_value.bias", values)
            times(f"{name}.f.out.weight", s)
    return replace(weights, state=state)


def apart(weights: Weights, most: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """The few neurons of feed-forwards without which a range is much narrower, by the path of the feed-forward: those
    that a product of their own is for (as in LLM.int8, Dettmers et al. 2022).
    """
    groups = {}
    for name, sublayer in _sublayers(weights.model()):
        path = f"{name}.f"
        if type(sublayer.f) is not FeedForward or not _whole(sublayer.f, ["inner", "out"]):
            continue
        maxima = most.get(f"{path}.out")
        if maxima is None or len(maxima) <= 4 * FEW or getattr(sublayer.f.activation, "takes", 1) > 1:
            continue
        order = maxima.argsort(descending=True)
        if maxima[order[0]] > FAR * maxima[order[FEW]]:
            groups[path] = sorted(order[:FEW].tolist())
    return groups


def _sublayers(model: nn.Module) -> Iterable[tuple[str, Any]]:
    return [(path, one) for path, one in model.named_modules() if isinstance(one, Sublayer)]


def _whole(model: nn.Module, paths: list[str], most: Mapping[str, Tensor] | None = None) -> bool:
    """Whether there are such maps, none of them a product, and numbers came into all of them."""
    return bool(paths) and all(
        type(model.get_submodule(path)) is nn.Linear and (most is None or path in most) for path in paths
    )


def _scales(most: Tensor, weights: list[Tensor]) -> Tensor:
    """S (i), for numbers (i) and maps (o i) that share them; 1 where nothing comes in, or nothing is made of it."""
    wide = torch.stack([one.abs().amax(0) for one in weights]).amax(0).float()
    alive = (most > 0) & (wide > 0)
    s = torch.where(alive, most, 1.0) ** ALPHA / torch.where(alive, wide, 1.0) ** (1 - ALPHA)
    return torch.where(alive, s, 1.0)
