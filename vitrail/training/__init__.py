"""Training."""

from vitrail.training.job import Interrupted, Job, Measured, Result, train_head
from vitrail.training.loop import NotFinite, Step, fit
from vitrail.training.optim import Muon, adamw, muon, warmup_cosine

__all__ = [
    "Interrupted",
    "Job",
    "Measured",
    "Muon",
    "NotFinite",
    "Result",
    "Step",
    "adamw",
    "fit",
    "muon",
    "train_head",
    "warmup_cosine",
]
