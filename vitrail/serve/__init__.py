"""A trained model, answering."""

from vitrail.serve.predictor import Predictor

__all__ = ["Predictor"]
