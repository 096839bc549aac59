"""vit-pytorch."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import InputError
from vitrail.families.vit.config import ViTConfig
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import formats
from vitrail.weights.formats.vit.base import ViTFormat
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import TORCH, Names, ViTMoves
from vitrail.weights.formats.vit.shape import Known
from vitrail.weights.moves import Move


@formats.add("vit-pytorch")
class VitPytorch(ViTFormat):
    """vit-pytorch's ViT."""

    name = "vit-pytorch"
    names = Names(
        patch="to_patch_embedding.2",
        class_token="cls_token",
        position="pos_embedding",
        norm1="transformer.layers.{}.0.norm",
        attention=("transformer.layers.{}.0.to_qkv",),
        out="transformer.layers.{}.0.to_out.0",
        norm2="transformer.layers.{}.1.net.0",
        inner="transformer.layers.{}.1.net.1",
        outer="transformer.layers.{}.1.net.4",
        norm="transformer.norm",
        logits="mlp_head",
    )
    layout = replace(TORCH, patch="w (c p q) -> w (p q c)", token="w -> 1 w", position="n w -> n w")
    eps = 1e-5
    stems = ("patch-norm",)

    def recognises(self, tensors: Tensors) -> bool:
        return self.patch_weight in tensors and "transformer.layers.0.0.to_qkv.weight" in tensors

    def understand(self, tensors: Tensors, hints: Hints) -> Known:  # noqa: ARG002
        known = Known(dict(tensors), fields={"stem": "patch-norm"})
        for name in ("weight", "bias"):
            known.rename(f"mlp_head.1.{name}", f"mlp_head.{name}")
        if "mlp_head.0.weight" in known.tensors:
            raise InputError("a vit-pytorch model with a norm in its head (before 1.3) is not known; save it anew.")
        for name in ("cls_token", "pos_embedding"):
            if name in known.tensors and len(known.tensors[name].shape) == 3:  # noqa: PLR2004  # before 1.9
                known.change(name, lambda tensor: tensor[0])
        if "cls_token" in known.tensors and known.tensors["cls_token"].shape[0] == 0:
            del known.tensors["cls_token"]
            known.fields["pool"] = "mean"
        return known

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:
        count = tensors[self.patch_weight].shape[-1]
        for channels in (hints.channels,) if hints.channels else (3, 1, 4):
            patch = math.isqrt(count // channels)
            if channels * patch * patch == count:
                return patch, channels
        raise InputError(f"patches of {count} numbers are not square; give the number of channels, such as channels=3.")

    def moves(self, config: ViTConfig) -> ViTMoves:
        return _NormedMoves(self.names, self.layout, config)

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:  # noqa: ARG002
        return {"pool": ("class", "mean"), "bias": (False,), "activation": ("gelu",)}

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
        return tensors if config.prefix else {**tensors, "cls_token": torch.zeros(0, config.width)}


class _NormedMoves(ViTMoves):
    """With the norms before and after the projection of a patch."""

    def _embedding(self) -> Iterator[Move]:
        yield from super()._embedding()
        sizes = {"c": self.config.channels, "p": self.config.patch, "q": self.config.patch}
        for name in ("weight", "bias"):
            yield Move.one(f"embed.stem.before.{name}", f"to_patch_embedding.1.{name}", "(c p q) -> (p q c)", **sizes)
            yield Move.one(f"embed.stem.after.{name}", f"to_patch_embedding.3.{name}")
