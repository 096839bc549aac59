"""Training."""

from vitrail.train.fit import Step, fit
from vitrail.train.job import Job, Result
from vitrail.train.objectives import classify
from vitrail.train.optim import adamw, warmup_cosine

__all__ = ["Job", "Result", "Step", "adamw", "classify", "fit", "warmup_cosine"]
