"""Continuing a text: the decoder alone."""
