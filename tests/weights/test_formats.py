"""The same weights in another library's files give the same answers, both ways."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from copying import randomise
from einops import rearrange
from safetensors.torch import load_file, save_file
from transformers import (
    Dinov2Config,
    Dinov2ForImageClassification,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersForImageClassification,
    Dinov2WithRegistersModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
    ViTModel,
)

import vitrail as vt
from vitrail.data import Normalise
from vitrail.weights import read

SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}
HF = {
    "image_size": 16,
    "patch_size": 4,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
}
CLOSE = {"rtol": 0, "atol": 1e-5}
VIT_PYTORCH = {"stem": "patch-norm", "bias": False, "eps": 1e-5}


@pytest.fixture
def images():
    return torch.randn(2, 3, 16, 16)


def built(**fields):
    return randomise(vt.build("vit", **{**SHAPE, **fields}))


@torch.no_grad()
@pytest.mark.parametrize("beside", [True, False], ids=["with its config", "alone"])
@pytest.mark.parametrize(
    ("format", "name", "fields"),
    [
        ("timm", "m.safetensors", {}),
        ("timm", "m.pt", {"registers": 3, "layer_scale": 0.1}),
        ("timm", "m.bin", {"pool": "distilled"}),
        ("timm", "m.safetensors", {"pool": "mean", "norm_last": True, "registers": 2}),
        ("timm", "m.safetensors", {"pool": "mean"}),
        ("timm", "m.safetensors", {"activation": "swiglu", "bias": False, "prelogits": 24}),
        ("timm", "m.safetensors", {"channels": 1, "classes": 0}),
        ("timm", "m.safetensors", {"stem": "resnet-root", "image": 64, "patch": 16}),
        ("torchvision", "m.pth", {}),
        ("torchvision", "m.safetensors", {"prelogits": 12}),
        ("vit-pytorch", "m.pt", VIT_PYTORCH),
        ("vit-pytorch", "m.safetensors", {**VIT_PYTORCH, "pool": "mean", "head": 16}),
        ("npz", "m.npz", {}),
        ("npz", "m.npz", {"prelogits": 24, "classes": 7}),
        ("npz", "m.npz", {"pool": "mean", "head": 16}),
        ("npz", "m.npz", {"stem": "resnet26", "image": 64, "patch": 32}),
        ("hf", "folder", {}),
        ("hf", "folder", {"classes": 0}),
        ("hf", "folder", {"classes": 0, "prelogits": 24, "bias": False}),
        ("hf", "folder", {"classes": 0, "registers": 4, "layer_scale": 0.1}),
        ("hf", "folder", {"classes": 0, "layer_scale": 0.1, "activation": "swiglu"}),
        ("vitrail", "run", {"stem": "resnet-small", "tokens": 3, "pool": "mean"}),
    ],
)
def test_there_and_back_is_exact(tmp_path, format, name, fields, beside):  # noqa: A002
    model = built(**fields)
    path = tmp_path / name
    vt.save(model, path, format=format)
    if not beside and (sidecar := tmp_path / f"{name}.json").exists():
        sidecar.unlink()
        back = vt.load(path, heads=3)
    elif format == "hf":
        with pytest.warns(UserWarning, match="mask_token") if "layer_scale" in fields else nullcontext():
            back = vt.load(path)
    else:
        back = vt.load(path)
    assert back.config.width == 24
    state = back.state_dict()
    assert state.keys() == model.state_dict().keys()
    for key, tensor in model.state_dict().items():
        assert torch.equal(state[key], tensor), key
    images = torch.randn(2, model.config.channels, *model.config.size)
    torch.testing.assert_close(back(images), model(images), rtol=0, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("shape", [(16, 16), (8, 24)])
def test_hf_classifier(tmp_path, images, shape):
    names = {0: "ant", 1: "bee", 2: "cat", 3: "dog", 4: "eel"}
    peer = randomise(ViTForImageClassification(ViTConfig(**{**HF, "image_size": list(shape)}, id2label=names)))
    peer.save_pretrained(tmp_path)
    ViTImageProcessor(image_mean=[0.1, 0.2, 0.3], image_std=[0.4, 0.5, 0.6]).save_pretrained(tmp_path)
    images = torch.randn(2, 3, *shape)
    model = vt.load(tmp_path)
    assert model.config.eps == 1e-12
    torch.testing.assert_close(model(images), peer(images).logits, **CLOSE)
    about = read(tmp_path)
    assert about.labels == tuple(names.values())
    assert about.normalise == Normalise((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    vt.save(model, tmp_path / "back", format="hf", normalise=about.normalise, labels=about.labels)
    again = ViTForImageClassification.from_pretrained(tmp_path / "back").eval()
    assert torch.equal(again(images).logits, peer(images).logits)
    assert again.config.id2label == names
    assert ViTImageProcessor.from_pretrained(tmp_path / "back").image_mean == (0.1, 0.2, 0.3)


@torch.no_grad()
def test_hf_model_s_pooler_is_the_layer_before_the_logits(tmp_path, images):
    peer = randomise(ViTModel(ViTConfig(**HF)))
    peer.save_pretrained(tmp_path)
    model = vt.load(tmp_path)
    torch.testing.assert_close(model.features(images), peer(images).last_hidden_state, **CLOSE)
    torch.testing.assert_close(model(images), peer(images).pooler_output, **CLOSE)
    vt.save(model, tmp_path / "back", format="hf")
    assert torch.equal(ViTModel.from_pretrained(tmp_path / "back").eval()(images)[0], peer(images)[0])


@torch.no_grad()
@pytest.mark.parametrize("swiglu", [False, True])
@pytest.mark.parametrize(
    ("config", "kind"), [(Dinov2Config, Dinov2Model), (Dinov2WithRegistersConfig, Dinov2WithRegistersModel)]
)
def test_hf_dinov2(tmp_path, images, config, kind, swiglu):
    peer = randomise(kind(config(**HF, use_swiglu_ffn=swiglu)))
    peer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="not used: 'embeddings.mask_token'"):
        model = vt.load(tmp_path)
    torch.testing.assert_close(model.features(images), peer(images).last_hidden_state, **CLOSE)
    assert model.config.registers == (4 if "Registers" in kind.__name__ else 0)
    vt.save(model, tmp_path / "back", format="hf")
    again = kind.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(images).last_hidden_state, peer(images).last_hidden_state, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (Dinov2Config, Dinov2ForImageClassification),
        (Dinov2WithRegistersConfig, Dinov2WithRegistersForImageClassification),
    ],
)
def test_hf_dinov2_classifies_by_class_token_and_mean(tmp_path, images, config, kind):
    peer = randomise(kind(config(**HF, num_labels=7)))
    peer.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match="not used: 'embeddings.mask_token'"):
        model = vt.load(tmp_path)
    assert model.config.pool == "both"
    torch.testing.assert_close(model(images), peer(images).logits, **CLOSE)
    vt.save(model, tmp_path / "back", format="hf")
    torch.testing.assert_close(
        kind.from_pretrained(tmp_path / "back").eval()(images).logits, peer(images).logits, **CLOSE
    )


def google(peer, *, block="Transformer/encoderblock_{}", later=False):
    """An npz of Google's, by hand, from the modules of an HF ViT."""
    attention, second, mlp = ("_0", 1, 0) if later else ("_1", 2, 3)
    arrays = {}

    def put(name, tensor):
        arrays[name] = tensor.detach().numpy()

    def norm(name, module):
        put(f"{name}/scale", module.weight)
        put(f"{name}/bias", module.bias)

    def dense(name, module):
        put(f"{name}/kernel", module.weight.T)
        put(f"{name}/bias", module.bias)

    vit = peer.vit
    put("cls", vit.embeddings.cls_token)
    put("embedding/kernel", vit.embeddings.patch_embeddings.projection.weight.permute(2, 3, 1, 0))
    put("embedding/bias", vit.embeddings.patch_embeddings.projection.bias)
    where = "pos_embedding" if later else "Transformer/posembed_input/pos_embedding"
    put(where, vit.embeddings.position_embeddings)
    for number, layer in enumerate(vit.layers):
        here = block.format(number)
        norm(f"{here}/LayerNorm_0", layer.layernorm_before)
        norm(f"{here}/LayerNorm_{second}", layer.layernorm_after)
        dense(f"{here}/MlpBlock_{mlp}/Dense_0", layer.mlp.fc1)
        dense(f"{here}/MlpBlock_{mlp}/Dense_1", layer.mlp.fc2)
        for name, module in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")):
            linear = getattr(layer.attention, module)
            site = f"{here}/MultiHeadDotProductAttention{attention}/{name}"
            put(f"{site}/kernel", rearrange(linear.weight, "(h d) w -> w h d", h=3))
            put(f"{site}/bias", linear.bias.view(3, 8))
        site = f"{here}/MultiHeadDotProductAttention{attention}/out"
        put(f"{site}/kernel", rearrange(layer.attention.o_proj.weight, "w (h d) -> h d w", h=3))
        put(f"{site}/bias", layer.attention.o_proj.bias)
    norm("Transformer/encoder_norm", vit.layernorm)
    dense("head", peer.classifier)
    return arrays


