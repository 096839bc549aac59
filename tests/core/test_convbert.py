"""The mixed block with the weights of HF's ConvBERT gives what ConvBERT gives."""

import pytest
import torch
from copying import copy_linear, copy_qkv, randomise
from transformers import ConvBertConfig, ConvBertModel

from vitrail.core.span import MixedAttention, Span


@pytest.mark.parametrize("size", [3, 9])
def test_against_hf(size):
    config = ConvBertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=6,
        intermediate_size=40,
        head_ratio=2,
        conv_kernel_size=size,
        embedding_size=24,
    )
    torch.manual_seed(0)
    theirs = randomise(ConvBertModel(config)).encoder.layer[0].attention
    inner, out = theirs.self, theirs.output.dense
    ours = MixedAttention(24, 3, Span(size)).eval()
    pairs = [(part.weight, part.bias) for part in (inner.query, inner.key, inner.value)]
    copy_qkv(ours, *pairs)
    copy_linear(ours.out, out.weight, out.bias)
    convolution = inner.key_conv_attn_layer
    with torch.no_grad():
        ours.depthwise.weight.copy_(convolution.depthwise.weight)
        ours.pointwise.weight.copy_(convolution.pointwise.weight[:, :, 0])
        ours.pointwise.bias.copy_(convolution.bias[:, 0])
    copy_linear(ours.filters, inner.conv_kernel_layer.weight, inner.conv_kernel_layer.bias)
    copy_linear(ours.inner, inner.conv_out_layer.weight, inner.conv_out_layer.bias)
    x = torch.randn(2, 11, 24)
    with torch.no_grad():
        expected = out(inner(x)[0])
        torch.testing.assert_close(ours(x), expected, rtol=0, atol=1e-5)
