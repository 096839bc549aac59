"""Training."""

from vitrail.training.estimates import Forecast, fitted, forecast, paced
from vitrail.training.job import Interrupted, Job, check_parts, finish_head
from vitrail.training.loop import NotFinite, Step, fit
from vitrail.training.optim import Muon, adamw, muon, warmup_cosine
from vitrail.training.rates import Rates, try_rates
from vitrail.training.result import Measured, Result

__all__ = [
    "Forecast",
    "Interrupted",
    "Job",
    "Measured",
    "Muon",
    "NotFinite",
    "Rates",
    "Result",
    "Step",
    "adamw",
    "check_parts",
    "finish_head",
    "fit",
    "fitted",
    "forecast",
    "muon",
    "paced",
    "try_rates",
    "warmup_cosine",
]
