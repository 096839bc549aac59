"""Models in the formats of other libraries, so that those load them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.families import Model, family_of
from vitrail.families.vit import ViTConfig
from vitrail.files import Pathlike, make_folder, whole, write_json
from vitrail.weights.adapt import Normalisation
from vitrail.weights.formats import Format, formats
from vitrail.weights.formats.hf import mlp_ratio

HF_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "relu": "relu", "swiglu": "gelu"}


@dataclass(frozen=True)
class About:
    """How pictures are normalised for a model, and what its classes are called, where that is known."""

    normalise: Normalisation | None
    labels: tuple[str, ...] | None

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if self.normalise is not None:
            fields["normalise"] = {"mean": list(self.normalise[0]), "std": list(self.normalise[1])}
        return fields if self.labels is None else {**fields, "labels": list(self.labels)}


def save(
    model: Model,
    path: Pathlike,
    format: str = "vitrail",  # noqa: A002
    *,
    normalise: Normalisation | None = None,
    labels: tuple[str, ...] | None = None,
    **about: Any,
) -> None:
    """Write a model: ``vitrail`` (a run directory), ``hf`` (a folder), ``timm``, ``torchvision``, ``vit-pytorch``
    (.safetensors, or .pt), ``npz`` (Google's).

    What a file of these cannot say, such as the number of heads, goes into NAME.json beside it. How pictures are
    normalised, and what the classes are called, are kept where the format has a place for them.
    """
    model = getattr(model, "_orig_mod", model)  # of a compiled model
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if format == "vitrail":
        _run(Path(path), model, state, labels, {**About(normalise, None).fields(), **about})
        return
    if format not in formats:
        raise unknown("format", format, ["vitrail", *(kind.name for kind in formats.values())])
    config: Any = model.config
    if about:
        raise InputError(f"{min(about)!r} has no place in format={format!r}; leave it out.")
    if labels is not None and len(labels) != config.classes:
        raise InputError(f"{len(labels)} labels do not fit a model with {config.classes} classes.")
    if format == "hf" and isinstance(config, ViTConfig) and (config.layer_scale is not None or config.registers):
        format = "hf-dinov2"  # noqa: A001
    kind = formats[format]()
    tensors = _moved(kind, config, state)
    if format in ("hf", "hf-dinov2"):
        _hf(Path(path), config, tensors, About(normalise, labels))
        return
    _file(Path(path), format, config, tensors, About(normalise, labels))


def _moved(kind: Format, config: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """All tensors under the format's names, if it has one for each."""
    refused = _refusal(kind, config)
    if refused:
        raise InputError(f"{refused}, which {kind.name} has no place for; choose format='vitrail'.")
    tensors: dict[str, Tensor] = {}
    left = set(state)
    for move in kind.plan(config):
        tensors |= move.write(state)
        left -= {name for name, _ in move.ours}
    if left:
        raise InputError(f"{kind.name} has no place for {min(left)!r}; choose format='vitrail'.")
    return {
        name: tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in kind.finish(tensors, config).items()
    }


def _refusal(kind: Format, config: Any) -> str:
    """What of a model the format cannot hold."""
    if not isinstance(config, ViTConfig):
        return f"the model is a {family_of(config)}"
    plain: dict[str, tuple[Any, ...]] = {
        "kernel": ("softmax",),
        "norm": ("layer",),
        "order": ("pre",),
        "rank": (None,),
        "tokens": (0,),
        "position": ("learned",),
        "stem": kind.stems,
    }
    named = {"registers": "registers", "layer_scale": "scale1", "prelogits": "prelogits", "norm_last": "norm_last"}
    for name, theirs in named.items():
        if not getattr(kind.names, theirs):
            plain[name] = (0, None, False)
    for name, values in {**plain, **kind.allowed(config)}.items():
        if getattr(config, name) not in values:
            return f"the model has {name}={getattr(config, name)!r}"
    return ""


def _described(config: Any) -> dict[str, Any]:
    return {"family": family_of(config), "model": config.model_dump(mode="json")}


def _run(
    folder: Path,
    model: Model,
    state: dict[str, Tensor],
    labels: tuple[str, ...] | None,
    about: dict[str, Any],
) -> None:
    make_folder(folder)
    with whole(folder / "model.safetensors") as aside:
        save_file(state, aside)
    if labels is not None:
        write_json(folder / "labels.json", list(labels))
    write_json(folder / "config.json", {**_described(model.config), **about})


def _file(
    path: Path,
    format: str,  # noqa: A002
    config: Any,
    tensors: dict[str, Tensor],
    about: About,
) -> None:
    kinds = (".npz",) if format == "npz" else (".safetensors", ".pt", ".pth", ".bin")
    if path.suffix not in kinds:
        raise InputError(f"{str(path)!r} should end with {' or '.join(kinds)} for format={format!r}.")
    make_folder(path.parent)
    with whole(path) as aside:
        if format == "npz":
            with aside.open("wb") as file:
                np.savez(file, **{name: _numpy(tensor) for name, tensor in tensors.items()})
        elif path.suffix == ".safetensors":
            save_file(tensors, aside, metadata={"format": "pt"})
        else:
            torch.save(tensors, aside)
    write_json(path.with_name(f"{path.name}.json"), {"format": format, **_described(config), **about.fields()})


def _numpy(tensor: Tensor) -> Any:
    """An array; bfloat16, which numpy does not know, as its two bytes."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("V2")
    return tensor.numpy()


def _hf(folder: Path, config: ViTConfig, tensors: dict[str, Tensor], known: About) -> None:
    if folder.suffix in (".safetensors", ".bin", ".pt", ".npz"):
        raise InputError(f"{str(folder)!r} names a file, and format='hf' is a folder; leave {folder.suffix!r} out.")
    make_folder(folder)
    about: dict[str, Any] = {
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "hidden_act": HF_ACTIVATIONS[config.activation],
        "layer_norm_eps": config.eps,
        "image_size": config.size[0] if config.size[0] == config.size[1] else list(config.size),
        "patch_size": config.patch,
        "num_channels": config.channels,
        "qkv_bias": config.bias,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": 0.0,
        "dtype": str(next(iter(tensors.values())).dtype).removeprefix("torch."),
    }
    if config.layer_scale is None:
        architecture, kind = ("ViTForImageClassification" if config.classes else "ViTModel"), "vit"
        about |= {"pooler_output_size": config.prelogits or config.width, "pooler_act": "tanh"}
    else:
        registers = "WithRegisters" if config.registers else ""
        architecture, kind = f"Dinov2{registers}Model", "dinov2_with_registers" if registers else "dinov2"
        about |= {
            "mlp_ratio": mlp_ratio(config),
            "layerscale_value": config.layer_scale,
            "use_swiglu_ffn": config.activation == "swiglu",
            "num_register_tokens": config.registers,
            "drop_path_rate": config.drop_path,
        }
    if config.classes:
        names = known.labels or tuple(f"LABEL_{number}" for number in range(config.classes))
        about["id2label"] = {str(number): name for number, name in enumerate(names)}
        about["label2id"] = {name: number for number, name in enumerate(names)}
    with whole(folder / "model.safetensors") as aside:
        save_file(tensors, aside, metadata={"format": "pt"})
    if known.normalise is not None:
        size = {"height": config.size[0], "width": config.size[1]}
        pictures = {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "rescale_factor": 1 / 255,
            "size": size,
        }
        pictures |= {"image_mean": list(known.normalise[0]), "image_std": list(known.normalise[1])}
        write_json(folder / "preprocessor_config.json", {**pictures, "image_processor_type": "ViTImageProcessor"})
    write_json(folder / "config.json", {"architectures": [architecture], "model_type": kind, **about})
