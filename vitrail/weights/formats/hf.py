"""Hugging Face transformers: ViT, and DINOv2."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.vit import ViTConfig
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import HALF, IMAGENET, Format, Hints, Known, formats
from vitrail.weights.moves import Names


@formats.add("hf")
class HF(Format):
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
            raise InputError(
                "a Dinov2ForImageClassification answers from class token and mean together, which no head here does; "
                "save its backbone, and give that."
            )
        return known

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:
        scale = () if config.layer_scale is None else (config.layer_scale,)
        return {
            "pool": ("class",),
            "head": (None,),
            "classes": (0,),
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
        return tensors


def mlp_ratio(config: ViTConfig) -> int:
    """The whole number from which HF's DINOv2 computes the hidden width; 0 if there is none."""

    def hidden(ratio: int) -> int:
        wide = config.width * ratio
        return (int(wide * 2 / 3) + 7) // 8 * 8 if config.activation == "swiglu" else wide

    return next((ratio for ratio in range(1, 33) if hidden(ratio) == config.hidden), 0)
