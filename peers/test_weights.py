"""Files written by timm, torchvision and vit-pytorch, read here; and files written here, read by them."""

import json
from functools import partial

import pytest
import timm
import torch
import torchvision
import vit_pytorch
from copying import randomise
from safetensors.torch import load_file, save_file
from timm.layers import resample_abs_pos_embed, resample_patch_embed

import vitrail as vt
from vitrail.families.vit.adapt import resize_patches

CLOSE = {"rtol": 0, "atol": 1e-5}
SHAPE = {"image": 20, "patch": 4, "width": 24, "depth": 3, "heads": 3, "hidden": 48, "classes": 7}
TIMM = {"img_size": 20, "patch_size": 4, "embed_dim": 24, "depth": 3, "num_heads": 3, "mlp_ratio": 2, "num_classes": 7}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def images():
    return torch.randn(2, 3, 20, 20)


@torch.no_grad()
@pytest.mark.parametrize("ending", ["safetensors", "pt"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"no_embed_class": True},
        {"reg_tokens": 3},
        {"reg_tokens": 4, "no_embed_class": True},
        {"init_values": 0.1},
        {"qkv_bias": False},
        {"global_pool": "avg"},
        {"global_pool": "avg", "fc_norm": False, "class_token": False},
        {"global_pool": "avg", "class_token": False},
        {"global_pool": "avg", "reg_tokens": 2},
        {"num_classes": 0},
        {"mlp_layer": timm.layers.GluMlp, "act_layer": torch.nn.SiLU},
        {"pos_embed": "none"},
        {"reg_tokens": 2, "class_token": False, "global_pool": "avg"},
    ],
    ids=str,
)
def test_timm(tmp_path, images, options, ending):
    options = dict(options)
    if "mlp_layer" in options:
        options["mlp_layer"] = partial(timm.layers.GluMlp, gate_last=False)
    peer = randomise(timm.models.VisionTransformer(**{**TIMM, **options}))
    path = tmp_path / f"m.{ending}"
    (save_file if ending == "safetensors" else torch.save)(peer.state_dict(), path)
    said = {"image": 20, "position": "none"} if options.get("pos_embed") == "none" else {}
    model = vt.load(path, heads=3, **said)
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    if model.config.pool == "class":
        torch.testing.assert_close(model.features(images), peer.forward_features(images), **CLOSE)
    vt.save(model, tmp_path / "back.safetensors", format="timm")
    back = load_file(tmp_path / "back.safetensors")
    # A class token that is not pooled comes back as a register, and a class token without a position has one of zeros.
    changed = options.get("no_embed_class") or (
        options.get("global_pool") == "avg" and options.get("class_token", True)
    )
    if not changed:
        peer.load_state_dict(back)
        torch.testing.assert_close(peer(images), model(images), **CLOSE)


@torch.no_grad()
def test_timm_loads_registers_that_were_saved_here(tmp_path, images):
    ours = randomise(vt.build("vit", **SHAPE, registers=4, layer_scale=0.1))
    vt.save(ours, tmp_path / "m.safetensors", format="timm")
    peer = timm.models.VisionTransformer(**TIMM, reg_tokens=4, init_values=0.1).eval()
    peer.load_state_dict(load_file(tmp_path / "m.safetensors"))
    torch.testing.assert_close(peer(images), ours(images), **CLOSE)


