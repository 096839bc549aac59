"""The formats of BERTs."""

from vitrail.weights.formats.bert import hf  # noqa: F401  # adds itself
