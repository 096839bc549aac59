"""The command line, as a user meets it: in a process of its own."""

import json
import re
import subprocess
import sys

import pytest
from corpus import write_classes
from processes import vitrail

import vitrail as vt

HEAVY = {"torch", "sklearn", "numpy", "scipy", "pandas", "matplotlib", "PIL", "kornia", "jinja2"}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["train", "--help"],
        ["models", "--help"],
        ["recipes", "--help"],
        ["evaluate", "--help"],
        ["predict", "--help"],
        ["explain", "--help"],
        ["figures", "--help"],
        ["walk", "--help"],
        ["embed", "--help"],
        ["convert", "--help"],
        ["--version"],
        ["recipes"],
        ["models"],
    ],
)
def test_help_imports_no_torch(words):
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['vitrail', *{words!r}]\n"
        "try:\n    runpy.run_module('vitrail', run_name='__main__')\n"
        "except SystemExit as done:\n    assert not done.code, done.code\n"
        f"heavy = {HEAVY!r} & set(sys.modules)\n"
        "print('heavy modules:', sorted(heavy), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout
    assert "heavy modules: []" in ran.stderr


def test_digits_are_learned(tmp_path):
    """The default recipe, for real, in a third of its epochs: at least 97 % on the fixed fifth, and a usable run."""
    ran = vitrail("train", "--out", str(tmp_path / "run"), "--epochs", "16", "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["tested"] == 360
    assert result["accuracy"] == result["correct"] / 360 >= 0.97
    assert "360 to test on" in ran.stderr
    assert "epoch 16/16" in ran.stderr
    assert (tmp_path / "run" / "labels.json").read_text().split() == json.dumps(list("0123456789"), indent=2).split()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "wait" in line]
    assert [step["step"] for step in steps] == list(range(1, result["steps"] + 1))
    assert steps[0]["loss"] > 2 > steps[-1]["loss"]
    assert [line["epoch"] for line in lines if "accuracy" in line] == [5, 10, 15, 16]
    assert lines[-1]["accuracy"] == result["accuracy"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<figure>") == 2 * min(24, 360 - result["correct"]), "behind the confusion, and in a gallery"

    # The accuracy again, from what was written and scikit-learn's own copy of the digits.
    import torch
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    _, held, _, answers = train_test_split(pixels, labels, test_size=0.2, random_state=0, stratify=labels)
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    images = (torch.from_numpy(held) * 255 / 16).round().float().reshape(-1, 1, 8, 8) / 255
    images = (images - about["normalise"]["mean"][0]) / about["normalise"]["std"][0]
    predicted = vt.load(tmp_path / "run")(images).argmax(-1).numpy()
    assert (predicted == answers).sum() == result["correct"]


def test_the_same_seed_is_the_same_run(tmp_path):
    for name in ("a", "b"):
        assert vitrail("train", "--epochs", "1", "--out", str(tmp_path / name)).returncode == 0
    assert vitrail("train", "--epochs", "1", "--seed", "1", "--out", str(tmp_path / "c")).returncode == 0
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_options_reach_the_run(tmp_path):
    ran = vitrail(
        *("train", "digits", "--out", str(tmp_path / "run"), "--epochs", "1", "--batch", "50"),
        *("--model", "vit", "--set", "model.image=8", "--set", "model.patch=4", "--set", "model.channels=1"),
        *("--set", "model.width=12", "--set", "model.depth=1", "--set", "model.heads=3", "--set", "optim.lr=5e-4"),
    )
    assert ran.returncode == 0, ran.stderr
    about = json.loads((tmp_path / "run" / "config.json").read_text())
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())["recipe"]
    assert recipe["train"]["batch"] == 50
    assert recipe["optim"]["lr"] == 5e-4
    assert "recipe" not in about  # stored once
    assert about["model"]["width"] == 12
    assert about["model"]["classes"] == 10


