"""The formats: for each library, how its files are told, what its tensors are called and what they mean."""

from vitrail.weights.formats import bert, cnn, gpt, seq2seq, vit  # noqa: F401  # each family's add themselves
from vitrail.weights.formats.base import Format, Request, formats

__all__ = ["Format", "Request", "formats"]
