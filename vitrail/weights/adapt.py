"""Weights for other pictures than they were trained on: another size, other channels, other patches, other classes."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitrail.core import ResNetStem, positions, stems
from vitrail.errors import InputError
from vitrail.families.vit import ViTConfig

State = dict[str, Tensor]
Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and deviation of each channel
NORMALISATIONS: dict[str, Normalisation] = {
    "half": ((0.5,) * 3, (0.5,) * 3),  # Google's, and most of timm's
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),  # torchvision's, DeiT's, DINOv2's
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": ((0.0,) * 3, (1.0,) * 3),
}
STEM = "embed.stem."
FREE = ("image", "patch", "channels", "classes", "prelogits", "dropout", "drop_path", "layer_drop")


@dataclass(frozen=True)
class Adapted:
    """Weights for other pictures, and what was done to them."""

    config: ViTConfig
    state: State
    normalise: Normalisation | None
    said: list[str]


def adapt(config: ViTConfig, state: State, normalise: Normalisation | None = None, **changes: Any) -> Adapted:
    """The same model with other fields."""
    changes = {name: value for name, value in changes.items() if value is not None}
    wanted = ViTConfig(**{**config.model_dump(), **_head(config, changes)})
    for name in ViTConfig.model_fields:
        if name not in FREE and getattr(wanted, name) != getattr(config, name):
            raise InputError(
                f"{name}={getattr(wanted, name)!r} cannot be had from weights with {getattr(config, name)!r}; "
                f"leave it out."
            )
    state, said = dict(state), []
    if wanted.patch != config.patch:
        said.append(f"patches of {config.patch} pixels made patches of {wanted.patch}")
        _patch(config, wanted, state)
    if wanted.channels != config.channels:
        said.append(f"{config.channels} channels made {wanted.channels}")
        normalise = _channels(config, wanted, state, normalise)
    if _grid(wanted) != _grid(config):
        said.append(f"positions of {_times(_grid(config))} patches resampled to {_times(_grid(wanted))}")
        _positions(config, wanted, state)
    if wanted.classes != config.classes or wanted.prelogits != config.prelogits:
        said.append(_new_head(config, wanted, state))
    return Adapted(wanted, state, normalise, said)


def fresh_head(config: ViTConfig, state: State) -> None:
    """A head that says nothing yet: all zeros, so that the first answers are even, and the first steps its own."""
    some = next(tensor for tensor in state.values() if tensor.is_floating_point())
    names = ("logits", "distilled") if config.pool == "distilled" else ("logits",)
    for name in names:
        state[f"head.{name}.weight"] = some.new_zeros(config.classes, config.prelogits or config.width)
        state[f"head.{name}.bias"] = some.new_zeros(config.classes)


def _head(config: ViTConfig, changes: dict[str, Any]) -> dict[str, Any]:
    """With other classes the layer before the logits goes too, unless it is asked for (ViT, section 3.1)."""
    prelogits = changes.get("prelogits")
    if not isinstance(prelogits, int | None):
        raise InputError(f"prelogits={prelogits!r} does not fit; it should be True (kept) or False (dropped).")
    if prelogits is True:
        prelogits = config.prelogits
    elif prelogits is None:
        other = changes.get("classes", config.classes) not in (config.classes, 0)
        prelogits = 0 if other else config.prelogits
    return {**changes, "prelogits": int(prelogits)}


def _new_head(config: ViTConfig, wanted: ViTConfig, state: State) -> str:
    keeps = wanted.prelogits == config.prelogits
    for name in [name for name in state if name.startswith("head.")]:
        if not (keeps and name.startswith("head.prelogits.")):
            del state[name]
    if wanted.prelogits and not keeps:
        raise InputError(f"prelogits={wanted.prelogits} cannot be had from weights with {config.prelogits}.")
    before = f"; the layer before it, of {config.prelogits}, " + ("kept" if keeps else "dropped")
    before = before if config.prelogits else ""
    if not wanted.classes:
        return f"the head for {config.classes} classes taken off{before}"
    fresh_head(wanted, state)
    return f"the head for {config.classes} classes replaced by a fresh one for {wanted.classes}{before}"


def _patch(config: ViTConfig, wanted: ViTConfig, state: State) -> None:
    if config.stem != "patch":
        raise InputError(f"patch={wanted.patch} cannot be had from stem={config.stem!r} of patch={config.patch}.")
    name = f"{STEM}projection.weight"
    kernels = rearrange(state[name], "w (c p q) -> w c p q", c=config.channels, p=config.patch)
    state[name] = rearrange(resize_patches(kernels, wanted.patch), "w c p q -> w (c p q)")


def resize_patches(kernels: Tensor, size: int) -> Tensor:
    """(w c p p) -> (w c s s), s the size: <x, k> stays what it was for a picture x resized as the kernels are.

    k' = pinv(B^T) k, B the matrix that resizes a patch from p to s (FlexiViT, Beyer et al. 2023, section 3.4).
    """
    p = kernels.shape[-1]
    identity = rearrange(torch.eye(p * p, dtype=torch.float64), "n (y x) -> n 1 y x", y=p)
    resized = F.interpolate(identity.float(), (size, size), mode="bicubic", antialias=True, align_corners=False)
    inverse = torch.linalg.pinv(rearrange(resized, "n 1 y x -> n (y x)").double())  # of B^T, (s s, p p)
    flat = rearrange(kernels, "w c y x -> w c (y x)").double()
    return rearrange(flat @ inverse.mT, "w c (y x) -> w c y x", y=size).to(kernels.dtype)


def _channels(
    config: ViTConfig, wanted: ViTConfig, state: State, normalise: Normalisation | None
) -> Normalisation | None:
    """Change the first map, and give back how pictures of these channels are normalised for it."""
    mean, std = normalise or ((), ())
    evened = None if normalise is None else even(normalise, wanted.channels)
    if config.stem == "patch":
        name, bias = f"{STEM}projection.weight", f"{STEM}projection.bias"
        # After patches were resized, which goes before, a patch is as wanted.
        kernels = rearrange(state[name], "w (c n) -> w c n", c=config.channels)
        if evened is not None and wanted.channels == 1:  # as if each channel were still normalised by itself
            (middle,), (spread,) = evened
            each = kernels.new_tensor(std).view(1, -1, 1)
            offset = (middle - kernels.new_tensor(mean).view(1, -1, 1)) / each
            state[bias] = state[bias] + (kernels * offset).sum((1, 2))
            kernels = kernels * (spread / each)
        state[name] = rearrange(other_channels(kernels, wanted.channels), "w c n -> w (c n)")
    elif issubclass(stems[config.stem], ResNetStem):
        name = f"{STEM}root.0.weight"
        state[name] = other_channels(state[name], wanted.channels)
    else:
        raise InputError(f"channels={wanted.channels} cannot be had from stem={config.stem!r} of {config.channels}.")
    return evened


def even(normalise: Normalisation, channels: int) -> Normalisation:
    """One for all channels."""
    mean, std = (sum(values) / len(values) for values in normalise)
    return (mean,) * channels, (std,) * channels


def other_channels(kernels: Tensor, channels: int) -> Tensor:
    """(w c ...) -> (w channels ...): for grey the sum, which gives what a grey picture in all channels gave; for more
    channels the same ones again and again, so much weaker that their sum is as strong as before.
    """
    before = kernels.shape[1]
    if channels == 1:
        return kernels.sum(1, keepdim=True)
    places = torch.arange(channels) % before
    return kernels[:, places] * (before / channels)


def _positions(config: ViTConfig, wanted: ViTConfig, state: State) -> None:
    prefix = "embed.position."
    position = positions[config.position](_grid(config), config.width, config.heads, prefix=config.prefix)
    own = {name: state[f"{prefix}{name}"] for name in position.state_dict()}
    position.load_state_dict({name: tensor.float() for name, tensor in own.items()})
    for name, tensor in position.on(_grid(wanted)).items():
        state[f"{prefix}{name}"] = tensor.detach().to(own[name].dtype)


def _grid(config: ViTConfig) -> tuple[int, int]:
    return config.size[0] // config.patch, config.size[1] // config.patch


def _times(grid: tuple[int, int]) -> str:
    return f"{grid[0]} x {grid[1]}"
