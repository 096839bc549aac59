"""Logistic regression on the pixels: the plainest classifier that learns what to tell apart."""
