"""Looking inside: what a model attends to, what that tells, and whether it can be trusted."""

from vitrail.lens.attribution import methods
from vitrail.lens.decomposition import Writes, logit_lens, writes
from vitrail.lens.editing import Edits, edit
from vitrail.lens.explanation import Explanation, explain
from vitrail.lens.faithfulness import Curves, curves, random_curves
from vitrail.lens.figures import filter_components, position_bias, position_similarity
from vitrail.lens.heads import attention_distance, loss_without, sensitivity, uniform_distance
from vitrail.lens.recording import Trace, layer_sites, record
from vitrail.lens.tokens import Tokens

__all__ = [
    "Curves",
    "Edits",
    "Explanation",
    "Tokens",
    "Trace",
    "Writes",
    "attention_distance",
    "curves",
    "edit",
    "explain",
    "filter_components",
    "layer_sites",
    "logit_lens",
    "loss_without",
    "methods",
    "position_bias",
    "position_similarity",
    "random_curves",
    "record",
    "sensitivity",
    "uniform_distance",
    "writes",
]
