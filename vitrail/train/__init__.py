"""Training."""

from vitrail.train.distributed import World, launch, launched, world
from vitrail.train.fit import NotFinite, Step, fit
from vitrail.train.job import HISTORY, Interrupted, Job, Measured, Result
from vitrail.train.measure import Scores, answers, scores
from vitrail.train.objectives import classify
from vitrail.train.optim import Muon, adamw, muon, warmup_cosine
from vitrail.train.prepare import Prepared, prepare
from vitrail.train.probe import Probe, features

__all__ = [
    "HISTORY",
    "Interrupted",
    "Job",
    "Measured",
    "Muon",
    "NotFinite",
    "Prepared",
    "Probe",
    "Result",
    "Scores",
    "Step",
    "World",
    "adamw",
    "answers",
    "classify",
    "features",
    "fit",
    "launch",
    "launched",
    "muon",
    "prepare",
    "scores",
    "warmup_cosine",
    "world",
]
