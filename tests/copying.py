"""Weights copied from other libraries' modules into ours, by name."""

import torch
from torch import nn

from vitrail.core import Attention


def copy_linear(ours: nn.Linear, weight, bias=None):
    with torch.no_grad():
        ours.weight.copy_(weight)
        if bias is not None:
            ours.bias.copy_(bias)
        elif ours.bias is not None:
            ours.bias.zero_()


def copy_norm(ours: nn.Module, theirs: nn.Module):
    ours.load_state_dict(theirs.state_dict())


def copy_qkv(ours: Attention, q, k, v):
    """Each a pair of weight and bias."""
    copy_linear(ours.query, *q)
    biases = None if k[1] is None else torch.cat([k[1], v[1]])
    copy_linear(ours.key_value, torch.cat([k[0], v[0]]), biases)


def copy_multihead(ours: Attention, theirs: nn.MultiheadAttention):
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    copy_qkv(ours, *zip(weights, biases, strict=True))
    copy_linear(ours.out, theirs.out_proj.weight, theirs.out_proj.bias)


def copy_feed_forward(ours: nn.Module, first: nn.Linear, second: nn.Linear):
    copy_linear(ours.inner, first.weight, first.bias)
    copy_linear(ours.out, second.weight, second.bias)


def copy_tokens(ours: nn.Module, class_token, positions, projection, bias):
    with torch.no_grad():
        ours.embed.class_token.copy_(class_token.flatten())
        ours.embed.position.embedding.copy_(positions.flatten(0, -2))
    copy_linear(ours.embed.stem.projection, projection.flatten(1), bias)


def randomise(theirs: nn.Module):
    """Many parameters start at 0 or 1, where a mistake with them would not show."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return theirs.eval()
