"""The same ViT in each library, ready to be timed: a forward pass, or a training step."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "peers"))

import stub  # noqa: F401


@dataclass(frozen=True)
class Shape:
    """A ViT's numbers, under the names that Vitrail has for them."""

    image: int
    patch: int
    channels: int
    width: int
    depth: int
    heads: int
    hidden: int
    classes: int


def vitrail(shape: Shape) -> nn.Module:
    """As ``vitrail train`` runs it: the shortest way, and freed memory is kept."""
    from vitrail.machine import keep_memory

    keep_memory()
    return Logits(plain(shape), lambda model, images: model(images, shortest=True))


def plain(shape: Shape) -> nn.Module:
    """``model(images)`` in a process that does nothing else for speed, as a user's own script might be."""
    import vitrail as vt

    return vt.build("vit", **vars(shape))


def timm(shape: Shape) -> nn.Module:
    """Timm's VisionTransformer."""
    from timm.models import VisionTransformer

    return VisionTransformer(
        img_size=shape.image,
        patch_size=shape.patch,
        in_chans=shape.channels,
        num_classes=shape.classes,
        embed_dim=shape.width,
        depth=shape.depth,
        num_heads=shape.heads,
        mlp_ratio=shape.hidden / shape.width,
    )


def timm_kept(shape: Shape) -> nn.Module:
    """The same with Vitrail's setting of the C library, which helps whoever asks for it."""
    from vitrail.machine import keep_memory

    keep_memory()
    return timm(shape)


def hf(shape: Shape) -> nn.Module:
    """ViTForImageClassification of HF transformers, with its fused attention."""
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=shape.image,
        patch_size=shape.patch,
        num_channels=shape.channels,
        num_labels=shape.classes,
        hidden_size=shape.width,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        intermediate_size=shape.hidden,
        attn_implementation="sdpa",
    )
    return Logits(ViTForImageClassification(config), lambda model, images: model(images).logits)


class Logits(nn.Module):
    """A model called so that it returns its logits."""

    def __init__(self, model: nn.Module, call: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(b c H W) -> (b classes)."""
        return self.call(self.model, images)


def vit_pytorch(shape: Shape) -> nn.Module:
    """ViT of vit-pytorch."""
    from vit_pytorch import ViT

    return ViT(
        image_size=shape.image,
        patch_size=shape.patch,
        channels=shape.channels,
        num_classes=shape.classes,
        dim=shape.width,
        depth=shape.depth,
        heads=shape.heads,
        dim_head=shape.width // shape.heads,
        mlp_dim=shape.hidden,
    )


def torchvision(shape: Shape) -> nn.Module:
    """VisionTransformer of torchvision, whose first layer takes three channels only."""
    from torchvision.models import VisionTransformer

    model = VisionTransformer(
        image_size=shape.image,
        patch_size=shape.patch,
        num_layers=shape.depth,
        num_heads=shape.heads,
        hidden_dim=shape.width,
        mlp_dim=shape.hidden,
        num_classes=shape.classes,
    )
    if shape.channels != 3:
        model.conv_proj = nn.Conv2d(shape.channels, shape.width, shape.patch, stride=shape.patch)
    return model


SYSTEMS: dict[str, Callable[[Shape], nn.Module]] = {
    "vitrail": vitrail,
    "vitrail, plain": plain,
    "timm": timm,
    "timm, memory kept": timm_kept,
    "hf": hf,
    "vit-pytorch": vit_pytorch,
    "torchvision": torchvision,
}


def forward(model: nn.Module, shape: Shape, batch: int) -> Callable[[], object]:
    """Classify a batch of random pictures."""
    model.eval()
    images = torch.randn(batch, shape.channels, shape.image, shape.image)

    @torch.inference_mode()
    def run() -> object:
        return model(images)

    return run


def training_step(model: nn.Module, shape: Shape, batch: int) -> Callable[[], object]:
    """Loss, gradients and a fused AdamW update, the same for all."""
    images = torch.randn(batch, shape.channels, shape.image, shape.image)
    labels = torch.randint(0, shape.classes, (batch,))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.05, fused=True)

    def run() -> object:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        return optimizer.step()

    return run
