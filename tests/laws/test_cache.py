"""Decoding step by step: a cache goes by where a part stands, and can be reordered and taken back."""

import pytest
import torch
from drawing import numbers

from vitrail.core import CAUSAL, Attention, Block, Cache, FeedForward, LayerNorm, Stack, Sublayer, positions
from vitrail.errors import InputError

B, N, W, HEADS = 3, 7, 12, 2


def sublayer(f):
    return Sublayer(f, LayerNorm(W), W)


def block(*, cross=False):
    context = sublayer(Attention(W, HEADS)) if cross else None
    return Block(sublayer(Attention(W, HEADS)), sublayer(FeedForward(W, 17)), context)


def stepwise(stack, x, cache, **context):
    return torch.cat([stack(step, CAUSAL, cache=cache, **context) for step in x.split(1, dim=1)], dim=1)


@torch.no_grad()
def test_layers_that_share_weights_have_keys_of_their_own():
    """The same block three times, as ALBERT has it: cached steps == the full forward."""
    one = block().double()
    stack, x = Stack([one, one, one]), numbers(B, N, W)
    cache = Cache()
    torch.testing.assert_close(stepwise(stack, x, cache), stack(x, CAUSAL))
    assert cache.length == N


@torch.no_grad()
def test_beams_are_reordered_and_ended_ones_leave():
    """After select(rows) the steps that follow are those of a batch that always was these rows."""
    stack = Stack([block(cross=True) for _ in range(2)]).double()
    x, context = numbers(B, N, W), numbers(B, 5, W, seed=1)
    rows = torch.tensor([2, 0, 2, 1])
    cache = Cache()
    stepwise(stack, x[:, :3], cache, context=context)
    cache.select(rows)
    tail = numbers(len(rows), N - 3, W, seed=2)
    after = stepwise(stack, tail, cache, context=torch.full_like(context[rows], torch.nan))
    whole = stack(torch.cat([x[rows, :3], tail], dim=1), CAUSAL, context=context[rows])
    torch.testing.assert_close(after, whole[:, 3:])
    cache.select(torch.tensor([1]))
    further = stack(tail[:1, :1], CAUSAL, cache=cache, context=context[:1])
    whole = stack(torch.cat([x[:1, :3], tail[1:2], tail[:1, :1]], dim=1), CAUSAL, context=context[:1])
    torch.testing.assert_close(further, whole[:, -1:])


@torch.no_grad()
@pytest.mark.parametrize("cross", [False, True])
def test_some_rows_are_those_of_the_whole(cross):
    """Stack.rows(x, rows) == Stack(x)[:, rows], also where the last block attends to a context."""
    stack, x = Stack([block(), block()]).double(), numbers(B, N, W)
    if cross:
        stack.append(Block(None, sublayer(FeedForward(W, 5)), None).double())
    torch.testing.assert_close(stack.rows(x, slice(2, 4)), stack(x)[:, 2:4])
    assert not block(cross=True).alone(slice(2, 4))


@torch.no_grad()
def test_steps_can_be_taken_back():
    stack, x = Stack([block() for _ in range(2)]).double(), numbers(B, N, W)
    cache = Cache()
    stepwise(stack, numbers(B, 4, W, seed=3), cache)
    cache.rewind(4)
    stepwise(stack, x[:, :5], cache)
    cache.rewind(2)
    assert cache.length == 3
    torch.testing.assert_close(stepwise(stack, x[:, 3:], cache), stack(x, CAUSAL)[:, 3:])
    with pytest.raises(InputError, match="steps=8 cannot be taken back; 7 were taken"):
        cache.rewind(8)


@pytest.mark.parametrize("name", ["none", "learned", "sinusoidal"])
@pytest.mark.parametrize("cuts", [[7], [1, 3, 3], [1] * 7])
def test_positions_of_steps_are_those_of_the_whole(name, cuts):
    position = positions[name]((1, N), W, HEADS).double()
    x, done, parts = numbers(B, N, W), 0, []
    for part in x.split(cuts, dim=1):
        parts.append(position.sequence(part, offset=done))
        done += part.shape[1]
    assert torch.equal(torch.cat(parts, dim=1), position.sequence(x))
    if name != "none":
        assert torch.equal(position.sequence(x), x + position.table((1, N)))


def test_positions_that_have_an_end_say_so_and_waves_have_none():
    x = torch.zeros(1, 2, W)
    with pytest.raises(InputError, match="8 tokens are more than the 7 that have a learned position"):
        positions["learned"]((1, N), W, HEADS).sequence(x, offset=6)
    waves = positions["sinusoidal"]
    further = waves((1, N), W, HEADS).sequence(x, offset=100)
    torch.testing.assert_close(further, waves((1, 102), W, HEADS).sequence(x, offset=100))
    for name in ("learned2d", "sincos2d", "relative"):
        with pytest.raises(InputError, match="for the patches of pictures"):
            positions[name]((1, N), W, HEADS).sequence(x)
