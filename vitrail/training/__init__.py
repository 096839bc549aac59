"""Training."""

from vitrail.training.forecast import Forecast, fitted, forecast, paced
from vitrail.training.job import Interrupted, Job, Measured, Result, finish_head
from vitrail.training.loop import NotFinite, Step, fit
from vitrail.training.optim import Muon, adamw, muon, warmup_cosine

__all__ = [
    "Forecast",
    "Interrupted",
    "Job",
    "Measured",
    "Muon",
    "NotFinite",
    "Result",
    "Step",
    "adamw",
    "finish_head",
    "fit",
    "fitted",
    "forecast",
    "muon",
    "paced",
    "warmup_cosine",
]
