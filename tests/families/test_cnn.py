"""Convolutional networks: their cost, their adapting, and that a residual one begins as its shortcuts."""

import onnxruntime
import pytest
import torch
from corpus import write_classes

import vitrail as vt
from vitrail.errors import InputError
from vitrail.families import cost
from vitrail.families.catalogue import price
from vitrail.families.cnn.config import CNNConfig
from vitrail.trainer import train
from vitrail.training.optim import muon
from vitrail.weights import read
from vitrail.weights.onnx import save_onnx

SMALL = {"image": 12, "channels": 1, "classes": 5, "root": "small", "width": 8, "units": (1, 2)}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"image": 33, "root": "small", "width": 8, "units": [1, 2]},
        {"image": (40, 70), "unit": "bottleneck", "width": 8},
        {"image": 30, "residual": False, "width": 8, "classes": 0},
    ],
)
def test_what_it_costs_is_counted_by_pytorch(fields):
    config = CNNConfig(**fields)
    assert config.cost() == cost(config)


@pytest.mark.parametrize(("name", "parameters"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_the_named_shapes_have_the_published_sizes(name, parameters):
    """As torchvision's table of its models has them."""
    assert price(name).parameters == parameters


def test_a_unit_begins_as_its_shortcut():
    model = vt.build("cnn", **SMALL)
    unit, x = model.stages[1][1], torch.rand(2, 16, 6, 6)
    torch.testing.assert_close(unit(x), x)


def test_a_picture_of_another_size_other_channels_and_classes():
    model = vt.build("cnn", **SMALL).eval()
    assert model(torch.rand(2, 1, 20, 16)).shape == (2, 5)
    grey = torch.rand(2, 1, 12, 12)
    adapted = type(model).adapt(model.config, model.state_dict(), channels=3, classes=7)
    colour = vt.build("cnn", **adapted.config.model_dump()).eval()
    colour.load_state_dict(adapted.state)
    torch.testing.assert_close(colour.pooled(grey.expand(-1, 3, -1, -1)), model.pooled(grey), rtol=1e-4, atol=1e-5)
    assert colour(grey.expand(-1, 3, -1, -1)).abs().max().item() == 0
    with pytest.raises(InputError, match="their own width"):
        type(model).adapt(model.config, model.state_dict(), width=32)


def test_muon_is_for_the_kernels():
    """Each update of a kernel has singular values of about the rate, as of any matrix; the first one is AdamW's."""
    model = vt.build("cnn", **{**SMALL, "residual": False})
    optimizer = muon(model, 1e-3, 0.0, blocks=0.1)
    before = model.stages[1][1].convs[0].conv.weight.detach().clone()
    model(torch.rand(4, 1, 12, 12)).square().sum().backward()
    optimizer.step()
    change = (model.stages[1][1].convs[0].conv.weight - before).detach().flatten(1)
    assert torch.linalg.svdvals(change).median().item() == pytest.approx(0.1, rel=0.3)
    ids = {id(p) for group in optimizer.optimizers[1].param_groups for p in group["params"]}
    assert id(model.root.conv.weight) not in ids
    assert id(model.stages[0][0].convs[0].conv.weight) in ids


def test_it_learns_and_is_used_as_any_other(tmp_path):
    run = train("digits", model="cnn", out=tmp_path / "run", epochs=6, settings={"model.width": 8}, quiet=True)
    assert run.result["accuracy"] > 0.8
    assert run.evaluate().values["accuracy"] == pytest.approx(run.result["accuracy"])
    model = vt.load(tmp_path / "run")
    vt.save(model, tmp_path / "resnet.safetensors", "timm")
    again = vt.load(tmp_path / "resnet.safetensors")
    x = torch.rand(3, 1, 8, 8)
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize(
    ("family", "fields", "free"),
    [("cnn", SMALL, True), ("linear", {"image": 6, "channels": 1, "classes": 5}, False)],
)
def test_it_is_written_as_an_onnx_file(tmp_path, family, fields, free):
    """And says the same there, of pictures of any size where it takes any."""
    model = vt.build(family, **fields).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.2)
    vt.save(model, tmp_path / "run", labels=tuple("abcde"), normalise={"mean": [0.3], "std": [0.5]})
    weights = read(tmp_path / "run")
    assert save_onnx(weights, tmp_path / "model.onnx") == free
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    side = fields["image"]
    for size in [(side, side), *([(side + 4, side + 1)] if free else [])]:
        x = torch.rand(3, 1, *size)
        logits, features = session.run(None, {"pictures": x.numpy()})
        with torch.no_grad():
            expected = model.answers_and_features((x - 0.3) / 0.5)
        torch.testing.assert_close(torch.from_numpy(logits), expected[0], rtol=0, atol=1e-4)
        torch.testing.assert_close(torch.from_numpy(features), expected[1], rtol=0, atol=1e-4)
    assert read(tmp_path / "model.onnx").family == family


def test_training_goes_on_from_its_weights(tmp_path):
    """On other classes too; and what it cannot be asked for is said."""
    pictures, short = tmp_path / "all", {"epochs": 1, "quiet": True}
    write_classes(pictures, {"ant": 8, "bee": 8})
    first = train(pictures, model="cnn", out=tmp_path / "one", settings={"model.width": 8}, **short)
    again = train(pictures, weights=first.path, out=tmp_path / "two", **short)
    assert again.weights().config == first.weights().config
    write_classes(tmp_path / "other", {"cow": 8, "dog": 8, "eel": 8})
    third = train(tmp_path / "other", weights=first.path, out=tmp_path / "three", **short)
    assert third.weights().config.classes == 3
    taught = {"teacher": first.path, "out": tmp_path / "x", **short}
    for settings, says in (({"teacher.hidden": 1.0}, "tokens"), ({"teacher.hard": True}, "distillation token")):
        with pytest.raises(InputError, match=says):
            train(pictures, model="cnn", settings=settings, **taught)
    with pytest.raises(InputError, match="fitted to the labels"):
        train(pictures, model="gaussian", **taught)
    student = train(pictures, model="linear", **{**taught, "out": tmp_path / "y"})
    assert student.recipe.teacher.path == str(first.path)
