"""What the laws are tried on: sizes that are distinct primes, so that swapped axes cannot pass, and every mask."""

import torch
from hypothesis import strategies as st

from vitrail.core import CAUSAL, NONE, Mask

seeds = st.integers(0, 2**16)

FULL = ("relu", "softmax")  # kernels that weigh all pairs; laws/test_efficient.py has the others


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@st.composite
def masks(draw, b, h, i, j):
    """Any mask for b samples, h heads, i queries and j keys, those that leave a query nothing to see included."""
    seed = draw(seeds)
    generator = torch.Generator().manual_seed(seed)
    present = torch.rand(b, j, generator=generator) < 0.6
    bias = torch.randn(1, h, i, j, generator=generator, dtype=torch.float64)
    hidden = torch.rand(1, 1, i, j, generator=generator) < 0.4
    parts = [
        CAUSAL,
        Mask(window=2),
        Mask(present=present),
        Mask(bias=bias),
        Mask(bias=torch.where(hidden, -torch.inf, 0.0)),
    ]
    mask = NONE
    for part in draw(st.lists(st.sampled_from(parts), max_size=3)):
        mask = mask & part
    return mask
