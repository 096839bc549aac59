"""Turning sentences into others: translation, and whatever else goes in and comes out as lines of text."""