@torch.no_grad()
@pytest.mark.parametrize("kind", ["original", "augreg", "big_vision", "stacked"])
def test_google_npz(tmp_path, images, kind):
    peer = randomise(ViTForImageClassification(ViTConfig(**HF, layer_norm_eps=1e-6, num_labels=5)))
    arrays = google(peer, later=kind in ("big_vision", "stacked"))
    if kind == "original":
        arrays = {f"opt/target/{name}": array for name, array in arrays.items()}
    if kind == "stacked":
        first = [name for name in arrays if "encoderblock_0" in name]
        for name in first:
            both = [arrays.pop(name), arrays.pop(name.replace("encoderblock_0", "encoderblock_1"))]
            arrays[name.replace("encoderblock_0", "encoderblock")] = np.stack(both)
        arrays = {f"params/{name}": array for name, array in arrays.items()}
    np.savez(tmp_path / "model.npz", **arrays)
    model = vt.load(tmp_path / "model.npz")
    assert (model.config.heads, model.config.size) == (3, (16, 16))
    torch.testing.assert_close(model(images), peer(images).logits, **CLOSE)
    if kind == "augreg":  # the names that save writes
        vt.save(model, tmp_path / "back.npz", format="npz")
        with np.load(tmp_path / "back.npz") as back:
            assert sorted(back.files) == sorted(arrays)
            for name in back.files:
                np.testing.assert_array_equal(back[name], arrays[name])


