"""The Vision Transformer, its hybrids and its visual tokens."""
