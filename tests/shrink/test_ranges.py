"""Ranges made even: the same answers, and eight bits that are nearer to them."""

import numpy as np
import onnx
import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.shrink.answers import write_whole
from vitrail.shrink.int8 import products, quantize_onnx
from vitrail.shrink.ranges import FEW, apart, column_maxima, even
from vitrail.weights import Weights
from vitrail.weights.onnx import INPUT, OnnxModel
from vitrail.weights.onnx_fused import fused

VIT = {"image": 15, "patch": 5, "channels": 3, "width": 28, "depth": 2, "heads": 4, "hidden": 44, "classes": 7}


def weights_of(seed=0, **fields):
    """Of a ViT in which nothing is even: some channels and neurons are a hundred times as large as others."""
    torch.manual_seed(seed)
    model = vt.build("vit", **{**VIT, **fields}).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(std=0.1)
            if "norm.weight" in name:
                parameter[::11] = 20
        for block in model.encoder:
            if block.feed_forward is not None:
                block.feed_forward.f.inner.bias[5::17] = 80
    return Weights("here", "vitrail", "vit", model.config, dict(model.state_dict()))


def images_of(count=6):
    return torch.rand(count, 3, 15, 15, generator=torch.Generator().manual_seed(1))


def seen(weights):
    """Column maxima on some pictures."""
    batches = [Batch(some, None, len(some)) for some in images_of().split(2)]
    return column_maxima(weights.model(), lambda model, batch: model(batch.inputs), batches)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"order": "post"},
        {"norm": "batch"},
        {"activation": "swiglu"},
        {"pool": "mean", "layer_scale": 0.5},
        {"rank": 3, "bias": False},
        {"kernel": "relu", "registers": 2},
        {"factors": {"encoder.0.attention.f.key_value": 6, "encoder.1.feed_forward.f.inner": 6}},
        {"position": "rotary", "width": 32},
        *({"kernel": name, "width": 32} for name in ("local", "axial", "star", "linear", "hashing", "span")),
    ],
    ids=str,
)
def test_even_ranges_change_no_answer(fields):
    weights = weights_of(**fields)
    same = even(weights, seen(weights))
    exact, found = (one.model().double()(images_of().double()).detach() for one in (weights, same))
    assert torch.allclose(exact, found, rtol=1e-5, atol=1e-5 * float(exact.abs().max()))
    assert any(not torch.equal(weights.state[name], same.state[name]) for name in same.state)


def test_ranges_are_made_even_where_a_norm_or_a_value_map_can_take_it_over():
    """Columns of what comes in are as far apart as those of the map: sqrt(max|x| max|W|) for both."""
    weights = weights_of()
    before, after = seen(weights), seen(even(weights, seen(weights)))
    state = even(weights, before).state
    for path in ("encoder.0.feed_forward.f.inner", "encoder.1.attention.f.out"):
        assert torch.allclose(after[path], state[f"{path}.weight"].abs().amax(0), rtol=1e-3)
        assert after[path].max() / after[path].median() < before[path].max() / before[path].median()


def test_maxima_are_of_every_batch():
    weights = weights_of()
    path = "encoder.1.attention.f.query"
    given_in = []
    model = weights.model()
    model.get_submodule(path).register_forward_pre_hook(lambda _, x: given_in.append(x[0]))
    with torch.no_grad():
        model(images_of())
    assert torch.allclose(seen(weights)[path], given_in[0].abs().amax((0, 1)), rtol=1e-5)


def test_neurons_that_go_far_beyond_the_others_are_apart():
    weights = weights_of(hidden=64)
    found = apart(weights, seen(weights))
    assert set(found) == {"encoder.0.feed_forward.f", "encoder.1.feed_forward.f"}
    for neurons in found.values():
        assert {5, 22, 39, 56} <= set(neurons)
        assert len(neurons) == FEW
    level = {path: torch.ones_like(one) for path, one in seen(weights).items()}
    assert not apart(weights, level)  # where none does
    assert not apart(weights_of(activation="swiglu", hidden=64), seen(weights_of(activation="swiglu", hidden=64)))


@pytest.mark.parametrize("scale", [None, 0.5])
def test_eight_bits_are_nearer_to_the_answers(tmp_path, scale):
    """By far: most of what they cost is that of a few numbers that take the range of all others."""
    weights = weights_of(hidden=64, layer_scale=scale)
    pictures = images_of(16).numpy()

    def lost(most, name):
        (whole,) = write_whole(weights, tmp_path / name, most)  # which tries that it says what the model says
        quantize_onnx(whole, tmp_path / f"{name}.onnx")
        runs = [OnnxModel(path, None).session for path in (whole, tmp_path / f"{name}.onnx")]
        exact, found = (one.run(["logits"], {INPUT: pictures})[0] for one in runs)
        return float(np.square(found - exact).mean()), whole

    (plain, _), (evened, whole) = lost(None, "plain"), lost(seen(weights), "even")
    assert 0 < evened < plain / 4
    narrow = [node.name for node in onnx.load(str(whole)).graph.node if node.op_type in ("MatMul", "Gemm")]
    kept = {node.name for node in onnx.load(str(tmp_path / "even.onnx")).graph.node}
    assert len(set(narrow) - set(products(whole))) >= 4  # two for each layer
    assert all(name in kept or f"{name}_MatMul" in kept for name in set(narrow) - set(products(whole)))


def test_nothing_is_left_of_a_model_in_parts():
    """What is made for a file is taken back: the same model again, to the bit."""
    weights = weights_of(hidden=64, layer_scale=0.5)
    model = weights.model()
    names, exact = [name for name, _ in model.named_modules()], model(images_of())
    with fused(model, apart(weights, seen(weights))):
        assert [name for name, _ in model.named_modules()] != names
    assert [name for name, _ in model.named_modules()] == names
    assert torch.equal(model(images_of()), exact)
