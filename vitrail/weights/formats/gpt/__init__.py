"""The formats of GPTs."""

from vitrail.weights.formats.gpt import hf  # noqa: F401  # adds itself
