"""The same weights in timm's, vit-pytorch's and torchvision's ViT give the same numbers."""

import pytest
import timm
import torch
import torchvision
import vit_pytorch
from copying import copy_feed_forward, copy_linear, copy_multihead, copy_norm, copy_qkv, copy_tokens, randomise
from einops import rearrange
from timm.layers import resample_abs_pos_embed
from vit_pytorch.recorder import Recorder

import vitrail as vt
from vitrail.core.positions import Learned

SHAPE = {"image": 20, "patch": 4, "width": 24, "depth": 3, "heads": 3, "hidden": 48, "classes": 7}
CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def images():
    return torch.randn(2, 3, 20, 20)


def from_timm(theirs, **fields):
    ours = vt.build("vit", **{**SHAPE, **fields})
    registers = ours.config.registers
    # Theirs may give a position to registers, which is as good as other registers, or none to the class token.
    prefix = torch.zeros(1, 1 + registers, 24) if theirs.no_embed_class else theirs.pos_embed[:, : 1 + registers]
    patches = theirs.pos_embed if theirs.no_embed_class else theirs.pos_embed[:, 1 + registers :]
    projection = theirs.patch_embed.proj
    copy_tokens(ours, theirs.cls_token, torch.cat([prefix[:, :1], patches], 1), projection.weight, projection.bias)
    if registers:
        ours.embed.registers.copy_((theirs.reg_token + prefix[:, 1:])[0])
    for block, layer in zip(ours.encoder, theirs.blocks, strict=True):
        weights, biases = layer.attn.qkv.weight.chunk(3), layer.attn.qkv.bias.chunk(3)
        copy_qkv(block.attention.f, *zip(weights, biases, strict=True))
        copy_linear(block.attention.f.out, layer.attn.proj.weight, layer.attn.proj.bias)
        copy_feed_forward(block.feed_forward.f, layer.mlp.fc1, layer.mlp.fc2)
        copy_norm(block.attention.norm, layer.norm1)
        copy_norm(block.feed_forward.norm, layer.norm2)
        if ours.config.layer_scale is not None:
            block.attention.scale.copy_(layer.ls1.gamma)
            block.feed_forward.scale.copy_(layer.ls2.gamma)
    copy_norm(ours.norm, theirs.norm)
    copy_linear(ours.head.logits, theirs.head.weight, theirs.head.bias)
    return ours.eval()


def timm_vit(**options):
    shape = {
        "img_size": 20,
        "patch_size": 4,
        "embed_dim": 24,
        "depth": 3,
        "num_heads": 3,
        "mlp_ratio": 2,
        "num_classes": 7,
    }
    return randomise(timm.models.VisionTransformer(**{**shape, **options}))


@torch.no_grad()
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"no_embed_class": True}, {}),
        ({"reg_tokens": 3}, {"registers": 3}),
        ({"reg_tokens": 3, "no_embed_class": True}, {"registers": 3}),
        ({"init_values": 0.1}, {"layer_scale": 0.1}),
    ],
)
def test_timm(images, theirs, ours):
    peer = timm_vit(**theirs)
    model = from_timm(peer, **ours)
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    torch.testing.assert_close(model.features(images), peer.forward_features(images), **CLOSE)


