"""vit-pytorch."""

import math
import re
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

OLDER = {  # names of releases before 1.3: those of today
    r"^(transformer\.layers\.\d+\.[01])\.fn\.(norm|fn)\.": r"\1.\2.",
    r"^(transformer\.layers\.\d+\.0)\.fn\.": r"\1.",
    r"^(transformer\.layers\.\d+\.1)\.norm\.": r"\1.net.0.",
    r"^(transformer\.layers\.\d+\.1)\.fn\.net\.0\.": r"\1.net.1.",
    r"^(transformer\.layers\.\d+\.1)\.fn\.net\.3\.": r"\1.net.4.",
    r"^patch_to_embedding\.": "to_patch_embedding.2.",
}


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
        if self.patch_weight in tensors and "transformer.layers.0.0.to_qkv.weight" in tensors:
            return True
        older = any(re.match(r"transformer\.layers\.0\.0\.(fn\.)+to_qkv\.weight$", name) for name in tensors)
        patches = (self.patch_weight, "to_patch_embedding.1.weight", "patch_to_embedding.weight")
        return older and any(name in tensors and len(tensors[name].shape) == 2 for name in patches)  # noqa: PLR2004

    def understand(self, tensors: Tensors, hints: Hints) -> Known:  # noqa: ARG002
        known = Known(dict(tensors), fields={"stem": "patch-norm"})
        if any(".fn." in name for name in tensors):
            self._older(known)
        if "mlp_head.4.weight" in known.tensors:
            raise InputError("a vit-pytorch model with two maps in its head (before 0.3) is not known.")
        for name in ("weight", "bias"):
            known.rename(f"mlp_head.1.{name}", f"mlp_head.{name}")
            known.rename(f"mlp_head.0.{name}", f"transformer.norm.{name}")
        for name in ("cls_token", "pos_embedding"):
            if name in known.tensors and len(known.tensors[name].shape) == 3:  # noqa: PLR2004  # before 1.9
                known.change(name, lambda tensor: tensor[0])
        if "cls_token" in known.tensors and known.tensors["cls_token"].shape[0] == 0:
            del known.tensors["cls_token"]
            known.fields["pool"] = "mean"
        return known

    def _older(self, known: Known) -> None:
        """Give the tensors of an earlier release the names of today; what it may have done otherwise is said."""
        known.notes.append("assumed: the class token answers, not the mean of all tokens (pool='mean')")
        if "patch_to_embedding.weight" in known.tensors:
            known.notes.append("assumed: attention is scaled by the width of a head, as vit-pytorch does since 0.6.7")
        for name in list(known.tensors):
            new = name
            for pattern, replacement in OLDER.items():
                new = re.sub(pattern, replacement, new)
            known.rename(name, new)
        if self.patch_weight not in known.tensors:
            for name in ("weight", "bias"):
                known.rename(f"to_patch_embedding.1.{name}", f"to_patch_embedding.2.{name}")
        if "to_patch_embedding.1.weight" not in known.tensors:
            known.fields["stem"] = "patch"
        width = known.tensors[self.patch_weight].shape[0]
        for number in range(self._depth(known.tensors)):  # of a single head as wide as the model
            if f"{(out := self.names.out.format(number))}.weight" not in known.tensors:
                known.put(f"{out}.weight", torch.eye(width))
                known.put(f"{out}.bias", torch.zeros(width))
                known.fields["heads"] = 1

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:
        count = tensors[self.patch_weight].shape[-1]
        for channels in (hints.channels,) if hints.channels else (3, 1, 4):
            patch = math.isqrt(count // channels)
            if channels * patch * patch == count:
                return patch, channels
        raise InputError(f"patches of {count} numbers are not square; give the number of channels, such as channels=3.")

    def moves(self, config: ViTConfig) -> ViTMoves:
        kind = _NormedMoves if config.stem == "patch-norm" else ViTMoves
        return kind(self.names, self.layout, config)

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
