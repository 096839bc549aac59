"""The formats of encoder-decoder Transformers."""

from vitrail.weights.formats.seq2seq import hf, torch  # noqa: F401  # each adds its own