@torch.no_grad()
def test_deit_with_its_distillation_token(tmp_path, images):
    peer = randomise(timm.models.deit.VisionTransformerDistilled(**TIMM))
    torch.save({"model": peer.state_dict()}, tmp_path / "deit.pth")
    model = vt.load(tmp_path / "deit.pth", heads=3)
    assert model.config.pool == "distilled"
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    torch.testing.assert_close(model(images, shortest=True), peer(images), **CLOSE)
    vt.save(model, tmp_path / "back.safetensors", format="timm")
    back = load_file(tmp_path / "back.safetensors")
    assert all(torch.equal(back[name], tensor) for name, tensor in peer.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("registers", [0, 4])
def test_dinov2_s_own_names(tmp_path, images, registers):
    """As facebookresearch/dinov2 saves them: a mask token, register_tokens, blocks in chunks."""
    peer = randomise(
        timm.models.VisionTransformer(
            **{**TIMM, "num_classes": 0}, init_values=0.1, reg_tokens=registers, no_embed_class=bool(registers)
        )
    )
    state = {name.replace("blocks.", "blocks.0."): tensor for name, tensor in peer.state_dict().items()}
    state["mask_token"] = torch.zeros(1, 24)
    if registers:
        state["register_tokens"] = state.pop("reg_token")
        state["pos_embed"] = torch.cat([torch.zeros(1, 1, 24), state["pos_embed"]], dim=1)
    torch.save(state, tmp_path / "dinov2.pth")
    with pytest.warns(UserWarning, match="not used: 'mask_token'"):
        model = vt.load(tmp_path / "dinov2.pth", heads=3)
    torch.testing.assert_close(model.features(images), peer.forward_features(images), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("resnet50", "vit_base_r50_s16_224"),
        ("resnet26", "vit_small_r26_s32_224"),
        ("resnet-root", "vit_tiny_r_s16_p8_224"),
    ],
)
def test_hybrids_from_timm_and_google(tmp_path, stem, name):
    size = 64
    peer = randomise(
        timm.create_model(name, img_size=size, num_classes=7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2)
    )
    images = torch.randn(2, 3, size, size)
    save_file(peer.state_dict(), tmp_path / "m.safetensors")
    model = vt.load(tmp_path / "m.safetensors", heads=3)
    assert model.config.stem == stem
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    vt.save(model, tmp_path / "back.safetensors", format="timm")
    back = load_file(tmp_path / "back.safetensors")
    assert back.keys() == peer.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in peer.state_dict().items())
    # timm reads Google's npz with code of its own: what is written here it reads as what it was.
    vt.save(model, tmp_path / "m.npz", format="npz")
    other = timm.create_model(name, img_size=size, num_classes=7, embed_dim=24, depth=2, num_heads=3, mlp_ratio=2)
    other.load_pretrained(str(tmp_path / "m.npz"))
    for key, tensor in peer.state_dict().items():
        assert torch.equal(other.state_dict()[key], tensor), key


@torch.no_grad()
def test_google_s_npz_as_timm_reads_it(tmp_path, images):
    ours = randomise(vt.build("vit", **SHAPE))
    vt.save(ours, tmp_path / "m.npz", format="npz")
    peer = timm.models.VisionTransformer(**TIMM).eval()
    peer.load_pretrained(str(tmp_path / "m.npz"))
    torch.testing.assert_close(peer(images), ours(images), **CLOSE)


def test_the_hybrid_has_timm_s_parameters():
    pairs = {
        "r50+vit-b/16": ("vit_base_r50_s16_224", 98_659_112),
        "r26+vit-s/32": ("vit_small_r26_s32_224", None),
        "r50+vit-l/32": ("vit_large_r50_s32_224", None),
    }
    for ours, (theirs, count) in pairs.items():
        with torch.device("meta"):
            model, peer = vt.build(ours), timm.create_model(theirs, num_classes=1000)
        assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in peer.parameters())
        assert count in (None, sum(p.numel() for p in model.parameters()))


@torch.no_grad()
@pytest.mark.parametrize("representation", [None, 12])
def test_torchvision(tmp_path, images, representation):
    shape = {"image_size": 20, "patch_size": 4, "num_layers": 3, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 48}
    peer = randomise(torchvision.models.VisionTransformer(**shape, num_classes=7, representation_size=representation))
    torch.save(peer.state_dict(), tmp_path / "vit.pth")
    model = vt.load(tmp_path / "vit.pth", heads=3)
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    vt.save(model, tmp_path / "back.pth", format="torchvision")
    back = torch.load(tmp_path / "back.pth")
    assert back.keys() == peer.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in peer.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"pool": "mean"}, {"dim_head": 16}, {"channels": 1}], ids=str)
