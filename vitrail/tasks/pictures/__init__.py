"""Labelling pictures: which class each belongs to."""
