"""Local attention beside local-attention, and hashing beside reformer-pytorch with the same hashes."""

import pytest
import torch

from vitrail.core import CAUSAL, NONE, kernels

local_attention = pytest.importorskip("local_attention")
reformer = pytest.importorskip("reformer_pytorch.reformer_pytorch")


def drawn(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, n, 8, generator=generator) for _ in range(3)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n", [32, 64])
def test_local(causal, n):
    window = 8
    theirs = local_attention.LocalAttention(
        window_size=window,
        look_backward=1,
        look_forward=0 if causal else 1,
        causal=causal,
        exact_windowsize=True,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    q, k, v = drawn(n)
    ours = kernels.make({"name": "local", "window": window})
    expected = theirs(*(x.flatten(0, 1) for x in (q, k, v))).view_as(v)
    torch.testing.assert_close(ours(q, k, v, CAUSAL if causal else NONE), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rounds", [1, 3])
def test_hashing(monkeypatch, rounds, causal):
    """With the same hashes: keys of length 1, a token's own score last, a pair that meets twice counted once."""
    n, size = 64, 8
    q, _, v = (x.double() for x in drawn(n))  # a float has too few digits for their own score of -50,000
    ours = kernels.make({"name": "hashing", "rounds": rounds, "chunk": size, "buckets": n // size})
    theirs = reformer.LSHAttention(
        bucket_size=size,
        n_hashes=rounds,
        causal=causal,
        allow_duplicate_attention=False,
        attend_across_buckets=False,
    ).eval()
    offsets = n // size * torch.arange(rounds)[:, None]  # rounds do not share buckets, there
    buckets = (ours.hashes(q).long() + offsets).flatten(0, 1).flatten(1)
    monkeypatch.setattr(theirs, "hash_vectors", lambda *_, **__: buckets)
    expected = theirs(q.flatten(0, 1), v.flatten(0, 1))[0].view_as(v)
    torch.testing.assert_close(ours(q, q, v, CAUSAL if causal else NONE), expected, rtol=0, atol=1e-4)
