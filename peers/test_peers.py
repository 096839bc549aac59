"""What timm and vit-pytorch do, beside what is done here with the same weights."""

import pytest
import timm
import torch
import vit_pytorch
from copying import randomise
from timm.layers import resample_abs_pos_embed
from vit_pytorch.recorder import Recorder

import vitrail as vt
from vitrail.core.positions import Learned

CLOSE = {"rtol": 0, "atol": 1e-5}


def loaded(peer, path):
    torch.save(peer.state_dict(), path)
    return vt.load(path, heads=3)


@torch.no_grad()
def test_timm_at_another_size(tmp_path):
    """Positions resampled at call time, square or not, as timm's dynamic image size does."""
    shape = {"img_size": 20, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 7}
    peer = randomise(timm.models.VisionTransformer(**shape, dynamic_img_size=True))
    model = loaded(peer, tmp_path / "m.pt")
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
def test_patterns_are_those_of_vit_pytorch_s_recorder(tmp_path):
    shape = {"image_size": 20, "patch_size": 4, "num_classes": 7, "dim": 24, "depth": 3, "heads": 3, "mlp_dim": 48}
    peer, images = randomise(vit_pytorch.ViT(**shape, dim_head=8)), torch.randn(2, 3, 20, 20)
    model = loaded(peer, tmp_path / "m.pt")
    _, attention = Recorder(peer)(images)
    with vt.record(model) as trace:
        model(images)
    patterns = torch.stack([trace.pattern(name) for name in trace.names()], dim=1)
    torch.testing.assert_close(patterns, attention, **CLOSE)


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
