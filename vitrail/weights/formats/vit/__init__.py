"""The formats of Vision Transformers."""

from vitrail.weights.formats.vit import google, hf, timm, torchvision, vit_pytorch  # noqa: F401  # each adds its own
