"""Laws that every kernel keeps, under every mask."""

import numpy as np
import pytest
import torch
from drawing import FULL, masks, numbers, seeds
from hypothesis import given
from hypothesis import strategies as st

from vitrail.core import CAUSAL, Kernel, Mask, kernels
from vitrail.errors import InputError

B, H, QUERIES, J, D, R = 2, 3, 5, 7, 11, 13
every_kernel = pytest.mark.parametrize("name", FULL)


@every_kernel
@given(mask=masks(B, H, QUERIES, J), seed=seeds, rank=st.sampled_from([D, R]))
def test_a_kernel_applies_its_pattern(name, mask, seed, rank):
    """kernel(q, k, v) == pattern(q, k) @ v: fused equals explicit, whatever is hidden, values of any width."""
    kernel = kernels[name]()
    q, k, v = (
        numbers(B, H, QUERIES, D, seed=seed),
        numbers(B, H, J, D, seed=seed + 1),
        numbers(B, H, J, rank, seed=seed + 2),
    )
    torch.testing.assert_close(kernel(q, k, v, mask), kernel.pattern(q, k, mask) @ v)


@every_kernel
@given(mask=masks(B, H, QUERIES, J), seed=seeds)
def test_attending_to_the_identity_gives_the_pattern(name, mask, seed):
    """A = A I, so a kernel that only has a fast way can still be looked at."""
    kernel = kernels[name]()
    q, k = numbers(B, H, QUERIES, D, seed=seed), numbers(B, H, J, D, seed=seed + 1)
    torch.testing.assert_close(Kernel.pattern(kernel, q, k, mask), kernel.pattern(q, k, mask))


@every_kernel
@given(mask=masks(B, H, QUERIES, J), seed=seeds)
def test_hidden_weights_are_exactly_zero(name, mask, seed):
    pattern = kernels[name]().pattern(numbers(B, H, QUERIES, D, seed=seed), numbers(B, H, J, D, seed=seed + 1), mask)
    visible = mask.visible(QUERIES, J, torch.device("cpu"))
    assert pattern.isfinite().all()
    assert (pattern >= 0).all()
    if visible is not None:
        assert (pattern[~visible.expand_as(pattern)] == 0).all()


@given(mask=masks(B, H, QUERIES, J), seed=seeds)
def test_softmax_weights_sum_to_one_or_to_nothing(mask, seed):
    pattern = kernels["softmax"]().pattern(
        numbers(B, H, QUERIES, D, seed=seed), numbers(B, H, J, D, seed=seed + 1), mask
    )
    visible = mask.visible(QUERIES, J, torch.device("cpu"))
    expected = torch.ones(B, H, QUERIES) if visible is None else visible.expand_as(pattern).any(-1)
    torch.testing.assert_close(pattern.sum(-1), expected.double())


@every_kernel
@given(
    mask=masks(B, H, QUERIES, J), seed=seeds, heads=st.sampled_from([[1], [2, 0]]), rows=st.sampled_from([[0], [4, 1]])
)
def test_a_pattern_can_be_had_in_part(name, mask, seed, heads, rows):
    """The pattern of some heads and rows is that part of the whole pattern."""
    kernel = kernels[name]()
    q, k = numbers(B, H, QUERIES, D, seed=seed), numbers(B, H, J, D, seed=seed + 1)
    part = kernel.pattern(q[:, heads][:, :, rows], k[:, heads], mask.at(QUERIES, k, heads=heads, rows=rows))
    torch.testing.assert_close(part, kernel.pattern(q, k, mask)[:, heads][:, :, rows])


@every_kernel
@given(mask=masks(B, H, QUERIES, J), seed=seeds, rows=st.sampled_from([slice(0, 1), slice(2, 5)]))
def test_a_row_can_be_had_alone(name, mask, seed, rows):
    """kernel(q, k, v)[rows] == kernel(q[rows], k, v), the mask being that of those rows."""
    kernel = kernels[name]()
    if not kernel.rowwise:
        pytest.skip("no row of it is ever asked for alone")
    q, k, v = (
        numbers(B, H, QUERIES, D, seed=seed),
        numbers(B, H, J, D, seed=seed + 1),
        numbers(B, H, J, R, seed=seed + 2),
    )
    alone = kernel(q[:, :, rows], k, v, mask.at(QUERIES, k, rows=rows))
    torch.testing.assert_close(alone, kernel(q, k, v, mask)[:, :, rows])


@every_kernel
def test_the_scale_is_one_over_the_root_of_the_width(name):
    q, k, v = (numbers(B, H, J, D, seed=s) for s in range(3))
    torch.testing.assert_close(kernels[name]()(q, k, v), kernels[name](scale=D**-0.5)(q, k, v))


