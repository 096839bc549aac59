"""Eight bits: within half a step of what was there, and which products they take farthest from it."""

import numpy as np
import onnx
import pytest
import torch

import vitrail as vt
from vitrail.shrink.int8 import quantize_onnx, sensitive
from vitrail.weights import Weights
from vitrail.weights.onnx import INPUT, OnnxModel, save_onnx

VIT = {"image": 16, "patch": 4, "channels": 1, "width": 32, "depth": 2, "heads": 4, "classes": 5}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    torch.manual_seed(0)
    folder, model = tmp_path_factory.mktemp("int8"), vt.build("vit", **VIT)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
        model.encoder[0].feed_forward.f.inner.bias[3] = 200  # one neuron that says a lot: a product that suffers
    weights = Weights("here", "vitrail", "vit", model.config, dict(model.state_dict()))
    save_onnx(weights, folder / "whole.onnx")
    return folder, model.config


def matrices(path):
    """The matrices of products, by the names of the products: bytes with scales and zeros, or numbers."""
    graph = onnx.load(str(path)).graph
    held = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    whole = {
        node.name: held[node.input[1]] for node in graph.node if node.op_type == "MatMul" and node.input[1] in held
    }
    few = {}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            stem = node.input[1].removesuffix("_quantized")
            few[node.name.removesuffix("_quant")] = held[f"{stem}_quantized"], held[f"{stem}_scale"]
    return whole, few


def test_a_weight_is_within_half_a_step(files):
    folder, _ = files
    quantize_onnx(folder / "whole.onnx", folder / "small.onnx")
    whole, few = matrices(folder / "whole.onnx")[0], matrices(folder / "small.onnx")[1]
    assert whole.keys() <= few.keys()
    for name, exact in whole.items():
        codes, scale = few[name]
        assert codes.dtype == np.int8
        assert np.abs(codes).max() <= 64  # a bit is left unused
        assert (np.abs(codes * scale - exact) <= scale / 2 + 1e-6).all()


def test_kernels_are_bytes_within_half_a_step_and_run_as_they_are(tmp_path):
    torch.manual_seed(0)
    model = vt.build("resnet-small", image=12, channels=2, width=8, units=(1, 1), classes=5).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.2)
    weights = Weights("here", "vitrail", "cnn", model.config, dict(model.state_dict()))
    save_onnx(weights, tmp_path / "whole.onnx")
    quantize_onnx(tmp_path / "whole.onnx", tmp_path / "small.onnx")
    whole, few = (
        {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(str(tmp_path / name)).graph.initializer}
        for name in ("whole.onnx", "small.onnx")
    )
    kernels = [name.removesuffix(".bytes") for name in few if name.endswith(".bytes")]
    assert len(kernels) == 4  # but for the first and the shortcut, which are small
    for name in kernels:
        codes, scales = few[f"{name}.bytes"], few[f"{name}.scales"]
        assert codes.dtype == np.int8
        assert (np.abs(codes * scales - whole[name]) <= scales / 2 + 1e-6).all()
        assert name not in few
    pictures = torch.rand(3, 2, 12, 12)
    exact, found = (OnnxModel(tmp_path / name, model.config)(pictures) for name in ("whole.onnx", "small.onnx"))
    assert 0 < float((exact - found).abs().max()) < 0.03 * float(exact.abs().max())


def test_the_product_that_suffers_most_is_found_and_can_be_kept(files):
    folder, config = files
    pictures = np.random.default_rng(0).random((8, 1, 16, 16), dtype=np.float32)
    order = sensitive(folder / "whole.onnx", pictures)
    whole, _ = matrices(folder / "whole.onnx")
    assert set(whole) <= set(order)

    def lost(keep):
        quantize_onnx(folder / "whole.onnx", folder / "some.onnx", keep)
        runs = [OnnxModel(folder / name, config).session for name in ("whole.onnx", "some.onnx")]
        exact, found = (one.run(["logits"], {INPUT: pictures})[0] for one in runs)
        return float(np.square(found - exact).mean())

    every = lost([])
    assert lost(order[:1]) < 0.8 * every
    assert lost(order[:3]) < lost(order[-3:])
    assert lost(order) == pytest.approx(0, abs=1e-10)
