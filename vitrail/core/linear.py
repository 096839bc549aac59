"""The linear map every part is made of, with one initialisation."""

import torch
from torch import nn


def linear(inputs: int, *outputs: int, bias: bool = True) -> nn.Linear:
    """X W^T + b, W Xavier-uniform (Glorot and Bengio 2010), b = 0; several outputs are maps that share one product."""
    layer = nn.Linear(inputs, sum(outputs), bias=bias)
    with torch.no_grad():
        for weight in layer.weight.split(outputs):
            nn.init.xavier_uniform_(weight)
        if bias:
            layer.bias.zero_()
    return layer
