"""The same weights in HF transformers' ViT give the same numbers, and the same attention."""

import pytest
import torch
from copying import copy_feed_forward, copy_linear, copy_norm, copy_qkv, copy_tokens, randomise
from drawing import numbers
from transformers import ViTConfig, ViTForImageClassification

import vitrail as vt

SHAPE = {"patch": 4, "width": 24, "depth": 3, "heads": 3, "hidden": 29, "classes": 7}
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=20,
        patch_size=4,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=29,
        num_labels=7,
        attn_implementation="eager",
    )
    theirs = randomise(ViTForImageClassification(config))
    ours = vt.build("vit", image=20, eps=config.layer_norm_eps, **SHAPE)
    embeddings = theirs.vit.embeddings
    projection = embeddings.patch_embeddings.projection
    copy_tokens(ours, embeddings.cls_token, embeddings.position_embeddings, projection.weight, projection.bias)
    for block, layer in zip(ours.encoder, theirs.vit.layers, strict=True):
        qkv = (layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj)
        copy_qkv(block.attention.f, *((part.weight, part.bias) for part in qkv))
        copy_linear(block.attention.f.out, layer.attention.o_proj.weight, layer.attention.o_proj.bias)
        copy_feed_forward(block.feed_forward.f, layer.mlp.fc1, layer.mlp.fc2)
        copy_norm(block.attention.norm, layer.layernorm_before)
        copy_norm(block.feed_forward.norm, layer.layernorm_after)
    copy_norm(ours.norm, theirs.vit.layernorm)
    copy_linear(ours.head.logits, theirs.classifier.weight, theirs.classifier.bias)
    return ours.eval(), theirs


@torch.no_grad()
def test_logits_and_features(pair):
    ours, theirs = pair
    images = numbers(2, 3, 20, 20, dtype=torch.float32)
    expected = theirs(images)
    torch.testing.assert_close(ours(images), expected.logits, **CLOSE)
    torch.testing.assert_close(ours.features(images), theirs.vit(images).last_hidden_state, **CLOSE)


@torch.no_grad()
def test_the_attention_of_every_layer(pair):
    ours, theirs = pair
    images = numbers(2, 3, 20, 20, dtype=torch.float32)
    expected = theirs(images, output_attentions=True).attentions
    with vt.record(ours) as trace:
        ours(images)
    assert len(expected) == len(trace.names()) == 3
    for name, attention in zip(trace.names(), expected, strict=True):
        torch.testing.assert_close(trace.pattern(name), attention, **CLOSE)


@torch.no_grad()
def test_the_residual_stream(pair):
    """The stream after each block is what each of their layers returns."""
    ours, theirs = pair
    images = numbers(2, 3, 20, 20, dtype=torch.float32)
    expected = []
    handles = [layer.register_forward_hook(lambda _m, _a, out: expected.append(out)) for layer in theirs.vit.layers]
    theirs(images)
    for handle in handles:
        handle.remove()
    with vt.record(ours) as trace:
        ours(images)
    torch.testing.assert_close(trace.residual()[2::2], torch.stack(expected), **CLOSE)
