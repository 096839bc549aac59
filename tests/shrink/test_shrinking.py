"""Shrinking as a whole: each step is measured, stays if it pays, and what comes of it is a run like any other."""

import json
import shutil

import pytest
import torch
from shrinks import shrunk

import vitrail as vt
from vitrail.errors import InputError
from vitrail.files import read_json
from vitrail.runs import Run
from vitrail.shrink.asked import Asked
from vitrail.shrink.costs import peak
from vitrail.shrink.shrinking import Shrinking
from vitrail.shrink.steps import Goals
from vitrail.trainer import train
from vitrail.training import Interrupted


def test_what_costs_too_much_is_undone_and_tried_by_half(run, tmp_path, monkeypatch):
    """Layers after which nothing is fitted, nor learns, lose much: it is the original, and is said by how much."""
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.trains", False)
    monkeypatch.setattr("vitrail.shrink.making.FIT", 0.0)
    out = tmp_path / "small"
    goals = Goals(max_drop=0.1, speedup=50, minutes=10)
    asked = Shrinking(Asked(str(run), goals=goals, ways=("layers=3",)), out, quiet=True)
    made = asked.run()
    first, *steps = read_json(out / "shrink.json")["steps"]
    assert [step["name"] for step in steps] == ["layers=3", "layers=1"]
    assert [step["again"] for step in steps] == [False, True]
    assert all(step["costly"] and not step["kept"] and "0.1 may be lost" in step["why"] for step in steps)
    assert "nothing was found that pays" in asked.summary()
    assert read_json(out / "shrink.json")["missed"] == ["it is 1.00 times as fast, and 50 were wanted"]
    for name, tensor in Run(run).weights().state.items():
        assert torch.equal(made.weights().state[name], tensor)
    assert made.evaluate().values["accuracy"] == first["worth"]["value"]


def test_an_interrupted_shrinking_goes_on_where_it_was(run, tmp_path, monkeypatch):
    """Stopped in the middle of a training, it ends to the bit as one that nobody stopped."""
    two, how = ("neurons=0.75", "distil=0.5"), {"minutes": None, "max_drop": 0.2, "settings": {"train.epochs": 3}}
    whole, _ = shrunk(run, tmp_path / "whole", *two, **how)
    from vitrail.training.job import Job

    steps, seen = Job.steps, []

    def stopped(self, *_):
        for event in steps(self, stop=lambda: len(seen) == 40):
            seen.append(event)
            yield event

    monkeypatch.setattr(Job, "steps", stopped)
    with pytest.raises(Interrupted):
        shrunk(run, tmp_path / "small", *two, **how)
    monkeypatch.setattr(Job, "steps", steps)
    with pytest.raises(InputError, match="by adding --resume"):
        shrunk(run, tmp_path / "small", *two, **how)
    with pytest.raises(InputError, match="was begun as `vitrail shrink"):
        shrunk(run, tmp_path / "small", *two[:1], **how, resume=True)
    made, state = shrunk(run, tmp_path / "small", *two, **how, resume=True)
    other = read_json(tmp_path / "whole" / "shrink.json")
    assert [step["worth"]["value"] for step in state["steps"]] == [step["worth"]["value"] for step in other["steps"]]
    for name, tensor in whole.weights().state.items():
        assert torch.equal(made.weights().state[name], tensor)


def test_without_names_ways_are_chosen_and_kept_as_far_as_they_pay(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", minutes=0.3, max_drop=10.0)
    first, *steps = state["steps"]
    names = [step["name"].partition("=")[0] for step in steps]
    assert names[0] == "neurons"
    assert names[-1] == "quantize"
    assert all(step["kept"] or step["why"] for step in steps)
    last = [step for step in (first, *steps) if step["kept"]][-1]
    assert last["drop"] <= 10
    assert made.evaluate().values["accuracy"] == pytest.approx(last["worth"]["value"], abs=0.012)
    assert (tmp_path / "small" / "shrink.html").is_file()


def test_weights_and_data_that_are_named(tmp_path):
    """Weights of no run, measured on pictures that are named; without any, what needs none is done and said so."""
    from corpus import write_classes

    write_classes(tmp_path / "all", {"ant": 12, "bee": 12})
    learned = train(tmp_path / "all", out=tmp_path / "run", epochs=2, quiet=True)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "labels.json"):
        shutil.copyfile(learned.path / name, bare / name)
    _, state = shrunk(bare, tmp_path / "small", "layers=1", data=tmp_path / "all")
    assert state["steps"][0]["worth"]["value"] == learned.evaluate().values["accuracy"]
    assert state["measured on"] == {"part": "test", "examples": len(learned.evaluation_set())}
    assert Run(tmp_path / "small").evaluate().values  # which says what it was measured on
    _, state = shrunk(bare, tmp_path / "few", "quantize=4")
    assert state["metric"] is None
    assert state["steps"][1]["kept"]
    with pytest.raises(InputError, match="layers needs data"):
        shrunk(bare, tmp_path / "none", "layers=1")
    write_classes(tmp_path / "others", {"cat": 12, "dog": 12})
    with pytest.raises(InputError, match="has no head for the classes of the data, cat, dog; train it on them first"):
        shrunk(bare, tmp_path / "none", "layers=1", data=tmp_path / "others")


