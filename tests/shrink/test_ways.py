"""Every way gives a run like any other, whose costs are the real ones; what a way does not fit is said at once."""

import numpy as np
import onnx
import pytest
import torch
from shrinks import shrunk
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import vitrail as vt
from vitrail.errors import InputError
from vitrail.runs import Run
from vitrail.shrink.answers import write_whole
from vitrail.trainer import train
from vitrail.weights import read
from vitrail.weights.onnx import content, save_onnx


def real(model):
    """Parameters and multiply-adds, counted on a real pass, with attention as plain products, which are all counted."""
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(model.example())
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2


def kernels(path):
    """The tensors of an ONNX file by their names."""
    graph = onnx.load_model_from_string(content(path)).graph
    return {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}


@pytest.mark.parametrize(
    ("way", "field", "value"),
    [
        ("image=6", "image", 6),
        ("heads=0.5", "heads", None),
        ("neurons=0.5", "hidden", None),
        ("layers=1", "depth", 3),
        ("distil=0.5", "depth", 2),
        ("distil=width=16,depth=2", "width", 16),
        ("distil=resnet-small,width=8,units=[1,2]", "units", (1, 2)),
        ("factor=0.4", "factors", None),
        ("merge=2", "merge", 2),
        ("image=6+layers=1+neurons=0.5", "depth", 3),
        ("quantize=4", "depth", 4),
    ],
)
def test_every_way_gives_a_run_like_any_other(run, tmp_path, way, field, value):
    made, state = shrunk(run, tmp_path / "small", way)
    original, step = state["steps"]
    folder = Run(tmp_path / "small" / "steps" / step["folder"])  # also where it was undone
    config, before = folder.weights().config, Run(run).weights().config
    found = getattr(config, field)
    assert found == value if value is not None else found != getattr(before, field)
    assert all(getattr(config, name) == getattr(before, name) for name in ("channels", "classes"))
    parameters, adds = real(folder.weights().model())
    assert (step["costs"]["parameters"], step["costs"]["multiply_adds"]) == (parameters, adds)
    assert step["costs"]["bytes"] == (folder.path / "model.safetensors").stat().st_size
    assert step["worth"]["value"] == pytest.approx(folder.evaluate().values["accuracy"], abs=1e-9)
    assert step["drop"] == pytest.approx(100 * (original["worth"]["value"] - step["worth"]["value"]))
    assert made.evaluate().values["accuracy"] == pytest.approx(
        (step if step["kept"] else original)["worth"]["value"], abs=1e-9
    )
    assert not (folder.path / "checkpoints").exists()
    assert [one.name for one in (tmp_path / "small" / "steps").iterdir()] == [step["folder"]]
    again = train("digits", weights=tmp_path / "small", out=tmp_path / "again", epochs=1, quiet=True)  # learns on
    assert again.result["accuracy"] > 0.3


