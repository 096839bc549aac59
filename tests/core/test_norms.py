"""The formulas and the running statistics of the norms, computed again in plain NumPy."""

import numpy as np
import pytest
import torch
from drawing import numbers
from hypothesis import given
from hypothesis import strategies as st

from vitrail.core import BatchNorm, LayerNorm, norms

B, N, WIDTH, EPS = 3, 5, 7, 1e-3


def normalised(x, axes):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPS)


def made(kind):
    norm = kind(WIDTH, eps=EPS).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    return norm, norm.weight.detach().numpy(), norm.bias.detach().numpy()


@given(seed=st.integers(0, 99), spread=st.sampled_from([0.01, 1.0, 100.0]))
def test_layer_norm_is_over_the_width_of_each_token(seed, spread):
    norm, gain, bias = made(LayerNorm)
    x = numbers(B, N, WIDTH, seed=seed).numpy() * spread + 3
    np.testing.assert_allclose(norm(torch.from_numpy(x)).detach(), normalised(x, (2,)) * gain + bias, rtol=1e-9)


@given(seed=st.integers(0, 99), spread=st.sampled_from([0.01, 1.0, 100.0]))
def test_batch_norm_is_over_all_tokens_of_the_batch(seed, spread):
    norm, gain, bias = made(BatchNorm)
    x = numbers(B, N, WIDTH, seed=seed).numpy() * spread + 3
    np.testing.assert_allclose(norm(torch.from_numpy(x)).detach(), normalised(x, (0, 1)) * gain + bias, rtol=1e-9)


def test_running_statistics():
    """running = 0.9 running + 0.1 batch, the variance unbiased; evaluation uses them and not the batch."""
    norm, gain, bias = made(BatchNorm)
    mean, variance = np.zeros(WIDTH), np.ones(WIDTH)
    for seed in range(4):
        x = numbers(B, N, WIDTH, seed=seed).numpy() * (seed + 1) + seed
        norm(torch.from_numpy(x))
        mean = 0.9 * mean + 0.1 * x.mean((0, 1))
        variance = 0.9 * variance + 0.1 * x.var((0, 1), ddof=1)
    np.testing.assert_allclose(norm.running_mean, mean)
    np.testing.assert_allclose(norm.running_var, variance)
    norm.eval()
    x = numbers(1, 2, WIDTH, seed=9).numpy()
    expected = (x - mean) / np.sqrt(variance + EPS) * gain + bias
    np.testing.assert_allclose(norm(torch.from_numpy(x)).detach(), expected)
    np.testing.assert_allclose(norm.running_mean, mean, err_msg="evaluation leaves the statistics alone")


@pytest.mark.parametrize("kind", sorted(norms))
def test_in_training_only_batch_norm_lets_samples_see_each_other(kind):
    norm = norms[kind](WIDTH).double()
    x = numbers(B, N, WIDTH)
    changed = x.clone()
    changed[1:] += 5
    assert torch.allclose(norm(x)[0], norm(changed)[0]) == (kind == "layer")