@torch.no_grad()
def test_google_npz_with_the_layer_before_the_logits(tmp_path, images):
    peer = randomise(ViTForImageClassification(ViTConfig(**HF, layer_norm_eps=1e-6, num_labels=5)))
    weight, bias = torch.randn(24, 24), torch.randn(24)
    arrays = {**google(peer), "pre_logits/kernel": weight.T.numpy(), "pre_logits/bias": bias.numpy()}
    np.savez_compressed(tmp_path / "model.npz", **arrays)
    model = vt.load(tmp_path / "model.npz")
    hidden = torch.tanh(peer.vit(images).last_hidden_state[:, 0] @ weight.T + bias)
    torch.testing.assert_close(model(images), peer.classifier(hidden), **CLOSE)


@torch.no_grad()
def test_checkpoints_within_checkpoints(tmp_path, images):
    """What a framework wraps around a state dict."""
    from argparse import Namespace

    model = built()
    vt.save(model, tmp_path / "m.pt", format="timm")
    state = torch.load(tmp_path / "m.pt")
    wrapped = {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}, "args": Namespace(lr=1)}
    torch.save({**wrapped, "epoch": 3}, tmp_path / "w.pt")
    torch.save({"model": state}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("w.pt", "old.pth"):
        torch.testing.assert_close(vt.load(tmp_path / name, heads=3)(images), model(images))


@torch.no_grad()
def test_several_files_with_an_index(tmp_path, images):
    peer = randomise(ViTForImageClassification(ViTConfig(**HF, num_labels=5)))
    peer.save_pretrained(tmp_path, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    torch.testing.assert_close(vt.load(tmp_path)(images), peer(images).logits, **CLOSE)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    index["weight_map"]["classifier.bias"] = "../elsewhere.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(vt.InputError, match="outside its folder"):
        vt.load(tmp_path)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("format", "name"), [("npz", "m.npz"), ("timm", "m.safetensors"), ("hf", "folder")])
def test_the_type_is_kept(tmp_path, dtype, format, name):  # noqa: A002
    model = built().to(dtype)
    vt.save(model, tmp_path / name, format=format)
    back = vt.load(tmp_path / name)
    assert {p.dtype for p in back.parameters()} == {dtype}
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), back.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    ("format", "fields", "says"),
    [
        ("timm", {"position": "relative"}, "position='relative', which timm has no place for"),
        ("timm", {"stem": "early"}, "stem='early'"),
        ("hf", {"pool": "mean"}, "pool='mean'"),
        ("hf", {"prelogits": 24}, "prelogits=24"),
        ("hf", {"registers": 2, "layer_scale": 0.1}, "pool='class'"),
        ("npz", {"registers": 2}, "registers=2"),
        ("npz", {"layer_scale": 0.1}, "layer_scale=0.1"),
        ("torchvision", {"channels": 1}, "channels=1"),
        ("torchvision", {"image": (16, 8)}, "image=(16, 8)"),
        ("vit-pytorch", {}, "stem='patch'"),
        ("npz", {"kernel": "relu"}, "kernel='relu'"),
        ("timm", {"tokens": 2}, "tokens=2"),
    ],
)
def test_what_a_format_cannot_hold_is_not_written(tmp_path, format, fields, says):  # noqa: A002
    with pytest.raises(vt.InputError) as caught:
        vt.save(vt.build("vit", **{**SHAPE, **fields}), tmp_path / "m.npz", format=format)
    assert says in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_over_or_missing_is_named(tmp_path):
    vt.save(built(), tmp_path / "m.pt", format="timm")
    state = torch.load(tmp_path / "m.pt")
    torch.save({**state, "norm_pre.weight": torch.ones(24), "norm_pre.bias": torch.ones(24)}, tmp_path / "more.pt")
    with pytest.raises(vt.InputError, match=r"has 'norm_pre.bias', 'norm_pre.weight', with no place"):
        vt.load(tmp_path / "more.pt", heads=3)
    with pytest.warns(UserWarning, match=r"left out: 'norm_pre.bias', 'norm_pre.weight'"):
        vt.load(tmp_path / "more.pt", heads=3, strict=False)
    del state["blocks.1.mlp.fc2.bias"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(vt.InputError, match=r"lacks 'blocks.1.mlp.fc2.bias'"):
        vt.load(tmp_path / "less.pt", heads=3)


@torch.no_grad()
def test_a_pooler_beside_a_classifier_is_not_used(tmp_path, images):
    peer = randomise(ViTForImageClassification(ViTConfig(**HF, num_labels=5)))
    peer.save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    more = {"vit.pooler.dense.weight": torch.randn(24, 24), "vit.pooler.dense.bias": torch.randn(24)}
    save_file({**state, **more}, tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match=r"not used: 'pooler.dense.weight', 'pooler.dense.bias'"):
        model = vt.load(tmp_path)
    torch.testing.assert_close(model(images), peer(images).logits, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("position", ["none", "sincos2d"])
def test_positions_that_no_tensor_holds_are_said(tmp_path, position, images):
    model = built(position=position, pool="mean")
    vt.save(built(pool="mean"), tmp_path / "m.npz", format="npz")
    with np.load(tmp_path / "m.npz") as file:
        arrays = {name: array for name, array in file.items() if "posembed" not in name}
    np.savez(tmp_path / "less.npz", **arrays)
    with pytest.raises(vt.InputError, match=r"is missing; if the model has no positions, or computes them"):
        vt.load(tmp_path / "less.npz")
    other = vt.load(tmp_path / "less.npz", position=position, image=16)
    state = {name: tensor for name, tensor in other.state_dict().items() if "position" not in name}
    model.load_state_dict(state)
    torch.testing.assert_close(other(images), model(images))


def test_what_is_said_has_to_be_so(tmp_path):
    vt.save(built(), tmp_path / "run")
    vt.save(built(), tmp_path / "m.npz", format="npz")
    for path in (tmp_path / "run", tmp_path / "m.npz"):
        for name, value in {"heads": 4, "eps": 1e-3, "activation": "relu"}.items():
            with pytest.raises(vt.InputError, match=f"has {name}="):
                vt.load(path, **{name: value})
    with pytest.raises(vt.InputError, match="head 'frsh' is not known; did you mean 'fresh'"):
        vt.load(tmp_path / "run", head="frsh")
    with pytest.raises(vt.InputError, match="'lables' has no place in format='timm'"):
        vt.save(built(), tmp_path / "m.pt", format="timm", lables=("a",))
    with pytest.raises(vt.InputError, match="2 labels do not fit a model with 5 classes"):
        vt.save(built(), tmp_path / "m.pt", format="timm", labels=("a", "b"))


def test_heads_are_64_wide_unless_said(tmp_path):
    vt.save(vt.build("vit", **{**SHAPE, "width": 192}), tmp_path / "m.pt", format="timm")
    assert vt.load(tmp_path / "m.pt").config.heads == 3  # as saved
    (tmp_path / "m.pt.json").unlink()
    assert vt.load(tmp_path / "m.pt").config.heads == 3
    assert vt.load(tmp_path / "m.pt", heads=6).config.heads == 6
    with pytest.raises(vt.InputError, match="heads=7 does not divide"):
        vt.load(tmp_path / "m.pt", heads=7)
    with pytest.raises(vt.InputError, match="heads='many' does not fit"):
        vt.load(tmp_path / "m.pt", heads="many")
