"""Convolutions instead of attention: what a ViT is compared with."""
