"""From logits to sequences: token by token, or all tokens at once."""

from vitrail.decode.autoregressive import Drawing, Hypothesis, Limits, Steps, beam_search, greedy, sample, stream
from vitrail.decode.parallel import mask_predict

__all__ = ["Drawing", "Hypothesis", "Limits", "Steps", "beam_search", "greedy", "mask_predict", "sample", "stream"]
