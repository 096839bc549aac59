"""Laws of attention: what may influence what."""

import pytest
import torch
from drawing import FULL, numbers, seeds
from hypothesis import given
from hypothesis import strategies as st

from vitrail.core import CAUSAL, NONE, Attention, BareAttention, Cache, Mask, kernels

B, N, M, WIDTH, HEADS = 2, 7, 5, 15, 3
every_kernel = pytest.mark.parametrize("name", FULL)


def attention(name="softmax", **widths):
    torch.manual_seed(1)
    made = Attention(WIDTH, HEADS, kernels[name](), **widths).double()
    torch.nn.init.normal_(made.out.bias)
    return made


@every_kernel
@given(seed=seeds, at=st.integers(1, N - 1))
def test_a_later_token_never_moves_an_earlier_output(name, seed, at):
    f, x = attention(name), numbers(B, N, WIDTH, seed=seed)
    changed = x.clone()
    changed[:, at:] += 10
    before, after = f(x, CAUSAL), f(changed, CAUSAL)
    torch.testing.assert_close(before[:, :at], after[:, :at], rtol=0, atol=0)
    assert (before[:, at:] - after[:, at:]).abs().max() > 1e-3


@every_kernel
@given(seed=seeds, length=st.integers(1, N - 1))
def test_the_content_of_padding_never_matters(name, seed, length):
    f, x = attention(name), numbers(B, N, WIDTH, seed=seed)
    mask = Mask(present=(torch.arange(N) < length).expand(B, N))
    changed = x.clone()
    changed[:, length:] = 1e3
    torch.testing.assert_close(f(x, mask)[:, :length], f(changed, mask)[:, :length], rtol=0, atol=0)
    torch.testing.assert_close(f(x, mask)[:, :length], f(x[:, :length]))


@every_kernel
@given(seed=seeds, steps=st.lists(st.integers(1, 3), min_size=2, max_size=4))
def test_cached_decoding_is_the_full_forward(name, seed, steps):
    f, x = attention(name), numbers(B, sum(steps), WIDTH, seed=seed)
    cache = Cache()
    stepwise = torch.cat([f(part, CAUSAL, cache=cache) for part in x.split(steps, dim=1)], dim=1)
    torch.testing.assert_close(stepwise, f(x, CAUSAL))


@every_kernel
@given(seed=seeds)
def test_a_cached_context_is_read_once(name, seed):
    f, context = attention(name, context=WIDTH), numbers(B, M, WIDTH, seed=seed)
    x, cache = numbers(B, N, WIDTH, seed=seed + 1), Cache()
    f(x[:, :1], context=context, cache=cache)
    rest = f(x[:, 1:], context=torch.full_like(context, torch.nan), cache=cache)
    torch.testing.assert_close(rest, f(x, context=context)[:, 1:])


@every_kernel
@pytest.mark.parametrize("rank", [None, 2])
def test_heads_and_bias_are_the_output(name, rank):
    """Concat(z_h) W_O + b == sum_h z_h W_O,h + b."""
    f, x = attention(name, rank=rank), numbers(B, N, WIDTH)
    seen = {}
    f.kernel.register_forward_hook(lambda _m, _a, z: seen.update(z=z))
    out = f(x)
    torch.testing.assert_close(f.contributions(seen["z"]).sum(1) + f.out.bias, out)
    torch.testing.assert_close(f.contributions(seen["z"][:, [2]], [2])[:, 0], f.contributions(seen["z"])[:, 2])


@pytest.mark.parametrize("rank", [1, 2, None])
def test_a_value_map_is_up_times_down(rank):
    """A head moves x_j by A_ij x_j W_V,h W_O,h, a map of the whole stream whose rank is that of the head's values."""
    f, x = attention(rank=rank), numbers(B, N, WIDTH)
    torch.nn.init.normal_(f.key_value.bias)
    seen = {}
    f.kernel.register_forward_hook(lambda _m, args, _z: seen.update(q=args[0], k=args[1]))
    out = f(x)
    pattern = f.kernel.pattern(seen["q"], seen["k"])
    moved = torch.einsum("bhij,bjw,hwu->biu", pattern, x, f.value_maps())
    constant = f.key_value.bias[f.widths[0] :] @ f.out.weight.T + f.out.bias
    torch.testing.assert_close(moved + constant, out)
    assert torch.linalg.matrix_rank(f.value_maps()).tolist() == [rank or WIDTH // HEADS] * HEADS


def test_attention_without_parameters_is_the_formula():
    """softmax(X X^T) X, and not a parameter."""
    x = numbers(B, N, WIDTH)
    f = BareAttention()
    torch.testing.assert_close(f(x), (x @ x.mT).softmax(-1) @ x)
    assert not list(f.parameters())


def test_masks_combine():
    """& hides what either hides."""
    present = torch.tensor([[True, False, True, True, True]])
    both = (CAUSAL & Mask(window=1) & Mask(present=present)).visible(5, 5, torch.device("cpu"))[0, 0]
    expected = torch.tensor(
        [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 1, 1]], dtype=torch.bool
    )
    assert torch.equal(both, expected)
    assert (NONE & NONE).trivial
