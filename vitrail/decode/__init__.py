"""From logits to sequences: token by token, or all tokens at once."""

from vitrail.decode.autoregressive import Hypothesis, Limits, Steps, beam_search, greedy, sample
from vitrail.decode.parallel import mask_predict

__all__ = ["Hypothesis", "Limits", "Steps", "beam_search", "greedy", "mask_predict", "sample"]
