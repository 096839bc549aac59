"""Weights: our run directories, and the formats of other libraries, both ways."""

from vitrail.weights.load import load, read
from vitrail.weights.save import save
from vitrail.weights.weights import Weights

__all__ = ["Weights", "load", "read", "save"]
