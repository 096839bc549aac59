"""Fine-tuning, probing, embedding, converting and predicting with weights from elsewhere."""

import json

import numpy as np
import processes
import pytest
import torch
from copying import randomise
from corpus import write_classes
from transformers import ViTConfig, ViTForImageClassification

import vitrail as vt

SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}


def vitrail(*words, status=0):
    ran = processes.vitrail(*words)
    assert ran.returncode == status, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stdout, ran.stderr


@pytest.fixture(scope="module")
def digits(once):
    """A run on the digits: what later runs begin from."""
    return once("digits", lambda folder: vitrail("train", "digits", "--epochs", 6, "--out", folder / "run")) / "run"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    write_classes(folder, {"ant": 16, "bee": 16, "cat": 16})
    return folder


@pytest.fixture(scope="module")
def hf(tmp_path_factory):
    """A folder as Hugging Face writes it."""
    folder = tmp_path_factory.mktemp("hf")
    shape = {"image_size": 16, "patch_size": 4, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3}
    names = {0: "one", 1: "two", 2: "three"}
    randomise(ViTForImageClassification(ViTConfig(**shape, intermediate_size=48, id2label=names))).save_pretrained(
        folder
    )
    return folder


def test_a_head_alone_is_trained_on_features_of_the_frozen_model(tmp_path, digits):
    """As good as scikit-learn's own regression on the same features, since it is one; and the rest does not change."""
    stdout, stderr = vitrail("train", "digits", "--weights", digits, "--freeze", "--json", "--out", tmp_path / "run")
    assert "the head alone" in stderr
    result = json.loads(stdout)
    before, after = vt.load(digits).state_dict(), vt.load(tmp_path / "run").state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.logits.weight", "head.logits.bias"}
    measured = json.loads(vitrail("evaluate", tmp_path / "run", "--json")[0])
    assert measured["accuracy"] == result["accuracy"]
    whole = json.loads((digits / "scores.json").read_text())["accuracy"]
    assert result["accuracy"] > whole - 0.05
    report = (tmp_path / "run" / "report.html").read_text()
    assert "the head alone, on features" in report
    assert "Nothing was recorded" not in report
    assert "optim." not in report


def test_fine_tuning_begins_where_the_weights_are(tmp_path, digits):
    """With the same classes the head is kept, so one epoch is better than one from scratch; the plan says all of it."""
    words = ("--epochs", 1, "--json", "--set", "train.ema=0.0")
    scratch = json.loads(vitrail("train", "digits", *words, "--out", tmp_path / "scratch")[0])
    tuned, said = vitrail("train", "digits", "--weights", digits, "--tune", *words, "--out", tmp_path / "tuned")
    assert json.loads(tuned)["accuracy"] > scratch["accuracy"]
    assert f"weights   {digits} (vitrail)" in said
    assert "0.75 of the rate a layer down" in said


def test_other_classes_get_a_fresh_head_and_the_size_is_the_weights_own(tmp_path, pictures, hf):
    out = tmp_path / "run"
    said = vitrail("train", pictures, "--weights", hf, "--tune", "--epochs", 1, "--out", out)[1]
    assert "the head for 3 classes replaced by a fresh one" in said
    assert "16 x 16 pixels, 3 channels" in said
    assert "mean 0.500 0.500 0.500" in said
    config = json.loads((out / "config.json").read_text())
    assert config["normalise"]["mean"] == [0.5, 0.5, 0.5]
    other = tmp_path / "other"
    vitrail("train", pictures, "--weights", hf, "--tune", "--epochs", 1, "--set", "model.image=24", "--out", other)
    assert vt.load(other).config.image == 24
    again = vitrail("train", pictures, "--weights", hf, "--tune", "--epochs", 1, "--out", out, "--resume")[1]
    assert "going on after step" in again


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--weights", "nowhere.npz"), "'nowhere.npz' is not there"),
        (("--freeze",), "give some with --weights"),
        (("--weights", "{hf}", "--model", "vit-b/16"), "leave model.name='vit-b/16' out"),
        (("--weights", "{hf}", "--set", "model.width=48"), "width=48 cannot be had"),
        (("--weights", "{hf}", "--set", "model.classes=3"), "model.classes=3 is for the head"),
        (("--weights", "{hf}", "--set", "model.heads=4"), "has heads=3, not 4"),
        (("--weights", "{hf}", "--freeze", "--set", "weights.head=keep"), "leave one of them out"),
    ],
)
def test_mistakes_get_a_sentence(invoke, tmp_path, pictures, hf, words, says):  # noqa: PLR0917
    words = [word.format(hf=hf) for word in words]
    status, _, stderr = invoke("train", pictures, *words, "--out", tmp_path / "run")
    assert status == 1
    assert says in stderr


