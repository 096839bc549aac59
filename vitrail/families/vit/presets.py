"""Shapes with a name."""

from typing import Any

from vitrail.families.catalogue import presets
from vitrail.families.vit.config import ViTConfig


def preset(name: str, *, width: int, **fields: Any) -> None:
    """Name a shape."""
    presets.add(name)((ViTConfig, {"width": width, "hidden": 4 * width, **fields}))


# Sizes B, L, H: ViT paper, table 1; Ti, S: Touvron et al. 2021 (DeiT), table 1.
for letters, width, depth, heads, patches in (
    ("ti", 192, 12, 3, (16,)),
    ("s", 384, 12, 6, (16, 32)),
    ("b", 768, 12, 12, (16, 32)),
    ("l", 1024, 24, 16, (16, 32)),
    ("h", 1280, 32, 16, (14,)),
):
    for patch in patches:
        preset(f"vit-{letters}/{patch}", patch=patch, width=width, depth=depth, heads=heads)

# For small images: 8-pixel digits, 28-pixel grey pictures (MNIST and its kin), 32-pixel colour pictures (CIFAR).
preset("vit-pico/2", image=8, patch=2, channels=1, width=64, depth=4, heads=4, hidden=128, classes=10)
preset("vit-nano/4", image=28, patch=4, channels=1, width=64, depth=6, heads=4, hidden=128, classes=10)
preset("vit-micro/4", image=32, patch=4, channels=3, width=128, depth=6, heads=4, hidden=256, classes=10)

# Hybrids (ViT, section 4.1; Steiner et al. 2021, table 2), and one for small pictures.
preset("r50+vit-b/16", stem="resnet50", patch=16, width=768, depth=12, heads=12)
preset("r50+vit-l/32", stem="resnet50-all", patch=32, width=1024, depth=24, heads=16)
preset("r26+vit-s/32", stem="resnet26", patch=32, width=384, depth=12, heads=6)
preset("r+vit-ti/16", stem="resnet-root", patch=16, width=192, depth=12, heads=3)
preset("r+vit-micro/4", stem="resnet-small", image=32, patch=4, width=128, depth=6, heads=4, hidden=256, classes=10)

# Visual tokens instead of patches (Wu et al. 2020): 16 groups of the pixels that a CNN ends with.
preset("r26+vt-s/32", stem="resnet26", tokens=16, patch=32, width=384, depth=12, heads=6)
preset(
    "r+vt-micro/4",
    stem="resnet-small",
    tokens=8,
    image=32,
    patch=4,
    width=128,
    depth=6,
    heads=4,
    hidden=256,
    classes=10,
)
