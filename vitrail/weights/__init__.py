"""Weights: our run directories, and the formats of other libraries, both ways."""

from vitrail.weights.reading import STATED, load, read
from vitrail.weights.weights import Weights
from vitrail.weights.writing import save

__all__ = ["STATED", "Weights", "load", "read", "save"]
