"""Hugging Face transformers: ViT, and DINOv2."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.vit.config import ViTConfig
from vitrail.files import make_folder, whole, write_json
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import formats
from vitrail.weights.formats.vit.base import HALF, IMAGENET, ViTFormat
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import Names
from vitrail.weights.formats.vit.shape import Known
from vitrail.weights.weights import Usage

HF_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_pytorch_tanh", "relu": "relu", "swiglu": "gelu"}


@formats.add("hf")
class HF(ViTFormat):
    """Hugging Face's ViTModel and ViTForImageClassification."""

    name = "hf"
    names = Names(
        patch="embeddings.patch_embeddings.projection",
        class_token="embeddings.cls_token",
        position="embeddings.position_embeddings",
        norm1="encoder.layer.{}.layernorm_before",
        attention=tuple(f"encoder.layer.{{}}.attention.attention.{part}" for part in ("query", "key", "value")),
        out="encoder.layer.{}.attention.output.dense",
        norm2="encoder.layer.{}.layernorm_after",
        inner="encoder.layer.{}.intermediate.dense",
        outer="encoder.layer.{}.output.dense",
        norm="layernorm",
        logits="classifier",
        prelogits="pooler.dense",
    )
    eps = 1e-12
    renamed: ClassVar[Mapping[str, str]] = {  # names of later releases: those before
        r"^layers\.(\d+)\.": r"encoder.layer.\1.",
        r"\.attention\.q_proj\.": ".attention.attention.query.",
        r"\.attention\.k_proj\.": ".attention.attention.key.",
        r"\.attention\.v_proj\.": ".attention.attention.value.",
        r"\.attention\.o_proj\.": ".attention.output.dense.",
    }
    feed_forward: ClassVar[Mapping[str, str]] = {
        r"\.mlp\.fc1\.": ".intermediate.dense.",
        r"\.mlp\.fc2\.": ".output.dense.",
    }
    prefixes: ClassVar[tuple[str, ...]] = ("vit.",)

    def recognises(self, tensors: Tensors) -> bool:
        return any(
            re.search(r"(^|\.)embeddings\.patch_embeddings\.projection\.weight$", name) for name in tensors
        ) and (any("layernorm_before" in name for name in tensors))

    def understand(self, tensors: Tensors, hints: Hints) -> Known:  # noqa: ARG002
        known = Known({self._usual(name): lazy for name, lazy in tensors.items()}, normalise=HALF)
        known.drop("embeddings.mask_token")
        if "classifier.weight" in known.tensors:  # before which HF does not pool
            known.drop("pooler.dense.weight", "pooler.dense.bias")
        return known

    def _usual(self, name: str) -> str:
        for prefix in self.prefixes:
            name = name.removeprefix(prefix)
        for pattern, replacement in {**self.renamed, **self.feed_forward}.items():
            name = re.sub(pattern, replacement, name)
        return name

    def suits(self, config: ViTConfig) -> bool:
        return config.layer_scale is None and not config.registers

    def put(self, path: Path, config: ViTConfig, tensors: dict[str, Tensor], usage: Usage) -> None:
        write_folder(path, config, tensors, usage)

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:
        prelogits = (0,) if config.classes else (config.prelogits,)
        return {
            "pool": ("class",),
            "head": (None,),
            "prelogits": prelogits,
            "activation": ("gelu", "gelu-tanh", "relu"),
        }

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
        if not config.classes:
            return tensors
        return {name if name.startswith("classifier.") else f"vit.{name}": tensor for name, tensor in tensors.items()}


