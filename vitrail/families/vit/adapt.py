"""Weights for other pictures than they were trained on: another size, other channels, other patches, other classes."""

from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitrail.core import ResNetStem, positions, stems
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError, unknown
from vitrail.families.blocks import interchangeable
from vitrail.families.model import Adapted, State
from vitrail.families.vit.config import ViTConfig

STEM = "embed.stem."
HEAD = ("classes", "prelogits", "pool", "last")  # with another of these the head is another
FREE = (*HEAD, "image", "patch", "channels", "merge", "dropout", "drop_path", "layer_drop")


def adapt(
    config: ViTConfig, state: State, normalise: Normalise | None = None, *, head: str = "keep", **changes: Any
) -> Adapted:
    """The same model with other fields; with a fresh head, if asked for."""
    if head not in ("keep", "fresh"):
        raise unknown("head", head, ["keep", "fresh"])
    wanted = _wanted(config, {name: value for name, value in changes.items() if value is not None})
    state, notes = dict(state), list[str]()
    if wanted.kernel != config.kernel:
        notes.append(f"attention of the kind {wanted.kernel} instead of {config.kernel}")
    if wanted.pool != config.pool:
        notes.append(f"the head reads {_POOLS[wanted.pool]} instead of {_POOLS[config.pool]}")
        _pool(config, wanted, state)
    if wanted.patch != config.patch:
        notes.append(f"patches of {config.patch} pixels made patches of {wanted.patch}")
        _patch(config, wanted, state)
    if wanted.channels != config.channels:
        notes.append(f"{config.channels} channels made {wanted.channels}")
        normalise = _channels(config, wanted, state, normalise)
    if wanted.grid != config.grid:
        notes.append(f"positions of {_times(config.grid)} patches resampled to {_times(wanted.grid)}")
        _positions(config, wanted, state)
    if any(getattr(wanted, name) != getattr(config, name) for name in HEAD):
        notes.append(_new_head(config, wanted, state))
    elif head == "fresh" and wanted.classes:
        fresh_head(wanted, state)
        notes.append(f"the head for {wanted.classes} classes replaced by a fresh one")
    other = any(getattr(wanted, name) != getattr(config, name) for name in ("classes", "pool", "last"))
    return Adapted(wanted, state, normalise, notes, head == "fresh" or other)


def _wanted(config: ViTConfig, changes: dict[str, Any]) -> ViTConfig:
    wanted = ViTConfig(**{**config.model_dump(), **_head(config, changes)})
    for name in ViTConfig.model_fields:
        same = interchangeable(wanted.kernel, config.kernel) if name == "kernel" else False
        if name not in FREE and getattr(wanted, name) != getattr(config, name) and not same:
            raise InputError(
                f"{name}={getattr(wanted, name)!r} cannot be had from weights with {getattr(config, name)!r}; "
                f"leave it out."
            )
    unread = config.prefix - wanted.prefix  # a class token that the head does not read is one more register
    return ViTConfig(**{**wanted.model_dump(), "registers": config.registers + max(0, unread)})


def fresh_head(config: ViTConfig, state: State) -> None:
    """A head that says nothing yet: all zeros, so that the first answers are even, and the first steps its own."""
    some = next(tensor for tensor in state.values() if tensor.is_floating_point())
    names = ("logits", "distilled") if config.pool == "distilled" else ("logits",)
    for name in names:
        state[f"head.{name}.weight"] = some.new_zeros(config.classes, config.prelogits or config.pooled)
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


_POOLS = {
    "class": "the class token",
    "mean": "the mean of the patches",
    "both": "class token and mean of the patches",
    "distilled": "class and distillation token",
}


def _pool(config: ViTConfig, wanted: ViTConfig, state: State) -> None:
    """Other tokens for the head."""
    if wanted.prefix == config.prefix:
        return
    if wanted.prefix or config.position not in ("learned", "none"):
        raise InputError(f"pool={wanted.pool!r} cannot be had from weights with {config.pool!r}; leave it out.")
    names = ("embed.class_token", "embed.distillation_token")[: config.prefix]
    tokens = torch.stack([state.pop(name) for name in names])
    if config.position == "learned":
        position = state["embed.position.embedding"]
        tokens, state["embed.position.embedding"] = tokens + position[: config.prefix], position[config.prefix :]
    registers = [state["embed.registers"]] if config.registers else []
    state["embed.registers"] = torch.cat([tokens, *registers])


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


def _channels(config: ViTConfig, wanted: ViTConfig, state: State, normalise: Normalise | None) -> Normalise | None:
    """Change the first map, and give back how pictures of these channels are normalised for it."""
    evened = None if normalise is None else normalise.even(wanted.channels)
    if config.stem == "patch":
        name, bias = f"{STEM}projection.weight", f"{STEM}projection.bias"
        # After patches were resized, which goes before, a patch is as wanted.
        kernels = rearrange(state[name], "w (c n) -> w c n", c=config.channels)
        if normalise is not None and evened is not None and wanted.channels == 1:
            # As if each channel were still normalised by itself.
            std = kernels.new_tensor(normalise.std).view(1, -1, 1)
            offset = (evened.mean[0] - kernels.new_tensor(normalise.mean).view(1, -1, 1)) / std
            state[bias] = state[bias] + (kernels * offset).sum((1, 2))
            kernels = kernels * (evened.std[0] / std)
        state[name] = rearrange(other_channels(kernels, wanted.channels), "w c n -> w (c n)")
    elif issubclass(stems[config.stem], ResNetStem):
        name = f"{STEM}root.0.weight"
        state[name] = other_channels(state[name], wanted.channels)
    else:
        raise InputError(f"channels={wanted.channels} cannot be had from stem={config.stem!r} of {config.channels}.")
    return evened


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
    prefix = "embed.position."  # after the pooling was seen to, which goes before
    position = positions[config.position](config.grid, config.width, config.most_heads, prefix=wanted.prefix)
    own = {name: state[f"{prefix}{name}"] for name in position.state_dict()}
    position.load_state_dict({name: tensor.float() for name, tensor in own.items()})
    for name, tensor in position.on(wanted.grid).items():
        state[f"{prefix}{name}"] = tensor.detach().to(own[name].dtype)


def _times(grid: tuple[int, int]) -> str:
    return f"{grid[0]} x {grid[1]}"
