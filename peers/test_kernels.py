"""Local attention beside local-attention, and hashing beside reformer-pytorch with the same hashes."""

import pytest
import torch
import torch.nn.functional as F

from vitrail.core import CAUSAL, NONE, Mask, kernels

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


def test_hashing(monkeypatch):
    """One round, whose hashes and scores are theirs: keys of length 1, a token's own score last, chunks of a bucket."""
    n, size = 32, 8
    q, _, v = drawn(n)
    ours = kernels.make({"name": "hashing", "rounds": 1, "chunk": size, "buckets": n // size})
    theirs = reformer.LSHAttention(bucket_size=size, n_hashes=1, attn_across_buckets=False, dropout=0.0).eval()
    buckets = ours.hashes(q)[:, :, 0].flatten(0, 1)
    monkeypatch.setattr(theirs, "hash_vectors", lambda *_: buckets)
    expected = theirs(q.flatten(0, 1), v.flatten(0, 1))[0].view_as(v)
    first = torch.ones(2, n, dtype=torch.bool)
    found = ours(q, F.normalize(q, dim=-1), v, Mask(present=first))
    sorted_first = buckets.view(2, 3, n).argsort(-1, stable=True)[..., :size]  # whose chunk before is the last, there
    rest = torch.ones(2, 3, n, dtype=torch.bool).scatter(-1, sorted_first, value=False)
    torch.testing.assert_close(found[rest], expected[rest], rtol=0, atol=1e-4)