def test_runs_are_not_overwritten(tmp_path):
    for _ in range(2):
        assert vitrail("train", "--epochs", "1", cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["digits", "digits-2"]
    ran = vitrail("train", "--epochs", "1", "--out", "runs/digits", cwd=tmp_path)
    assert ran.returncode == 1
    assert "'runs/digits' holds a run already, and is left alone" in ran.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "metrics.jsonl").write_text("precious")
    assert vitrail("train", "--epochs", "1", "--out", "mine", cwd=tmp_path).returncode == 1
    assert (tmp_path / "mine" / "metrics.jsonl").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["trian"], 2, "train"),
        (["train", "--epoch", "3"], 2, "--epochs"),
        (["train", "--epochs", "0"], 2, "'--epochs': Input should be greater than or equal to 1"),
        (["train", "digit"], 1, "recipe 'digit' is not known; did you mean 'digits'?"),
        (["train", "nowhere.toml"], 1, "recipe 'nowhere.toml' is not there"),
        (["train", "--model", "vit-pico"], 1, "did you mean 'vit-pico/2'?"),
        (["train", "--set", "optim.l=1"], 1, "field 'optim.l' is not known; did you mean"),
        (["train", "--set", "optim.lr=fast"], 1, "optim.lr='fast' does not fit"),
        (["train", "--set", "optim.lr"], 1, "assigns nothing"),
        (["train", "--set", "data.source=digts"], 1, "data source 'digts' is not known; did you mean 'digits'?"),
        (["train", "--set", "model.classes=3"], 1, "model.classes=3 is too few for 10 classes"),
        (["train", "--set", "data.path=here"], 1, "data.path has no meaning for them"),
        (["train", "nowhere/photos"], 1, "'nowhere/photos' is not a folder, nor a recipe"),
        (["train", "--set", "train.batch=3", "--set", "train.accumulate=4"], 1, "cannot be cut in 4 micro-batches"),
        (["train", "--set", "train.device=tpu"], 1, "train.device 'tpu' is not known"),
        (["train", "--set", "data.source=pictures"], 1, "the recipe names no pictures"),
        (["train", "fashion", "--data", "."], 1, "dataset-fashion-mnist"),
        (["evaluate", "nowhere"], 1, "'nowhere' is not there; give a run directory, a file of weights"),
        (["predict", "nowhere", "x.png"], 1, "'nowhere' is not there; give a run directory, a file of weights"),
        (["train", "--set", "model.classes=ten"], 1, "classes='ten' does not fit"),
        (["train", "--set", "data.test=0.001"], 1, "a fraction of 0.001 of 1797 pictures cannot hold one of each"),
        (["train", "--seed", "99999999999999999999"], 1, "train.seed=99999999999999999999 does not fit"),
        (["train", "--set", "train=3"], 1, "train=3 does not fit"),
        (["models", "mixer*"], 1, "model 'mixer*' is not known"),
    ],
)
def test_mistakes_get_a_sentence_and_a_status(invoke, tmp_path, monkeypatch, words, status, says):  # noqa: PLR0917
    monkeypatch.chdir(tmp_path)
    ended, stdout, stderr = invoke(*words)
    assert ended == status
    assert says in stderr
    assert stdout == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("width=abc", "model.width='abc' does not fit; it should be a valid integer"),
        ("width=", "model.width='' does not fit"),
        ("width=1e9", "model.width=1000000000.0 does not fit"),
        ("width=1000000", " parameters of the model take 119,209"),
        ("widht=64", "did you mean 'model.width'?"),
        ("patch=abc", "model.patch='abc' does not fit"),
        ("patch=0", "model.patch=0 does not fit; it should be greater than 0"),
        ("patch=2.5", "model.patch=2.5 does not fit"),
        ("image=abc", "image='abc' does not fit; it should be a number of pixels, or two: 224x384"),
        ("image=8x8x8", "image='8x8x8' does not fit"),
        ("image=0", "image=0 does not fit"),
        ("depth=abc", "model.depth='abc' does not fit"),
        ("depth=1000000000", "model.depth=1000000000 does not fit; it should be less than or equal to 10000"),
        ("heads=abc", "heads='abc' does not fit"),
        ("hidden=1e9", "hidden=1000000000.0 does not fit"),
        ("kernel=abc", "kernel 'abc' is not known; choose one of axial"),
        ("kernel.name=softmax", ""),
        ("stem=abc", "stem 'abc' is not known"),
        ("dropout=2", "model.dropout=2 does not fit"),
    ],
)
@pytest.mark.parametrize("what", ["digits", "folder"])
def test_a_model_that_cannot_be_gets_a_sentence_before_anything_is_chosen(invoke, tmp_path, what, value, says):
    if what == "folder":
        what = write_classes(tmp_path / "all", {"ant": 4, "bee": 4})
    status, _, err = invoke("train", what, "--out", tmp_path / "run", "--epochs", "1", "--set", f"model.{value}")
    assert "Traceback" not in err
    if says:
        assert status == 1
        assert says in err
        assert not (tmp_path / "run").exists()
    else:
        assert status == 0, err


def test_sides_are_written_alike_everywhere(invoke, tmp_path):
    words = ("--out", tmp_path / "run", "--epochs", "1", "--set", "train.batch=512")
    assert invoke("train", "digits", *words, "--set", "model.image=8x16")[0] == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["model"]["image"] == [8, 16]


def test_a_mistake_in_a_process_of_its_own(tmp_path):
    ran = vitrail("train", "nowhere.toml", cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.startswith("vitrail: recipe 'nowhere.toml' is not there")
    assert ran.stdout == ""


def test_an_unwritable_folder_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("mine")
    ran = vitrail("train", "--epochs", "1", "--out", str(tmp_path / "file" / "run"))
    assert ran.returncode == 1
    assert "cannot be written" in ran.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_models_are_listed():
    ran = vitrail("models", "vit-b/*", "--json")
    listed = json.loads(ran.stdout)
    assert [row["name"] for row in listed] == ["vit-b/16", "vit-b/32"]
    assert listed[0]["parameters"] == 86_567_656
    assert listed[0]["multiply_adds"] == 17_563_828_224
    table = vitrail("models").stdout
    assert len(table.splitlines()) == 1 + len(vt.models())
    for name in vt.models():
        assert f"{name} " in table
    assert "136,138" in table
    assert "0.002 G" in table


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("verb", ["models", "recipes"])
def test_lists_are_whole_in_any_terminal(invoke, monkeypatch, verb, columns):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, _ = invoke(verb)
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in out.splitlines()]
    assert status == 0
    assert all(len(line) <= columns for line in lines)
    assert not any("…" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    names = vt.models() if verb == "models" else ["digits", "fashion"]
    assert all(f"{name} " in text for name in names)
    assert "632,045,800" in text if verb == "models" else "500,490" in text


def test_a_pipe_gets_a_line_a_recipe():
    lines = vitrail("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["name", "dates", "digits", "fashion", "igpt", "python", "topics"]


def test_recipes_say_what_they_reached():
    for recipe in json.loads(vitrail("recipes", "--json").stdout):
        assert recipe["about"]
        assert re.search(r"\d", recipe["reached"])
        assert recipe["command"].startswith("vitrail train")
