"""ONNX files: what they say is what the model says, whatever comes; and they say what they are."""

import gzip
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import vitrail as vt
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.shrink.int8 import quantize_onnx
from vitrail.weights import Weights, read
from vitrail.weights.onnx import save_onnx
from vitrail.weights.onnx_fused import fused

VIT = {"image": 16, "patch": 4, "channels": 3, "width": 24, "depth": 2, "heads": 4, "classes": 5}
NORMALISE = Normalise((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))


def weights_of(**fields):
    model = vt.build("vit", **{**VIT, **fields})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    return Weights("here", "vitrail", "vit", model.config, state, NORMALISE, tuple("abcde"))


@torch.no_grad()
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pool": "mean", "position": "sincos2d", "activation": "swiglu"},
        {"pool": "distilled", "registers": 2},
        {"merge": 3, "heads": [4, 2], "head": 6, "factors": {"encoder.0.feed_forward.f.inner": 5}},
        {"stem": "early", "pool": "mean"},
        {"image": (24, 16), "registers": 1},
        {"image": (16, 24)},
    ],
)
def test_outputs_are_ours(tmp_path, fields):
    """Free in batch and in size, to 1e-4, by ONNX Runtime itself."""
    weights = weights_of(**fields)
    assert save_onnx(weights, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    model = weights.model()
    for shape in ((1, 3, 16, 16), (5, 3, 16, 16), (2, 3, 24, 12), (1, 3, 16, 24), (1, 3, 24, 16)):
        pictures = torch.rand(*shape)
        logits, features = session.run(None, {"pictures": pictures.numpy()})
        np.testing.assert_allclose(logits, model(NORMALISE(pictures)).numpy(), rtol=0, atol=1e-4)
        np.testing.assert_allclose(features, model.pooled(NORMALISE(pictures)).numpy(), rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 2),
        ({"pool": "mean", "bias": False, "rank": 3}, 2),
        ({"layer_scale": 0.3}, 2),
        ({"heads": [4, 0], "head": 6, "factors": {"encoder.0.attention.f.query": 5}}, 1),
        ({"kernel": "relu"}, 0),
        ({"position": "relative"}, 0),
        ({"merge": 3}, 0),
    ],
)
def test_files_of_ones_own_have_attention_as_one_operator(tmp_path, fields, count):
    """Where it is plain, and scales in the maps before them; they say the same, at the model's own size, and as eight
    bits nearly so.
    """
    weights = weights_of(**fields)
    model = weights.model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with fused(model):
        pass
    assert all(torch.equal(tensor, before.pop(name)) for name, tensor in model.state_dict().items())
    assert not before
    assert not save_onnx(weights, tmp_path / "own.onnx", own=True)
    nodes = [node.op_type for node in onnx.load(tmp_path / "own.onnx").graph.node]
    assert nodes.count("MultiHeadAttention") == count
    assert nodes.count("Mul") == 0 or not fields.get("layer_scale")
    quantize_onnx(tmp_path / "own.onnx", tmp_path / "int8.onnx")
    whole, small = (onnxruntime.InferenceSession(str(tmp_path / name)) for name in ("own.onnx", "int8.onnx"))
    pictures = torch.rand(5, 3, 16, 16)
    expected = model(NORMALISE(pictures)).numpy()
    np.testing.assert_allclose(whole.run(["logits"], {"pictures": pictures.numpy()})[0], expected, rtol=0, atol=1e-4)
    found = small.run(["logits"], {"pictures": pictures.numpy()})[0]
    assert np.abs(found - expected).max() < 0.3 * expected.std() + 1e-3


@torch.no_grad()
def test_a_file_says_what_it_is_and_is_used_like_weights(tmp_path):
    weights = weights_of()
    save_onnx(weights, tmp_path / "model.onnx")
    again = read(tmp_path / "model.onnx")
    assert again.labels == tuple("abcde")
    assert again.config == weights.config
    pictures = torch.rand(3, 3, 16, 16)
    torch.testing.assert_close(again.model()(again.normalise(pictures)), weights.model()(NORMALISE(pictures)))
    with pytest.raises(InputError, match="used as it is"):
        again.adapted(classes=7)


