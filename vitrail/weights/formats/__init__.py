"""The formats: for each library, how its files are told, what its tensors are called and what they mean."""

from vitrail.weights.formats import google, hf, timm, torchvision, vit_pytorch  # noqa: F401  # each adds its own
from vitrail.weights.formats.base import Format, Hints, Known, formats

__all__ = ["Format", "Hints", "Known", "formats"]
