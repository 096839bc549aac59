"""What lies beside weights and says more about them: the config files of Hugging Face and timm, and our own."""

import json
import re
from pathlib import Path
from typing import Any

from vitrail.errors import InputError, unknown
from vitrail.weights.adapt import Normalisation
from vitrail.weights.formats import Hints

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_tanh": "gelu-tanh",
    "relu": "relu",
}


POOLS = {"token": "class", "avg": "mean"}  # timm's names
TANH = re.compile("so400m.*siglip|giantopt")  # timm's models whose GELU is the approximation


def own_config(path: Path) -> dict[str, Any] | None:
    """What ``save`` wrote about a model: config.json of a run directory, or NAME.json beside a file."""
    place = path / "config.json" if path.is_dir() else path.with_name(f"{path.name}.json")
    about = _json(place)
    return about if isinstance(about.get("model"), dict) and "family" in about else None


def hints(folder: Path) -> Hints:
    """What config.json and preprocessor_config.json say."""
    about, pictures = _json(folder / "config.json"), _json(folder / "preprocessor_config.json")
    found = _timm(about) if "architecture" in about else _hf(about)
    if pictures.get("do_normalize", True):
        found = Hints(normalise=normalisation(pictures.get("image_mean"), pictures.get("image_std"))).over(found)
    return found


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
        normalise=normalisation(cfg.get("mean"), cfg.get("std")),
        labels=tuple(map(str, labels)) if isinstance(labels, list) else None,
    )


def _json(path: Path) -> dict[str, Any]:
    """A table from a file, empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not valid JSON: {error}; mend it, or take it away.") from None
    if not isinstance(content, dict):
        raise InputError(f"{str(path)!r} is not a table of fields; mend it, or take it away.")
    return content


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _size(value: Any) -> tuple[int, int] | None:
    sides = value if isinstance(value, list) else [value, value]
    whole = [side for side in map(_whole, sides) if side is not None]
    return (whole[0], whole[1]) if len(whole) == 2 == len(sides) else None  # noqa: PLR2004


def normalisation(mean: Any, std: Any) -> Normalisation | None:
    """Mean and deviation, if that is what these are."""
    for values in (mean, std):
        if not isinstance(values, list) or not values or not all(isinstance(v, int | float) for v in values):
            return None
    return (tuple(mean), tuple(std)) if len(mean) == len(std) and all(std) else None


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
