"""timm and torchvision: ResNets, which both call their parts as the first of them did."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.data.normalise import NORMALISATIONS
from vitrail.errors import InputError
from vitrail.families.cnn.config import CNNConfig
from vitrail.files import write_json
from vitrail.weights.files import Tensors, listed, write_tensors
from vitrail.weights.formats.base import Format, Request, formats
from vitrail.weights.formats.hf_folder import shape_of
from vitrail.weights.moves import Move, both, moved
from vitrail.weights.weights import (
    Usage,
    Weights,
    checked_config,
    described,
    stated_fit,
    stated_labels,
    stated_normalise,
)

KINDS = (".safetensors", ".pt", ".pth", ".bin")
LARGE = 7  # the side of the first kernels, before a pooling


@formats.add("timm-cnn")
class TimmResNet(Format):
    """timm's ResNet."""

    name = "timm"
    family = "cnn"

    def recognises(self, tensors: Tensors) -> bool:
        return "conv1.weight" in tensors and "layer1.0.conv1.weight" in tensors and "bn1.running_mean" in tensors

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:
        path, labels = str(location), None
        normalise, assumed = request.normalise, ""
        if about is not None:
            config = checked_config(path, self.family, about["model"], tensors)
            labels, normalise = stated_labels(about.get("labels"), path), normalise or stated_normalise(about, path)
        else:
            image = request.wanted.get("image") or 224
            config = checked_config(path, self.family, {**_fields(tensors), "image": image}, tensors)
            if normalise is None and config.channels == len(NORMALISATIONS["imagenet"].mean):
                normalise = NORMALISATIONS["imagenet"]
                assumed = "nothing says how pictures are normalised; 'imagenet' is assumed, as most such weights want"
        request.check(path, config)
        counters = _counters(config)
        rest = {name: one for name, one in tensors.items() if name not in counters.values()}
        state, over = moved(path, self.name, _moves(config), rest, strict=request.strict)
        state |= {ours: tensors[name].read() if name in tensors else torch.tensor(0) for ours, name in counters.items()}
        notes = [f"left out: {listed(over, len(over))}"] if over else []
        fit = stated_fit(about or {})
        return Weights(path, self.name, self.family, config, state, normalise, labels, notes, assumed, fit)

    def write(self, path: Path, config: CNNConfig, state: dict[str, Tensor], usage: Usage) -> None:
        if not config.residual or not config.classes:
            what = "a plain network" if not config.residual else "a network without a head"
            raise InputError(f"{what} has no place in {self.name}'s ResNet; choose format='vitrail'.")
        tensors: dict[str, Tensor] = {}
        for move in _moves(config):
            tensors |= move.write(state)
        tensors |= {theirs: state[ours] for ours, theirs in _counters(config).items()}
        write_tensors(path, {name: one.contiguous() for name, one in tensors.items()}, self.name, KINDS)
        write_json(path.with_name(f"{path.name}.json"), described(config, self.name, usage))


@formats.add("torchvision-cnn")
class TorchvisionResNet(TimmResNet):
    """torchvision's ResNet, with the same names."""

    name = "torchvision"


def _fields(tensors: Tensors) -> dict[str, Any]:
    """The shape of a network, read off its tensors."""
    _, channels, side, _ = shape_of(tensors, "conv1.weight")
    stages = range(1, 1 + max(int(name[5]) for name in tensors if name.startswith("layer") and name[5].isdigit()))
    units = [len({name.split(".")[1] for name in tensors if name.startswith(f"layer{stage}.")}) for stage in stages]
    return {
        "root": "large" if side == LARGE else "small",
        "width": shape_of(tensors, "layer1.0.conv1.weight")[0],
        "units": units,
        "unit": "bottleneck" if "layer1.0.conv3.weight" in tensors else "basic",
        "channels": channels,
        "classes": shape_of(tensors, "fc.weight")[0] if "fc.weight" in tensors else 0,
    }


def _moves(config: CNNConfig) -> Iterator[Move]:
    for one in config.convolutions():
        conv, norm = _theirs(one.path)
        ours = one.path.removesuffix(".conv")
        yield Move.one(f"{ours}.conv.weight", f"{conv}.weight")
        yield from both(f"{ours}.norm", norm)
        for name in ("running_mean", "running_var"):
            yield Move.one(f"{ours}.norm.{name}", f"{norm}.{name}")
    if config.classes:
        yield from both("head.logits", "fc")


def _counters(config: CNNConfig) -> dict[str, str]:
    """What counts the batches that a norm has seen, by our names."""
    names = [(one.path.removesuffix(".conv"), _theirs(one.path)[1]) for one in config.convolutions()]
    return {f"{ours}.norm.num_batches_tracked": f"{theirs}.num_batches_tracked" for ours, theirs in names}


def _theirs(path: str) -> tuple[str, str]:
    """What they call a convolution, and the norm after it."""
    if path == "root.conv":
        return "conv1", "bn1"
    _, stage, number, part, *which = path.split(".")
    unit = f"layer{int(stage) + 1}.{number}"
    if part == "shortcut":
        return f"{unit}.downsample.0", f"{unit}.downsample.1"
    count = int(which[0]) + 1
    return f"{unit}.conv{count}", f"{unit}.bn{count}"
