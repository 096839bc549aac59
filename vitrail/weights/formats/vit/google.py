"""Google's vision_transformer and big_vision."""

import re
from typing import Any

import torch

from vitrail.errors import InputError
from vitrail.families.vit.config import ViTConfig
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import formats
from vitrail.weights.formats.vit.base import HALF, HYBRIDS, ViTFormat
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import FLAX, Names, ResNetNames
from vitrail.weights.formats.vit.shape import Known, count_units, hybrid_patch, resnet_stem


@formats.add("npz")
class Npz(ViTFormat):
    """Google's vision_transformer: the original checkpoints, AugReg's, hybrids, and big_vision's."""

    name = "npz"
    kinds = (".npz",)
    names = Names(
        patch="embedding",
        class_token="cls",
        position="Transformer/posembed_input/pos_embedding",
        norm1="Transformer/encoderblock_{}/LayerNorm_0",
        attention=tuple(
            f"Transformer/encoderblock_{{}}/MultiHeadDotProductAttention_1/{part}" for part in ("query", "key", "value")
        ),
        out="Transformer/encoderblock_{}/MultiHeadDotProductAttention_1/out",
        norm2="Transformer/encoderblock_{}/LayerNorm_2",
        inner="Transformer/encoderblock_{}/MlpBlock_3/Dense_0",
        outer="Transformer/encoderblock_{}/MlpBlock_3/Dense_1",
        norm="Transformer/encoder_norm",
        logits="head",
        prelogits="pre_logits",
        resnet=ResNetNames(
            root="conv_root",
            root_norm="gn_root",
            conv="block{stage}/unit{unit}/conv{index}",
            norm="block{stage}/unit{unit}/gn{index}",
            shortcut="block{stage}/unit{unit}/conv_proj",
            shortcut_norm="block{stage}/unit{unit}/gn_proj",
            first=1,
        ),
    )
    layout = FLAX
    stems = HYBRIDS

    def recognises(self, tensors: Tensors) -> bool:
        return any(name.endswith("embedding/kernel") for name in tensors)

    def understand(self, tensors: Tensors, hints: Hints) -> Known:
        prefix = next(name for name in tensors if name.endswith("embedding/kernel")).removesuffix("embedding/kernel")
        known = Known({}, normalise=HALF)
        for name, lazy in tensors.items():
            known.tensors[name.removeprefix(prefix)] = lazy
        self._big_vision(known, hints)
        for name, lazy in list(known.tensors.items()):
            if "gn" in name.rpartition("/")[0].rpartition("/")[2] and len(lazy.shape) > 1:  # (1 1 1 c) in early files
                known.change(name, lambda tensor: tensor.flatten())
            known.rename(name, re.sub(r"/unit0+(\d)", r"/unit\1", name))
        if "conv_root/kernel" in known.tensors:
            known.fields["stem"] = resnet_stem(count_units(r"block(\d+)/unit(\d+)/", known.tensors))
        if "cls" not in known.tensors:
            known.fields["pool"] = "mean"
        return known

    def _big_vision(self, known: Known, hints: Hints) -> None:
        """Later names: other numbers of the modules, all blocks in one tensor, positions without the class token."""
        if any(name.startswith("MAPHead") for name in known.tensors):
            raise InputError("a model that pools by attention (MAPHead) is not known; choose one with a class token.")
        known.rename("pos_embedding", self.names.position)
        if "Transformer/encoderblock/LayerNorm_0/scale" in known.tensors:
            for name, lazy in list(known.tensors.items()):
                if name.startswith("Transformer/encoderblock/"):
                    del known.tensors[name]
                    for number, one in enumerate(lazy.numbers()):
                        known.put(name.replace("encoderblock/", f"encoderblock_{number}/"), one)
        if any("MultiHeadDotProductAttention_0" in name for name in known.tensors):
            for name in list(known.tensors):
                known.rename(
                    name,
                    name.replace("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention_1")
                    .replace("/LayerNorm_1/", "/LayerNorm_2/")
                    .replace("/MlpBlock_0/", "/MlpBlock_3/"),
                )
        if "cls" in known.tensors and self.names.position in known.tensors and self.before(known, hints, (1, 0)) == 0:
            known.change(self.names.position, lambda p: torch.cat([torch.zeros_like(p[:, :1]), p], dim=1))

    def heads(self, tensors: Tensors, width: int, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        _, heads, head = self._shape(tensors, f"{self.names.attention[0].format(0)}/kernel", 3)
        if hints.heads not in (None, heads):
            raise InputError(f"heads={hints.heads} cannot be: the tensors have {heads}; leave it out.")
        return heads, head

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:  # noqa: ARG002
        return {"pool": ("class", "mean"), "bias": (True,), "activation": ("gelu",)}

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        patch, _, channels, _ = self._shape(tensors, self.patch_weight, 4)
        if "conv_root/kernel" not in tensors:
            return patch, channels
        units = count_units(r"block(\d+)/unit(\d+)/", tensors)
        return hybrid_patch(units, patch), self._shape(tensors, "conv_root/kernel", 4)[2]
