"""A Gaussian for each class: the generative classifier that others are compared with."""