@torch.no_grad()
def test_timm_at_another_size():
    """Positions resampled at call time, square or not, as timm's dynamic image size does."""
    peer = timm_vit(dynamic_img_size=True)
    model = from_timm(peer)
    for size in ((28, 28), (12, 36), (8, 8)):
        other = torch.randn(2, 3, *size)
        torch.testing.assert_close(model(other), peer(other), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("grid", [(7, 7), (3, 11), (14, 4)])
@pytest.mark.parametrize("prefix", [0, 1])
def test_positions_are_resampled_as_in_timm(grid, prefix):
    position = Learned((5, 6), 8, heads=2, prefix=prefix)
    expected = resample_abs_pos_embed(
        position.embedding[None],
        list(grid),
        old_size=[5, 6],
        num_prefix_tokens=prefix,
        interpolation="bicubic",
        antialias=True,
    )
    torch.testing.assert_close(position.table(grid), expected[0], **CLOSE)


@torch.no_grad()
def test_vit_pytorch(images):
    """Which normalises patches before and after projecting them, and whose patches are flattened channels last."""
    peer = vit_pytorch.ViT(
        image_size=20, patch_size=4, num_classes=7, dim=24, depth=3, heads=3, mlp_dim=48, dim_head=8, pool="cls"
    )
    randomise(peer)
    ours = vt.build("vit", **SHAPE, stem="patch-norm", eps=1e-5)
    _, before, projection, after = peer.to_patch_embedding
    channels_last = {"pattern": "... (p q c) -> ... (c p q)", "p": 4, "q": 4}
    copy_tokens(
        ours, peer.cls_token, peer.pos_embedding, rearrange(projection.weight, **channels_last), projection.bias
    )
    with torch.no_grad():
        ours.embed.stem.before.weight.copy_(rearrange(before.weight, **channels_last))
        ours.embed.stem.before.bias.copy_(rearrange(before.bias, **channels_last))
    copy_norm(ours.embed.stem.after, after)
    for block, (attention, feed_forward) in zip(ours.encoder, peer.transformer.layers, strict=True):
        q, k, v = attention.to_qkv.weight.chunk(3)
        copy_qkv(block.attention.f, (q, None), (k, None), (v, None))
        copy_linear(block.attention.f.out, attention.to_out[0].weight, attention.to_out[0].bias)
        copy_feed_forward(block.feed_forward.f, feed_forward.net[1], feed_forward.net[4])
        copy_norm(block.attention.norm, attention.norm)
        copy_norm(block.feed_forward.norm, feed_forward.net[0])
    copy_norm(ours.norm, peer.transformer.norm)
    copy_linear(ours.head.logits, peer.mlp_head.weight, peer.mlp_head.bias)
    ours.eval()
    torch.testing.assert_close(ours(images), peer(images), **CLOSE)

    recorder = Recorder(peer)
    _, attention = recorder(images)
    with vt.record(ours) as trace:
        ours(images)
    patterns = torch.stack([trace.pattern(name) for name in trace.names()], dim=1)
    torch.testing.assert_close(patterns, attention, **CLOSE)


@torch.no_grad()
def test_torchvision(images):
    peer = torchvision.models.VisionTransformer(
        image_size=20, patch_size=4, num_layers=3, num_heads=3, hidden_dim=24, mlp_dim=48, num_classes=7
    )
    randomise(peer)
    ours = vt.build("vit", **SHAPE)
    copy_tokens(ours, peer.class_token, peer.encoder.pos_embedding, peer.conv_proj.weight, peer.conv_proj.bias)
    for block, layer in zip(ours.encoder, peer.encoder.layers, strict=True):
        copy_multihead(block.attention.f, layer.self_attention)
        copy_feed_forward(block.feed_forward.f, layer.mlp[0], layer.mlp[3])
        copy_norm(block.attention.norm, layer.ln_1)
        copy_norm(block.feed_forward.norm, layer.ln_2)
    copy_norm(ours.norm, peer.encoder.ln)
    copy_linear(ours.head.logits, peer.heads.head.weight, peer.heads.head.bias)
    torch.testing.assert_close(ours.eval()(images), peer(images), **CLOSE)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("vit-ti/16", "vit_tiny_patch16_224"),
        ("vit-s/16", "vit_small_patch16_224"),
        ("vit-s/32", "vit_small_patch32_224"),
        ("vit-b/16", "vit_base_patch16_224"),
        ("vit-b/32", "vit_base_patch32_224"),
        ("vit-l/16", "vit_large_patch16_224"),
        ("vit-l/32", "vit_large_patch32_224"),
        ("vit-h/14", "vit_huge_patch14_224"),
    ],
)
def test_presets_have_timm_s_parameters(name, theirs):
    with torch.device("meta"):
        ours, peer = vt.build(name), timm.create_model(theirs, num_classes=1000)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in peer.parameters())