def softmax(scores, seen):
    """e^s over its sum, of what is seen; nothing where nothing is."""
    powers = np.where(seen, np.exp(scores), 0.0)
    total = powers.sum(-1, keepdims=True)
    return np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)


def relu(scores, seen):
    """max(0, s) over the number of keys seen (Wortsman et al. 2023, with L the length of what is seen)."""
    count = np.broadcast_to(seen, scores.shape).sum(-1, keepdims=True)
    return np.where(seen, np.maximum(scores, 0.0), 0.0) / np.maximum(count, 1)


FORMULAS = {"softmax": softmax, "relu": relu}  # from scores and what is seen to weights, in NumPy


def test_every_kernel_has_its_formula():
    assert FORMULAS.keys() == set(FULL)


@every_kernel
@given(mask=masks(B, H, QUERIES, J), seed=seeds, scale=st.sampled_from([None, 0.3]))
def test_a_kernel_is_its_paper_s_formula(name, mask, seed, scale):
    """In NumPy's arithmetic, a query at a time; what is seen is worked out here, from the fields of the mask."""
    q, k, v = (numbers(B, H, n, D, seed=seed + s).numpy() for s, n in enumerate((QUERIES, J, J)))
    expected = np.zeros((B, H, QUERIES, D))
    for b in range(B):
        for h in range(H):
            for i in range(QUERIES):
                place = J - QUERIES + i  # the queries are the last ones
                scores = k[b, h] @ q[b, h, i] * (D**-0.5 if scale is None else scale)
                seen = np.ones(J, bool)
                if mask.causal:
                    seen &= np.arange(J) <= place
                if mask.window is not None:
                    seen &= np.abs(np.arange(J) - place) <= mask.window
                if mask.present is not None:
                    seen &= mask.present[b].numpy()
                if mask.bias is not None:
                    added = mask.bias.expand(B, H, QUERIES, J)[b, h, i].numpy()
                    seen &= ~np.isneginf(added)
                    scores = scores + np.where(seen, added, 0.0)
                expected[b, h, i] = FORMULAS[name](scores, seen) @ v[b, h]
    options = {} if scale is None else {"scale": scale}
    actual = kernels[name](**options)(*(torch.from_numpy(t) for t in (q, k, v)), mask)
    torch.testing.assert_close(actual, torch.from_numpy(expected))


def test_causal_attention_is_handed_over_as_is_causal():
    q = numbers(B, H, J, D)
    assert CAUSAL.fused(q, q) == {"is_causal": True}
    assert Mask().fused(q, q) == {"attn_mask": None}
    assert CAUSAL.fused(q[:, :, :1], q) == {"attn_mask": None}, "one query at the end sees all"


@every_kernel
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_kernels_keep_the_type(name, dtype):
    q = numbers(B, H, J, D).to(dtype)
    bias = Mask(bias=torch.zeros(1, H, J, J)) & CAUSAL
    assert kernels[name]()(q, q, q, bias).dtype == dtype
    assert kernels[name]().pattern(q, q, bias).dtype == dtype


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"present": torch.ones(2, 3)}, "present is torch.float32 of shape (2, 3); it should be bool (b j)"),
        ({"present": torch.ones(3, dtype=torch.bool)}, "present is torch.bool of shape (3,)"),
        ({"bias": torch.ones(3, 3, dtype=torch.bool)}, "bias is torch.bool; it is added to the scores"),
        ({"window": -1}, "window=-1 does not fit"),
    ],
)
def test_a_wrong_mask_gets_a_sentence(fields, says):
    with pytest.raises(InputError) as caught:
        Mask(**fields)
    assert says in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@given(mask=masks(B, H, QUERIES, J), seed=seeds)
def test_with_gradients_half_is_computed_as_float32_on_a_cpu(dtype, mask, seed):
    """Rounded once, at the end, there and back: PyTorch's fused gradients take 25 times as long in half."""
    sizes = ((B, H, QUERIES, D), (B, H, J, D), (B, H, J, D))
    half = [numbers(*size, seed=seed + number).to(dtype).requires_grad_() for number, size in enumerate(sizes)]
    full = [one.detach().float().requires_grad_() for one in half]
    kernel = kernels["softmax"]()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = kernel(*half, mask)
    whole = kernel(*full, mask)
    torch.testing.assert_close(rounded, whole.to(dtype), rtol=0, atol=0)
    ones = torch.ones_like(rounded)
    rounded.backward(ones)
    whole.backward(ones.float())
    for one, other in zip(half, full, strict=True):
        torch.testing.assert_close(one.grad, other.grad.to(dtype), rtol=0, atol=0)
