"""What is said about a ViT outside its tensors: by the config files of Hugging Face and timm, or by the user."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vitrail.data.normalise import Normalise
from vitrail.errors import InputError, unknown
from vitrail.weights.files import json_table
from vitrail.weights.formats.base import Request

ACTIVATIONS = {  # HF's and timm's names, and ours
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_tanh": "gelu-tanh",
    "relu": "relu",
}


POOLS = {"token": "class", "avg": "mean"}  # timm's names
TANH = re.compile("so400m.*siglip|giantopt")  # timm's models whose GELU is the approximation


@dataclass(frozen=True)
class Hints:
    """What is said about a model, where its tensors do not say it."""

    heads: int | None = None
    width: int | None = None
    depth: int | None = None
    image: tuple[int, int] | None = None
    asked: tuple[int, int] | None = None  # a size that the model is wanted for
    channels: int | None = None
    registers: int | None = None
    eps: float | None = None
    activation: str | None = None
    position: str | None = None
    order: str | None = None
    pool: str | None = None
    normalise: Normalise | None = None
    labels: tuple[str, ...] | None = None

    def over(self, other: "Hints") -> "Hints":
        """These, and the other's where these are silent."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **given)


def hints_by_user(request: Request) -> Hints:
    """What the user says, or wants the model for."""
    image, channels = request.wanted.get("image"), request.wanted.get("channels")
    size = (image, image) if isinstance(image, int) else tuple(image) if isinstance(image, list | tuple) else None
    return Hints(
        asked=size if size and len(size) == 2 and all(type(side) is int for side in size) else None,  # noqa: PLR2004
        channels=channels if type(channels) is int else None,
        normalise=request.normalise,
        **_of_vits(request.stated),
    )


def _of_vits(stated: dict[str, Any]) -> dict[str, Any]:
    for name, value in stated.items():
        if name not in Hints.__dataclass_fields__:
            raise InputError(f"{name} is not of a vit, as these weights are; leave {name}={value!r} out.")
    return stated


def hints_of(folder: Path) -> Hints:
    """What config.json and preprocessor_config.json say."""
    about, pictures = json_table(folder / "config.json"), json_table(folder / "preprocessor_config.json")
    stated = _timm(about) if "architecture" in about else _hf(about)
    if pictures.get("do_normalize", True):
        pair = (pictures.get("image_mean"), pictures.get("image_std"))
        stated = Hints(normalise=Normalise.of(pair)).over(stated)
    return stated


def _hf(about: dict[str, Any]) -> Hints:
    activation = about.get("hidden_act")
    if activation is not None and str(activation) not in ACTIVATIONS:
        raise unknown("hidden_act", activation, ACTIVATIONS)
    eps = about.get("layer_norm_eps")
    return Hints(
        heads=_whole(about.get("num_attention_heads")),
        width=_whole(about.get("hidden_size")),
        depth=_whole(about.get("num_hidden_layers")),
        image=_size(about.get("image_size")),
        channels=_whole(about.get("num_channels")),
        registers=_whole(about.get("num_register_tokens")),
        eps=eps if isinstance(eps, float) and 0 < eps < 1 else None,
        activation=ACTIVATIONS[str(activation)] if activation else None,
        labels=_labels(about.get("id2label")),
    )


def _timm(about: dict[str, Any]) -> Hints:
    cfg, arguments = about.get("pretrained_cfg") or {}, about.get("model_args") or {}
    if not isinstance(cfg, dict) or not isinstance(arguments, dict):
        raise InputError("config.json is not one of timm's: 'pretrained_cfg' and 'model_args' should be tables.")
    name, pool = str(about["architecture"]), about.get("global_pool") or arguments.get("global_pool")
    if "_rpn_" in name or pool not in (None, "", *POOLS):
        raise InputError(f"config.json describes timm's {name!r} with global_pool={pool!r}, which is not known here.")
    activation = arguments.get("act_layer") or ("gelu_tanh" if TANH.search(name) else None)
    if activation is not None and str(activation) not in ACTIVATIONS:
        raise unknown("act_layer", activation, ACTIVATIONS)
    size = cfg.get("input_size")
    labels = about.get("label_names") or cfg.get("label_names")
    return Hints(
        heads=_whole(arguments.get("num_heads")),
        image=_size(arguments.get("img_size")) or _size(size[1:] if isinstance(size, list) else None),
        activation=ACTIVATIONS[str(activation)] if activation else None,
        pool=POOLS[pool] if pool else None,
        normalise=Normalise.of((cfg.get("mean"), cfg.get("std"))),
        labels=tuple(map(str, labels)) if isinstance(labels, list) else None,
    )


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _size(value: Any) -> tuple[int, int] | None:
    sides = value if isinstance(value, list) else [value, value]
    whole = [side for side in map(_whole, sides) if side is not None]
    return (whole[0], whole[1]) if len(whole) == 2 == len(sides) else None  # noqa: PLR2004


def _labels(names: Any) -> tuple[str, ...] | None:
    if not isinstance(names, dict) or not names:
        return None
    try:
        ordered = [names[key] for key in sorted(names, key=int)]
    except (ValueError, TypeError):
        return None
    if all(name == f"LABEL_{number}" for number, name in enumerate(ordered)):  # which says nothing
        return None
    return tuple(map(str, ordered))
