"""The Vision Transformer, its hybrids and its visual tokens."""

from vitrail.families.vit import presets  # noqa: F401  # each is added by its name
from vitrail.families.vit.config import ViTConfig
from vitrail.families.vit.model import ViT

__all__ = ["ViT", "ViTConfig"]
