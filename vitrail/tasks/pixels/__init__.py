"""Pixels: pictures as sequences of colours, what comes next in them, or what is hidden."""