def test_int8_answers_and_the_tensors_are_looked_into(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", "quantize")
    assert made.about["answers"] == "model.int8.onnx.gz"
    assert made.answering().format == "onnx"
    assert made.weights().format == "vitrail"
    step = state["steps"][1]
    assert step["costs"]["bytes"] == (tmp_path / "small" / "model.int8.onnx.gz").stat().st_size
    assert made.evaluate().values["accuracy"] == pytest.approx(step["worth"]["value"], abs=0.012)  # batches of others
    twice, after = shrunk(tmp_path / "small", tmp_path / "twice", "layers=1")  # what is shrunk again stays int8
    assert twice.answering().format == "onnx"
    assert twice.weights().config.depth == 3
    assert after["steps"][1]["costs"]["parameters"] < step["costs"]["parameters"]


def test_a_student_of_another_kind_learns_as_its_kind_does_and_has_kernels_of_bytes(run, tmp_path):
    ways, how = ("distil=cnn,root=small,width=8,units=[1,1]", "quantize"), {"train.epochs": 2}
    made, state = shrunk(run, tmp_path / "small", *ways, minutes=None, settings=how)
    student = Run(tmp_path / "small" / "steps" / state["steps"][1]["folder"])
    assert student.recipe.teacher.path == str(run.resolve())
    assert (student.recipe.optim.name, Run(run).recipe.optim.name) == ("adamw", "muon")
    assert made.weights().family == "cnn"
    assert made.answering().format == "onnx"
    whole, few = (step["costs"]["bytes"] for step in state["steps"][1:])
    assert few < whole / 2
    whole = kernels(write_whole(student.weights(), tmp_path / "whole")[0])
    small = kernels(made.path / "model.int8.onnx.gz")
    assert any(name.endswith(".bytes") for name in small)
    for name, exact in whole.items():  # rounded once: what eight bits of k-means would leave is farther off
        if f"{name}.bytes" in small:
            scales = small[f"{name}.scales"]
            assert (np.abs(small[f"{name}.bytes"] * scales - exact) <= 0.5001 * scales).all()
    values = [step["worth"]["value"] for step in state["steps"][1:]]
    assert values[1] == pytest.approx(values[0], abs=0.02)


def test_tickets_keep_their_zeros_and_a_random_one_stands_beside(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", "tickets=0.8", minutes=0.2)
    step = state["steps"][1]
    folder = tmp_path / "small" / "steps"
    tickets = {name: Run(folder / f"{step['folder']}{name}").weights().state for name in ("", ".random", ".round-3")}
    for name, tensor in tickets[""].items():
        assert torch.equal(tensor, tickets[".round-3"][name])
        if name.startswith("encoder.") and tensor.ndim > 1:
            assert torch.equal(tensor == 0, tickets[".random"][name] == 0)
    gone = sum(
        int((one == 0).sum()) for name, one in tickets[""].items() if name.startswith("encoder.") and one.ndim > 1
    )
    every = sum(one.numel() for name, one in tickets[""].items() if name.startswith("encoder.") and one.ndim > 1)
    assert gone / every == pytest.approx(0.8, abs=0.001)
    assert "a random ticket comes to" in step["done"]
    assert state["steps"][0]["costs"]["bytes"] > 1.7 * step["costs"]["bytes"]
    assert made.weights().config == Run(run).weights().config


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (["head"], "did you mean 'heads'"),
        (["heads="], "has no amount behind the ="),
        (["heads=2"], "give the fraction that goes"),
        (["layers=4"], "4 layers cannot go, since there are 4"),
        (["layers=1.5"], "is no amount for layers"),
        (["merge=none"], "is no amount for merge"),
        (["quantize=9"], "give int8, or how many bits"),
        (["distil=5"], "is no amount for distil"),
        (["distil=widht=5"], "did you mean 'distil.width'"),
        (["distil=resnet-smal,width=8"], "did you mean 'resnet-small'"),
        (["distil=cnn,depth=8"], "'distil.depth'"),
        (["distil=gaussian"], "learn from no teacher"),
        (["distil=gpt"], "labels pictures"),
        (["patches=3"], "no ViT of plain patches"),
        (["patches=1.5"], "is no amount for patches"),
    ],
)
def test_what_cannot_be_is_said_at_once(run, tmp_path, ways, message):
    with pytest.raises(InputError, match=message):
        shrunk(run, tmp_path / "small", *ways)
    assert not (tmp_path / "small").exists()


def test_models_that_a_way_does_not_fit(run, tmp_path):
    text = vt.build("gpt", tokens=11, width=24, depth=2, heads=4, length=12)
    vt.save(text, tmp_path / "gpt", task="language")
    for way, message in (("quantize", "is a gpt; int8 is of ViTs and CNNs"), ("merge=1", "merged in a ViT")):
        with pytest.raises(InputError, match=message):
            shrunk(tmp_path / "gpt", tmp_path / "small", way)
    save_onnx(read(run), tmp_path / "model.onnx")
    with pytest.raises(InputError, match="is an ONNX file"):
        shrunk(tmp_path / "model.onnx", tmp_path / "small")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is left alone"):
        shrunk(run, tmp_path / "there", "layers=1")
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["mine.txt"]