def test_vit_pytorch(tmp_path, options):
    shape = {"image_size": 20, "patch_size": 4, "num_classes": 7, "dim": 24, "depth": 3, "heads": 3, "mlp_dim": 48}
    peer = randomise(vit_pytorch.ViT(**{**shape, "dim_head": 8, **options}))
    images = torch.randn(2, options.get("channels", 3), 20, 20)
    torch.save(peer.state_dict(), tmp_path / "vit.pt")
    model = vt.load(tmp_path / "vit.pt", heads=3)
    torch.testing.assert_close(model(images), peer(images), **CLOSE)
    vt.save(model, tmp_path / "back.pt", format="vit-pytorch")
    back = torch.load(tmp_path / "back.pt")
    assert back.keys() == peer.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in peer.state_dict().items())


@torch.no_grad()
@pytest.mark.parametrize("size", [(7, 7), (3, 11), (4, 5)])
@pytest.mark.parametrize("registers", [0, 3])
def test_positions_behind_class_and_register_tokens_are_resampled_as_in_timm(tmp_path, size, registers):
    ours = randomise(vt.build("vit", **SHAPE, registers=registers))
    vt.save(ours, tmp_path / "m.safetensors", format="timm")
    theirs = load_file(tmp_path / "m.safetensors")["pos_embed"]
    other = vt.load(tmp_path / "m.safetensors", image=(4 * size[0], 4 * size[1]))
    vt.save(other, tmp_path / "other.safetensors", format="timm")
    expected = resample_abs_pos_embed(
        theirs, list(size), [5, 5], num_prefix_tokens=1 + registers, interpolation="bicubic", antialias=True
    )
    torch.testing.assert_close(load_file(tmp_path / "other.safetensors")["pos_embed"], expected, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("size", [8, 14, 32])
def test_patches_are_resized_as_in_timm(size):
    kernels = torch.randn(5, 3, 16, 16)
    expected = resample_patch_embed(kernels, [size, size], interpolation="bicubic", antialias=True)
    torch.testing.assert_close(resize_patches(kernels, size), expected, rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("size", [(16, 24), (16, 32), (12, 20)])
@pytest.mark.parametrize("options", [{}, {"no_embed_class": True}, {"reg_tokens": 3}], ids=str)
def test_grids_that_are_not_square(tmp_path, size, options):
    """(n - 1)(n + 1) patches and a class token are a square number too; the config beside says what they are."""
    peer = randomise(timm.models.VisionTransformer(**{**TIMM, "img_size": size}, **options))
    images = torch.randn(2, 3, *size)
    folder = tmp_path / "hub"
    folder.mkdir()
    save_file(peer.state_dict(), folder / "model.safetensors")
    about = {"architecture": "vit_test", "model_args": {"num_heads": 3}, "pretrained_cfg": {"input_size": [3, *size]}}
    (folder / "config.json").write_text(json.dumps(about))
    torch.testing.assert_close(vt.load(folder)(images), peer(images), **CLOSE)
    if size != (16, 24) or not options:  # 6 x 4 and a class token could as well be 5 x 5 without
        (folder / "config.json").unlink()
        torch.testing.assert_close(vt.load(folder, heads=3, image=size)(images), peer(images), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("pool", "options"),
    [("avg", {"fc_norm": False}), ("token", {"fc_norm": True}), ("avg", {}), ("token", {})],
    ids=str,
)
def test_timm_s_config_says_how_it_pools(tmp_path, images, pool, options):
    peer = randomise(timm.models.VisionTransformer(**TIMM, global_pool=pool, **options))
    save_file(peer.state_dict(), tmp_path / "model.safetensors")
    about = {"architecture": "vit_test", "global_pool": pool, "model_args": {"num_heads": 3}, "pretrained_cfg": None}
    (tmp_path / "config.json").write_text(json.dumps(about))
    torch.testing.assert_close(vt.load(tmp_path)(images), peer(images), **CLOSE)
    (tmp_path / "config.json").write_text(json.dumps({**about, "global_pool": "max"}))
    with pytest.raises(vt.InputError, match="global_pool='max', which is not known"):
        vt.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "says"), [("vit_base_patch16_clip_224", "norm_pre"), ("vit_base_patch16_siglip_224", "attn_pool")]
)
def test_what_is_another_model_is_refused_by_name(tmp_path, name, says):
    peer = timm.create_model(name, embed_dim=24, depth=2, num_heads=3)
    save_file(peer.state_dict(), tmp_path / "m.safetensors")
    with pytest.raises(vt.InputError, match=says):
        vt.load(tmp_path / "m.safetensors", heads=3)
