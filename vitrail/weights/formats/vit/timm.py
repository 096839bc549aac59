"""timm, and what shares its names: DeiT, DINOv2, MAE."""

import re
from typing import Any

import torch
from torch import Tensor

from vitrail.families.vit.config import ViTConfig
from vitrail.weights.files import Tensors
from vitrail.weights.formats.base import formats
from vitrail.weights.formats.vit.base import HALF, HYBRIDS, IMAGENET, ViTFormat
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import Names, ResNetNames
from vitrail.weights.formats.vit.shape import Known, count_units, hybrid_patch, resnet_stem


@formats.add("timm")
class Timm(ViTFormat):
    """timm's VisionTransformer, and what shares its names: DeiT, DINOv2, MAE."""

    name = "timm"
    names = Names(
        patch="patch_embed.proj",
        class_token="cls_token",
        position="pos_embed",
        norm1="blocks.{}.norm1",
        attention=("blocks.{}.attn.qkv",),
        out="blocks.{}.attn.proj",
        norm2="blocks.{}.norm2",
        inner="blocks.{}.mlp.fc1",
        outer="blocks.{}.mlp.fc2",
        norm="norm",
        norm_last="fc_norm",
        logits="head",
        prelogits="pre_logits.fc",
        registers="reg_token",
        distillation_token="dist_token",
        distilled="head_dist",
        scale1="blocks.{}.ls1.gamma",
        scale2="blocks.{}.ls2.gamma",
        resnet=ResNetNames(
            root="patch_embed.backbone.stem.conv",
            root_norm="patch_embed.backbone.stem.norm",
            conv="patch_embed.backbone.stages.{stage}.blocks.{unit}.conv{index}",
            norm="patch_embed.backbone.stages.{stage}.blocks.{unit}.norm{index}",
            shortcut="patch_embed.backbone.stages.{stage}.blocks.{unit}.downsample.conv",
            shortcut_norm="patch_embed.backbone.stages.{stage}.blocks.{unit}.downsample.norm",
        ),
    )
    stems = HYBRIDS
    _root = "patch_embed.backbone."

    def recognises(self, tensors: Tensors) -> bool:
        return self.patch_weight in tensors and any(re.match(r"blocks\.\d+\.", name) for name in tensors)

    def understand(self, tensors: Tensors, hints: Hints) -> Known:
        known = Known({re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): lazy for name, lazy in tensors.items()})
        scaled = "blocks.0.ls1.gamma" in known.tensors  # as DINOv2 and DeiT III have it
        known.normalise = IMAGENET if scaled or "dist_token" in known.tensors else HALF
        known.drop("mask_token")
        known.rename("register_tokens", "reg_token")
        for name in list(known.tensors):  # DINOv2's own
            known.rename(name, name.replace(".mlp.w12.", ".mlp.fc1.").replace(".mlp.w3.", ".mlp.fc2."))
        known.gated("blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc2.weight")
        if f"{self._root}conv.weight" in known.tensors:
            for part in ("conv.weight", "norm.weight", "norm.bias"):
                known.rename(f"{self._root}{part}", f"{self._root}stem.{part}")
        if f"{self._root}stem.conv.weight" in known.tensors:
            known.fields["stem"] = resnet_stem(self._units(known.tensors))
        self._pool(known, hints)
        if "pos_embed" in known.tensors:
            self._prefix(known, hints)
        return known

    def _pool(self, known: Known, hints: Hints) -> None:
        """Which token answers, and whether the last norm comes after: fc_norm is mostly there with a mean."""
        known.fields["norm_last"] = "fc_norm.weight" in known.tensors
        if "dist_token" in known.tensors:
            known.fields["pool"] = "distilled"
        elif hints.pool is not None:
            known.fields["pool"] = hints.pool
        else:
            there = "cls_token" in known.tensors and not known.fields["norm_last"]
            known.fields["pool"] = "class" if there else "mean"

    def _prefix(self, known: Known, hints: Hints) -> None:
        """Give class and distillation token, and no other, a position: theirs may have more of them, or none."""
        tensors = known.tensors
        position = tensors["pos_embed"].numbers()
        registers = self._shape(tensors, "reg_token", 3)[1] if "reg_token" in tensors else 0
        tokens = ("cls_token" in tensors) + ("dist_token" in tensors)
        choices = tuple(dict.fromkeys((tokens, tokens + registers, 0)))
        before = self.before(known, hints, choices)
        if before == tokens + registers and registers:
            own = position[:, tokens:before]
            known.change("reg_token", lambda token: token + own)
            position = torch.cat([position[:, :tokens], position[:, before:]], dim=1)
        elif before == 0 and tokens:
            position = torch.cat([torch.zeros_like(position[:, :1]).expand(-1, tokens, -1), position], dim=1)
        if known.fields["pool"] == "mean" and tokens:  # a class token that is not pooled is one more register
            token = tensors.pop("cls_token").numbers() + position[:, :1]
            others = [tensors["reg_token"].numbers()] if registers else []
            known.put("reg_token", torch.cat([token, *others], dim=1))
            position = position[:, 1:]
        known.put("pos_embed", position)

    def _units(self, tensors: Tensors) -> tuple[int, ...]:
        return count_units(r"patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\.", tensors)

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        _, channels, patch, _ = self._shape(tensors, self.patch_weight, 4)
        if f"{self._root}stem.conv.weight" not in tensors:
            return patch, channels
        return hybrid_patch(self._units(tensors), patch), self._shape(tensors, f"{self._root}stem.conv.weight", 4)[1]

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:
        late = (config.norm_last,) if config.pool == "mean" else (False,)
        registers = (0,) if config.pool == "distilled" else (config.registers,)
        return {"position": ("learned", "none"), "head": (None,), "norm_last": late, "registers": registers}

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
        if config.registers and "pos_embed" in tensors:
            position, room = tensors["pos_embed"], torch.zeros(1, config.registers, config.width)
            first, patches = position[:, : config.prefix], position[:, config.prefix :]
            tensors["pos_embed"] = torch.cat([first, room.to(position), patches], dim=1)
        if config.stem == "resnet-root":
            tensors = {name.replace(f"{self._root}stem.", self._root): tensor for name, tensor in tensors.items()}
        return tensors