def test_a_shrinking_goes_on_only_with_the_original_that_it_began_with(run, tmp_path):
    shrunk(run, tmp_path / "small", "quantize=8")
    state = read_json(tmp_path / "small" / "shrink.json")
    state["steps"][0]["worth"]["value"] -= 0.1  # as if the run had been trained on since
    (tmp_path / "small" / "shrink.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"is not what it was when this shrinking began: its number was \d"):
        shrunk(run, tmp_path / "small", "quantize=8", resume=True)


def test_what_does_not_fit_what_is_left_is_said_and_the_others_go_on(run, tmp_path):
    """Layers twice, where one is left after the first; and the page says what was not tried."""
    few = {"train.epochs": 1}
    _, state = shrunk(run, tmp_path / "small", "layers=3", "layers=3", "quantize=4", minutes=None, settings=few)
    assert [step["name"] for step in state["steps"]] == ["original", "layers=3", "quantize=4"]
    assert state["skipped"] == [["layers", "3 layers cannot go, since there are 1; one stays."]]
    assert "Not tried" in (tmp_path / "small" / "shrink.html").read_text()


def test_an_original_that_nothing_pays_for_stays_as_it_is(run, tmp_path):
    """Also one that is packed, and runs as an ONNX file."""
    shrunk(run, tmp_path / "small", "quantize")
    made, state = shrunk(tmp_path / "small", tmp_path / "same", "merge=1", max_drop=0.0)
    if not state["steps"][1]["kept"]:
        for name in ("model.safetensors", "model.int8.onnx.gz"):
            assert (made.path / name).read_bytes() == (tmp_path / "small" / name).read_bytes()
        assert made.about["answers"] == "model.int8.onnx.gz"
    with pytest.raises(InputError, match="has no checkpoint to go on from"):
        train(out=made.path, resume=True, quiet=True)


def test_settings_that_do_not_fit_are_said_before_anything_is_made(run, tmp_path):
    with pytest.raises(InputError, match=r"did you mean 'train\.epochs'"):
        shrunk(run, tmp_path / "small", "layers=1", settings={"train.epoch": 3})
    assert not (tmp_path / "small" / "steps").exists()


def test_a_costly_step_without_a_half_is_followed_by_the_next_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.trains", False)
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.milder", lambda *_: None)
    _, state = shrunk(run, tmp_path / "small", "layers=3", "quantize=8", "quantize=4", max_drop=1.0, minutes=5)
    names = [(step["name"], step["again"]) for step in state["steps"][1:]]
    assert names[:3] == [("layers=3", False), ("quantize=8", False), ("quantize=4", False)]


def test_from_the_command_line(run, tmp_path, invoke):
    status, out, err = invoke(
        "shrink", run, "--out", tmp_path / "small", "--way", "layers=1", "--way", "quantize=8", "--max-drop", "100"
    )
    assert status == 0, err
    assert "layers=1" in out
    assert "times smaller" in out
    assert "shrink.html" in err
    status, out, err = invoke("shrink", run, "--out", tmp_path / "small")
    assert status == 1
    assert "by adding --resume" in err
    status, out, err = invoke("shrink", run, "--out", tmp_path / "other", "--way", "quantize=4", "--json")
    assert status == 0, err
    assert json.loads(out)["steps"][1]["name"] == "quantize=4"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_opens_without_a_complaint(opened, run, tmp_path, width, scheme):
    shrunk(run, tmp_path / "small", "layers=1", "quantize=4", minutes=0.1)
    with opened(
        tmp_path / "small" / "shrink.html", viewport={"width": width, "height": 900}, color_scheme=scheme
    ) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        text = page.inner_text("main")
        assert "layers=1" in text
        assert "McNemar" in text
        assert page.locator("svg circle").count() == 6  # three steps at two batches


def test_memory_grows_with_the_model(tmp_path):
    """By more than the tensors of a large one; and of what is no model nothing is known."""
    sizes = []
    for depth in (1, 24):
        model = vt.build("vit", image=32, patch=8, channels=3, width=384, depth=depth, heads=6, classes=5)
        vt.save(model, tmp_path / str(depth))
        sizes.append((peak(Run(tmp_path / str(depth))), 4 * sum(p.numel() for p in model.parameters())))
    assert sizes[1][0] - sizes[0][0] > 0.8 * (sizes[1][1] - sizes[0][1])
    assert peak(Run(tmp_path / "none")) is None
