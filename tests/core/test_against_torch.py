"""The same weights in PyTorch's own modules give the same numbers."""

import pytest
import torch
from copying import copy_feed_forward, copy_multihead, copy_norm
from drawing import numbers
from torch import nn

from vitrail.core import CAUSAL, Attention, Block, FeedForward, LayerNorm, Mask, Stack, Sublayer

B, N, M, WIDTH, HEADS, HIDDEN = 2, 7, 5, 33, 3, 41
CLOSE = {"rtol": 0, "atol": 1e-5}


def random_biases(module):
    """PyTorch starts some biases at 0, where a mistake with them would not show."""
    for name, parameter in module.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return module


def block(order, activation, *, cross=False):
    def sublayer(f):
        return Sublayer(f, LayerNorm(WIDTH, eps=1e-5), WIDTH, order=order)

    attention, feed_forward = Attention(WIDTH, HEADS), FeedForward(WIDTH, HIDDEN, activation)
    return Block(sublayer(attention), sublayer(feed_forward), sublayer(Attention(WIDTH, HEADS)) if cross else None)


def copy_block(ours, theirs):
    copy_multihead(ours.attention.f, theirs.self_attn)
    norms = [theirs.norm1, theirs.norm2]
    sublayers = [ours.attention, ours.feed_forward]
    if ours.cross is not None:
        copy_multihead(ours.cross.f, theirs.multihead_attn)
        norms, sublayers = [*norms, theirs.norm3], [ours.attention, ours.cross, ours.feed_forward]
    for sublayer, norm in zip(sublayers, norms, strict=True):
        copy_norm(sublayer.norm, norm)
    copy_feed_forward(ours.feed_forward.f, theirs.linear1, theirs.linear2)


@pytest.mark.parametrize("masked", ["none", "causal", "padding", "both", "bias"])
def test_multihead_self_attention(masked):
    theirs = random_biases(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)).eval()
    ours = Attention(WIDTH, HEADS)
    copy_multihead(ours, theirs)
    x = numbers(B, N, WIDTH, dtype=torch.float32)
    present = torch.arange(N) < torch.tensor([[N], [4]])
    later = torch.ones(N, N, dtype=torch.bool).triu(1)
    bias = numbers(N, N, dtype=torch.float32)
    mask, their_mask = {
        "none": (Mask(), {}),
        "causal": (CAUSAL, {"attn_mask": later}),
        "padding": (Mask(present=present), {"key_padding_mask": ~present}),
        "both": (CAUSAL & Mask(present=present), {"attn_mask": later, "key_padding_mask": ~present}),
        "bias": (Mask(bias=bias), {"attn_mask": bias}),
    }[masked]
    expected, weights = theirs(x, x, x, average_attn_weights=False, **their_mask)
    torch.testing.assert_close(ours(x, mask), expected, **CLOSE)
    q = ours.query(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    torch.testing.assert_close(ours.kernel.pattern(q, ours.keys_values(x)[0], mask), weights, **CLOSE)


def test_multihead_cross_attention():
    theirs = random_biases(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)).eval()
    ours = Attention(WIDTH, HEADS)
    copy_multihead(ours, theirs)
    x, context = numbers(B, N, WIDTH, dtype=torch.float32), numbers(B, M, WIDTH, seed=1, dtype=torch.float32)
    torch.testing.assert_close(ours(x, context=context), theirs(x, context, context)[0], **CLOSE)


def test_cross_attention_to_a_context_of_another_width():
    theirs = nn.MultiheadAttention(WIDTH, HEADS, kdim=11, vdim=11, batch_first=True).eval()
    ours = Attention(WIDTH, HEADS, context=11)
    with torch.no_grad():
        ours.query.weight.copy_(theirs.q_proj_weight)
        ours.key_value.weight.copy_(torch.cat([theirs.k_proj_weight, theirs.v_proj_weight]))
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    x, context = numbers(B, N, WIDTH, dtype=torch.float32), numbers(B, M, 11, seed=1, dtype=torch.float32)
    torch.testing.assert_close(ours(x, context=context), theirs(x, context, context)[0], **CLOSE)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(order, activation):
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=order == "pre"
    )
    random_biases(theirs)
    ours = block(order, activation)
    copy_block(ours, theirs)
    x = numbers(B, N, WIDTH, dtype=torch.float32)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer(order, activation):
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, norm_first=order == "pre"
    )
    random_biases(theirs)
    ours = block(order, activation, cross=True)
    copy_block(ours, theirs)
    x, context = numbers(B, N, WIDTH, dtype=torch.float32), numbers(B, M, WIDTH, seed=1, dtype=torch.float32)
    present = torch.arange(M) < torch.tensor([[M], [2]])
    expected = theirs(x, context, tgt_mask=torch.ones(N, N, dtype=torch.bool).triu(1), memory_key_padding_mask=~present)
    actual = ours(x, CAUSAL, context=context, context_mask=Mask(present=present))
    torch.testing.assert_close(actual, expected, **CLOSE)


def test_gradients_are_those_of_the_encoder_layer():
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=True)
    ours = block("pre", "relu")
    copy_block(ours, theirs)
    x, y = (numbers(B, N, WIDTH, dtype=torch.float32).requires_grad_() for _ in range(2))
    ours(x).square().sum().backward()
    theirs(y).square().sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
    packed = torch.cat([ours.attention.f.query.weight.grad, ours.attention.f.key_value.weight.grad])
    torch.testing.assert_close(packed, theirs.self_attn.in_proj_weight.grad, rtol=1e-4, atol=1e-3)


def test_stack():
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=True)
    theirs = random_biases(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    ours = Stack(block("pre", "relu") for _ in range(3))
    for mine, yours in zip(ours, theirs.layers, strict=True):
        copy_block(mine, yours)
    x = numbers(B, N, WIDTH, dtype=torch.float32)
    torch.testing.assert_close(ours(x), theirs(x), **CLOSE)
