"""Patterns in few bytes are what they were, as far as is said."""

from base64 import b64decode

import numpy as np
import pytest
import torch
from copying import randomise
from drawing import numbers

import vitrail as vt
from vitrail.lens import Tokens
from vitrail.lens.packing import pack

SHAPE = {"image": (24, 32), "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 29, "classes": 7}


def recorded(sharp=1.0, **fields):
    model = randomise(vt.build("vit", **{**SHAPE, **fields})).eval()
    with torch.no_grad():
        for block in model.encoder:
            block.attention.f.query.weight.mul_(sharp)
    images = numbers(2, 3, 24, 32, dtype=torch.float32)
    with torch.no_grad(), vt.record(model) as trace:
        model(images)
    return trace, Tokens.of(model, trace, images)


def block(packed, name, kind):
    return np.frombuffer(b64decode(packed.blocks[name]), kind)


def whole(stored, rank):
    """Bytes, then halves of bytes."""
    fine = 2 * stored.shape[-1] - rank
    pairs = stored[:, fine:]
    halves = np.stack([pairs & 15, pairs >> 4], -1).reshape(len(stored), -1).astype(float) - 8
    return np.concatenate([stored[:, :fine].view("i1").astype(float), halves], 1)


def unpacked(packed, layers, heads, n):
    """What a reader makes of it, (l h n n) or of the queries that were kept."""
    if packed.kind == "rows":
        bits, queries = packed.about["bits"], packed.about["queries"]
        fractions = block(packed, "fractions", {32: "<f4", 16: "<u2", 8: "u1"}[bits]).reshape(
            layers, heads, len(queries), n
        )
        if bits == 32:
            return fractions
        return fractions * (block(packed, "tops", "<f4").reshape(layers, heads, len(queries), 1) / (2**bits - 1))
    sizes, found = packed.about["sizes"], []
    for way, slot in packed.about["slots"]:
        if way == "largest":
            count = sizes["largest-index"]
            index = block(packed, "largest-index", "<u2").reshape(-1, n, count)[slot].astype(int)
            share = block(packed, "largest-fraction", "u1").reshape(-1, n, count)[slot]
            top = block(packed, "largest-top", "<f4").reshape(-1, n, 2)[slot]
            a = np.repeat(top[:, 1:], n, 1)
            np.put_along_axis(a, index, share * top[:, :1] / 255, 1)
            found.append(a)
            continue
        rank, size = sizes[f"{way}-steps"], sizes[f"{way}-q"]
        q, k = (whole(block(packed, f"{way}-{name}", "u1").reshape(-1, n, size)[slot], rank) for name in "qk")
        scores = q * block(packed, f"{way}-steps", "<f4").reshape(-1, rank)[slot] @ k.T
        powers = np.exp(scores - scores.max(1, keepdims=True))
        found.append(powers / powers.sum(1, keepdims=True))
    return np.stack(found).reshape(layers, heads, n, n)


@pytest.mark.parametrize("sharp", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("bytes_of_a_weight", [4, 2, 1, 0.6])
@pytest.mark.parametrize("picture", [0, 1])
def test_what_is_lost_is_what_is_said(sharp, bytes_of_a_weight, picture):
    trace, tokens = recorded(sharp)
    n = tokens.count
    packed = pack(trace.model, trace, tokens, picture, budget=int(bytes_of_a_weight * 6 * n * n))
    true = np.stack([trace.pattern(layer)[picture].numpy() for layer in range(2)])
    shown = unpacked(packed, 2, 3, n)
    lost = np.abs(shown - true).sum(-1) / 2
    assert packed.kind == ("few" if bytes_of_a_weight < 1 else "rows")
    assert packed.error == pytest.approx((lost.mean(), lost.max()), abs=2e-5)
    assert lost.mean() < (0.05 if bytes_of_a_weight < 1 else 0.01)
    assert sum(len(b64decode(text)) for text in packed.blocks.values()) <= 1.2 * bytes_of_a_weight * 6 * n * n


def test_heads_that_look_everywhere_and_heads_that_look_at_one_are_kept_differently():
    kinds = {}
    for sharp in (0.1, 100.0):
        trace, tokens = recorded(sharp)
        packed = pack(trace.model, trace, tokens, budget=int(0.6 * 6 * tokens.count**2))
        kinds[sharp] = {way for way, _ in packed.about["slots"]}
        assert packed.error[0] < 0.02
    assert kinds[0.1] <= {"bytes", "halves"}
    assert "largest" in kinds[100.0]


def test_more_directions_than_bytes():
    """Heads wider than there is room for, whose directions all matter, are kept in halves of bytes, and truer so."""
    trace, tokens = recorded(0.5, width=48, head=32)
    packed = pack(trace.model, trace, tokens, budget=40 * 6 * tokens.count)
    assert packed.kind == "few"
    assert "halves" in {way for way, _ in packed.about["slots"]}
    true = np.stack([trace.pattern(layer)[0].numpy() for layer in range(2)])
    lost = np.abs(unpacked(packed, 2, 3, tokens.count) - true).sum(-1) / 2
    assert packed.error == pytest.approx((lost.mean(), lost.max()), abs=2e-5)


@pytest.mark.parametrize("fields", [{}, {"kernel": "relu"}, {"position": "relative"}, {"pool": "mean"}], ids=str)
def test_with_little_room_fewer_queries_are_kept(fields):
    trace, tokens = recorded(**fields)
    packed = pack(trace.model, trace, tokens, budget=15 * 6 * tokens.count)
    queries = packed.about["queries"]
    assert packed.kind == "rows"
    assert len(queries) <= 15
    assert queries[: len(tokens.prefix)] == list(range(len(tokens.prefix)))
    assert len(queries) > len(tokens.prefix) + 4
    true = np.stack([trace.pattern(layer, rows=queries)[0].numpy() for layer in range(2)])
    np.testing.assert_allclose(unpacked(packed, 2, 3, tokens.count), true, atol=1 / 255)
