"""What folders of Hugging Face's token models have in common."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.files import make_folder, whole, write_json
from vitrail.weights.files import Lazy, Tensors
from vitrail.weights.moves import Move

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu"}


def depth_of(tensors: Tensors, layer: str) -> int:
    """How many blocks there are, whose names begin so and with their numbers."""
    numbers = {int(one[1]) for name in tensors if (one := re.match(re.escape(layer) + r"(\d+)\.", name))}
    return 1 + max(numbers, default=-1)


def shape_of(tensors: Tensors, name: str) -> tuple[int, ...]:
    """The shape of a tensor that has to be there."""
    if name not in tensors:
        raise InputError(f"{name!r} is missing, without which the model is not known.")
    return tensors[name].shape


def activation_of(stated: Mapping[str, Any], field: str, usual: str) -> str:
    """Ours, by its name there."""
    name = stated.get(field, usual)
    if name not in ACTIVATIONS:
        raise unknown(field, name, ACTIVATIONS)
    return ACTIVATIONS[name]


def without(tensors: Tensors, prefix: str, *ends: str) -> dict[str, Lazy]:
    """Without what comes before all names, and without what is computed."""
    return {name.removeprefix(prefix): lazy for name, lazy in tensors.items() if not name.endswith(ends)}


def refuse(config: Any, kind: str, wanted: Mapping[str, tuple[Any, ...]]) -> None:
    """Say which field of a model has no place in a library's."""
    usual: dict[str, tuple[Any, ...]] = {
        "kernel": ("softmax",),
        "norm": ("layer",),
        "bias": (True,),
        "head": (None,),
        "rank": (None,),
        "layer_scale": (None,),
        "factors": ({},),
        "embedding": (None,),
        "position": ("learned",),
        "scaled": (False,),
        "activation": tuple(ACTIVATIONS.values()),
    }
    for name, values in {**usual, **wanted}.items():
        if getattr(config, name) not in values:
            raise InputError(
                f"the model has {name}={getattr(config, name)!r}, which hf's {kind} has no place for; choose "
                f"format='vitrail'."
            )
    for name in ("heads", "hidden"):
        if not isinstance(getattr(config, name), int):
            raise InputError(f"the model has {name} that differ by layer, which hf's {kind} has no place for.")


def write_folder(
    path: Path, moves: Iterable[Move], state: dict[str, Tensor], prefix: str, about: dict[str, Any]
) -> None:
    """Tensors under their names, those of the model itself behind a prefix, and config.json."""
    if path.suffix in (".safetensors", ".bin", ".pt", ".npz"):
        raise InputError(f"{str(path)!r} names a file, and format='hf' is a folder; leave {path.suffix!r} out.")
    tensors: dict[str, Tensor] = {}
    for move in moves:
        tensors |= move.write(state)
    outside = ("lm_head.", "cls.", "classifier.")
    named = {
        name if name.startswith(outside) or not prefix else f"{prefix}{name}": tensor.contiguous()
        for name, tensor in tensors.items()
    }
    make_folder(path)
    with whole(path / "model.safetensors") as aside:
        save_file(named, aside, metadata={"format": "pt"})
    write_json(path / "config.json", about)