def test_predict_with_weights_from_elsewhere(pictures, hf):
    some = min((pictures / "ant").iterdir())
    stdout, _ = vitrail("predict", hf, some, "--json", "--top", 2)
    answer = json.loads(stdout)
    assert {one["label"] for one in answer["answers"]} <= {"one", "two", "three"}
    assert len(answer["answers"]) == 2


def test_predict_without_a_head_says_how_to_get_one(tmp_path, pictures):
    vt.save(vt.build("vit", **{**SHAPE, "classes": 0}), tmp_path / "m.npz", format="npz")
    said = vitrail("predict", tmp_path / "m.npz", pictures, status=1)[1]
    assert "has no head; train one with `vitrail train PICTURES --weights" in said


def test_embed_writes_what_the_head_is_given(tmp_path, pictures, digits):
    (pictures / "ant" / "broken.jpg").write_bytes(b"no picture")
    stdout, said = vitrail("embed", digits, pictures, "--out", tmp_path / "f.npz", "--json", status=1)
    (pictures / "ant" / "broken.jpg").unlink()
    assert "broken.jpg" in said
    assert json.loads(stdout) == {
        "out": str(tmp_path / "f.npz"),
        "pictures": 48,
        "width": 64,
        "set aside": 1,
        "unread": [f"{pictures / 'ant' / 'broken.jpg'}: not a picture of a kind that is read here"],
    }
    with np.load(tmp_path / "f.npz") as made:
        assert made["features"].shape == (48, 64)
        assert sorted(set(made["folders"])) == ["ant", "bee", "cat"]
        assert len(set(made["files"])) == 48


def test_convert_goes_all_the_way_round(tmp_path, hf):
    steps = [
        (hf, "a.npz", "npz"),
        ("a.npz", "b.safetensors", "timm"),
        ("b.safetensors", "c.pth", "torchvision"),
        ("c.pth", "d", "hf"),
    ]
    for source, target, name in steps:
        stdout, _ = vitrail("convert", tmp_path / source, tmp_path / target, "--format", name, "--json")
        assert json.loads(stdout)["format"] == name
    images = torch.randn(2, 3, 16, 16)
    peer, back = (ViTForImageClassification.from_pretrained(folder).eval() for folder in (hf, tmp_path / "d"))
    with torch.no_grad():
        assert torch.equal(peer(images).logits, back(images).logits)
    assert back.config.id2label == {0: "one", 1: "two", 2: "three"}
    said = vitrail("convert", hf, tmp_path / "d", "--format", "hf", status=1)[1]
    assert "is there already, and is left alone" in said
    said = vitrail("convert", hf, tmp_path / "e.npz", "--format", "npy", status=1)[1]
    assert "format 'npy' is not known; did you mean 'npz'" in said
    said = vitrail("convert", hf, tmp_path / "f.npz", "--format", "npz", "--image", "24", "--classes", "7")[1]
    assert "positions of 4 x 4 patches resampled to 6 x 6" in said
    assert vt.load(tmp_path / "f.npz").config.classes == 7
