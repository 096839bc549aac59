"""The formats of convolutional networks."""

from vitrail.weights.formats.cnn import resnet  # noqa: F401  # adds itself