@formats.add("hf-dinov2")
class HFDinov2(HF):
    """Hugging Face's Dinov2Model and Dinov2WithRegistersModel."""

    name = "hf"
    names = replace(
        HF.names,
        norm1="encoder.layer.{}.norm1",
        norm2="encoder.layer.{}.norm2",
        inner="encoder.layer.{}.mlp.fc1",
        outer="encoder.layer.{}.mlp.fc2",
        prelogits="",
        registers="embeddings.register_tokens",
        scale1="encoder.layer.{}.layer_scale1.lambda1",
        scale2="encoder.layer.{}.layer_scale2.lambda1",
    )
    eps = 1e-6
    feed_forward: ClassVar[Mapping[str, str]] = {
        r"\.mlp\.weights_in\.": ".mlp.fc1.",
        r"\.mlp\.weights_out\.": ".mlp.fc2.",
    }
    prefixes = ("dinov2.", "dinov2_with_registers.")

    def recognises(self, tensors: Tensors) -> bool:
        return any("embeddings.patch_embeddings.projection.weight" in name for name in tensors) and any(
            "layer_scale1.lambda1" in name for name in tensors
        )

    def understand(self, tensors: Tensors, hints: Hints) -> Known:
        known = super().understand(tensors, hints)
        known.normalise = IMAGENET
        known.gated("encoder.layer.0.mlp.fc1.weight", "encoder.layer.0.mlp.fc2.weight")
        if "classifier.weight" in known.tensors:
            known.fields["pool"] = "both"
        return known

    def suits(self, config: ViTConfig) -> bool:
        return not super().suits(config)

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:
        scale = () if config.layer_scale is None else (config.layer_scale,)
        return {
            "pool": ("both",) if config.classes else ("class",),
            "head": (None,),
            "layer_scale": scale,
            "hidden": (config.hidden,) if mlp_ratio(config) else (),
            "activation": ("gelu", "swiglu"),
        }

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
        tensors["embeddings.mask_token"] = torch.zeros(1, config.width)
        if config.activation == "swiglu":
            swaps = {".mlp.fc1.": ".mlp.weights_in.", ".mlp.fc2.": ".mlp.weights_out."}
            for old, new in swaps.items():
                tensors = {name.replace(old, new): tensor for name, tensor in tensors.items()}
        if not config.classes:
            return tensors
        prefix = self.prefixes[bool(config.registers)]
        return {name if name.startswith("classifier.") else f"{prefix}{name}": t for name, t in tensors.items()}


def mlp_ratio(config: ViTConfig) -> int:
    """The whole number from which HF's DINOv2 computes the hidden width; 0 if there is none."""

    def hidden(ratio: int) -> int:
        wide = config.width * ratio
        return (int(wide * 2 / 3) + 7) // 8 * 8 if config.activation == "swiglu" else wide

    return next((ratio for ratio in range(1, 33) if hidden(ratio) == config.hidden), 0)


def write_folder(folder: Path, config: ViTConfig, tensors: dict[str, Tensor], usage: Usage) -> None:
    """Write a folder that HF's ``from_pretrained`` reads."""
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
        what = "ForImageClassification" if config.classes else "Model"
        architecture, kind = f"Dinov2{registers}{what}", "dinov2_with_registers" if registers else "dinov2"
        about |= {
            "mlp_ratio": mlp_ratio(config),
            "layerscale_value": config.layer_scale,
            "use_swiglu_ffn": config.activation == "swiglu",
            "num_register_tokens": config.registers,
            "drop_path_rate": config.drop_path,
        }
    if config.classes:
        names = usage.labels or tuple(f"LABEL_{number}" for number in range(config.classes))
        about["id2label"] = {str(number): name for number, name in enumerate(names)}
        about["label2id"] = {name: number for number, name in enumerate(names)}
    with whole(folder / "model.safetensors") as aside:
        save_file(tensors, aside, metadata={"format": "pt"})
    if usage.normalise is not None:
        size = {"height": config.size[0], "width": config.size[1]}
        pictures = {
            "do_normalize": True,
            "do_rescale": True,
            "do_resize": True,
            "rescale_factor": 1 / 255,
            "size": size,
        }
        pictures |= {"image_mean": list(usage.normalise.mean), "image_std": list(usage.normalise.std)}
        write_json(folder / "preprocessor_config.json", {**pictures, "image_processor_type": "ViTImageProcessor"})
    write_json(folder / "config.json", {"architectures": [architecture], "model_type": kind, **about})
