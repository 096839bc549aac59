"""Weights on disk."""

from vitrail.weights.run import load, save

__all__ = ["load", "save"]