@torch.no_grad()
def test_eight_bits_are_near_and_small(tmp_path):
    weights = weights_of(width=96, depth=3, image=32)
    save_onnx(weights, tmp_path / "model.onnx")
    quantize_onnx(tmp_path / "model.onnx", tmp_path / "int8.onnx")
    whole, small = (read(tmp_path / name).model() for name in ("model.onnx", "int8.onnx"))
    pictures = torch.rand(16, 3, 32, 32)
    one, other = whole(pictures), small(pictures)
    assert 0 < float((one - other).norm() / one.norm()) < 0.1
    sizes = [(tmp_path / name).stat().st_size for name in ("model.onnx", "int8.onnx")]
    assert sizes[1] < 0.5 * sizes[0]
    kept = onnx.load(str(tmp_path / "int8.onnx"))
    matrices = [one for one in kept.graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert len(matrices) >= 3 * 4  # of each layer: queries, keys and values, and both of the feed-forward
    assert json.loads({one.key: one.value for one in kept.metadata_props}["vitrail"])["int8"] is True


@torch.no_grad()
def test_a_packed_file_is_the_same_and_smaller(tmp_path):
    save_onnx(weights_of(width=64, hidden=256), tmp_path / "model.onnx")
    for name in ("int8.onnx", "int8.onnx.gz"):
        quantize_onnx(tmp_path / "model.onnx", tmp_path / name)
    whole, packed = (tmp_path / name for name in ("int8.onnx", "int8.onnx.gz"))
    assert gzip.decompress(packed.read_bytes()) == whole.read_bytes()
    assert packed.stat().st_size < 0.9 * whole.stat().st_size
    pictures = torch.rand(2, *read(whole).model().example().shape[1:])
    assert torch.equal(read(packed).model()(pictures), read(whole).model()(pictures))
    cut = tmp_path / "cut.onnx.gz"
    for wrong in (packed.read_bytes()[:-100], b"\x1f\x8b none", b""):
        cut.write_bytes(wrong)
        with pytest.raises(vt.InputError, match="is damaged, no ONNX file, or"):
            read(cut)


def test_what_is_not_free_in_size_says_so_and_what_is_wrong_is_said(tmp_path):
    weights = weights_of(kernel="local")
    assert not save_onnx(weights, tmp_path / "model.onnx")
    model, pictures = read(tmp_path / "model.onnx").model(), torch.rand(3, 3, 16, 16)
    torch.testing.assert_close(model(pictures), weights.model()(NORMALISE(pictures)), rtol=0, atol=1e-4)
    with pytest.raises(InputError, match="24 x 16"):
        model(torch.rand(1, 3, 24, 16))
    with pytest.raises(InputError, match="no tensors"):
        vt.save(vt.load(tmp_path / "model.onnx"), tmp_path / "run")
    with pytest.raises(InputError, match="leave heads out"):
        read(tmp_path / "model.onnx", heads=3)
    with pytest.raises(InputError, match="ONNX file already"):
        save_onnx(read(tmp_path / "model.onnx"), tmp_path / "again.onnx")
    graph = onnx.load(str(tmp_path / "model.onnx"))
    about = json.loads({one.key: one.value for one in graph.metadata_props}["vitrail"])
    for change, said in (({"family": "gpt"}, "gpt"), ({"model": {**about["model"], "classes": 7}}, "7 classes")):
        onnx.helper.set_model_props(graph, {"vitrail": json.dumps({**about, "labels": None, **change})})
        onnx.save(graph, str(tmp_path / "other.onnx"))
        with pytest.raises(InputError, match=said):
            read(tmp_path / "other.onnx").model()(pictures)
    assert not list(tmp_path.glob(".*"))


def vitrail(*words):
    return subprocess.run(
        [sys.executable, "-m", "vitrail", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_by_the_command(tmp_path):
    run, file = tmp_path / "run", tmp_path / "run" / "model.onnx"
    assert vitrail("train", "digits", "--out", run, "--epochs", 1).returncode == 0
    ran = vitrail("export", run)
    assert ran.returncode == 0, ran.stderr
    ours, theirs = (json.loads(vitrail("evaluate", one, "digits", "--json").stdout) for one in (run, file))
    assert theirs["loss"] == pytest.approx(ours["loss"], abs=1e-4)
    assert theirs["confusion"] == ours["confusion"]
    again = vitrail("export", run)
    assert again.returncode == 1
    assert "--force" in again.stderr
    assert "choose one of onnx" in vitrail("export", run, "--format", "tflite").stderr
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x01broken")
    for verb in (("evaluate", tmp_path / "bad.onnx", "digits"), ("predict", tmp_path / "bad.onnx", tmp_path)):
        ran = vitrail(*verb)
        assert ran.returncode == 1
        assert "Traceback" not in ran.stderr
        assert "bad.onnx" in ran.stderr
