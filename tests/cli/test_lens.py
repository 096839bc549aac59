"""explain, figures and walk, as a user runs them."""

import json
import math
import os
import shutil

import numpy as np
import pytest
import torch
from copying import randomise
from corpus import write_bad, write_classes
from PIL import Image

import vitrail as vt

LABELS = ("ant", "bee", "cow")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of random weights that knows three classes, and a folder of pictures of them."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("lens")
    model = randomise(vt.build("vit", image=16, patch=4, width=24, depth=2, heads=3, hidden=29, classes=3))
    vt.save(model, folder / "run", labels=LABELS, normalise=((0.5,) * 3, (0.5,) * 3))
    write_classes(folder / "pictures", dict.fromkeys(LABELS, 4))
    return folder


def test_explain_writes_a_page_pictures_and_numbers(run, invoke, tmp_path):
    first, second = run / "pictures" / "ant" / "000.png", run / "pictures" / "bee" / "000.png"
    status, out, err = invoke("explain", run / "run", first, second, "--out", tmp_path / "out", "--steps", 3)
    assert status == 0, err
    assert out.count("largest gap: ") + out.count("no gap is beyond a random order's") == 2
    assert "index.html" in err
    names = {path.name for path in (tmp_path / "out").iterdir()}
    kinds = ("attention", "rollout", "relevance", "gradcam", "heads")
    expected = {f"{name}-{kind}.png" for name in ("000", "000-2") for kind in kinds}
    assert names == expected | {"000.html", "000.json", "000-2.html", "000-2.json", "index.html", ".vitrail-files"}
    facts = json.loads((tmp_path / "out" / "000.json").read_text())
    assert sum(one["probability"] for one in facts["answers"]) == pytest.approx(1)
    written = facts["writes"]
    total = np.sum(written["heads"]) + np.sum(written["feed_forward"]) + written["embedding"] + written["biases"]
    assert total == pytest.approx(written["logit"], abs=1e-4)
    for file in names - {".vitrail-files"}:
        if file.endswith(".png"):
            with Image.open(tmp_path / "out" / file) as image:
                assert image.width > 300


def test_explain_as_json_with_choices(run, invoke, tmp_path):
    picture = run / "pictures" / "cow" / "001.png"
    words = ("--method", "attention", "--layer", 1, "--head", 2, "--class", "bee", "--steps", 0, "--size", "24x32")
    status, out, err = invoke("explain", run / "run", picture, "--out", tmp_path, *words, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["label"]["name"] == "bee"
    assert found["grid"] == [6, 8]
    assert [one["name"] for one in found["methods"]] == ["attention"]
    assert found["methods"][0]["gap"] is None
    np.testing.assert_allclose(found["methods"][0]["map"], found["attention"][0][1][1:], rtol=1e-5)


def test_explain_says_which_pictures_could_not_be_read(run, invoke, tmp_path):
    write_bad(tmp_path / "bad")
    good = run / "pictures" / "ant" / "000.png"
    status, out, err = invoke("explain", run / "run", tmp_path / "bad", good, "--out", tmp_path / "o", "--steps", 0)
    assert status == 1
    assert "cut.jpg: cut short" in err
    assert "could not be read" in err
    assert str(good) in out
    assert (tmp_path / "o" / "000.html").is_file()


def test_a_picture_called_index_does_not_replace_the_index(run, invoke, tmp_path):
    data = (run / "pictures" / "ant" / "000.png").read_bytes()
    (tmp_path / "index.png").write_bytes(data)
    (tmp_path / "other.png").write_bytes(data)
    words = ("--out", tmp_path / "o", "--steps", 0, "--method", "attention")
    status, _, err = invoke("explain", run / "run", tmp_path / "index.png", tmp_path / "other.png", *words)
    assert status == 0, err
    assert "2 pictures explained" in (tmp_path / "o" / "index.html").read_text()
    assert (tmp_path / "o" / "index-2.html").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--method", "rolout"), "rolout"),
        (("--class", "bea"), "did you mean 'bee'"),
        (("--layer", "3"), "layer 3 is not there; there are 2"),
        (("--head", "4"), "head 4 is not there; there are 3"),
        (("--size", "20x"), "--size '20x' does not fit"),
        (("--size", "100000"), "625,000,000 patches of 4, where 16,384 can be looked at"),
        (("--size", "18"), "18 x 18 pixels is not a whole number of patches of 4"),
    ],
)
def test_mistakes_of_explain(run, invoke, tmp_path, words, said):
    status, out, err = invoke("explain", run / "run", run / "pictures", "--out", tmp_path / "o", *words)
    assert (status, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "o").exists(), "nothing is made before all is right"


def test_weights_without_a_head(invoke, run, tmp_path):
    vt.save(vt.build("vit-pico/2", classes=0), tmp_path / "w")
    status, _, err = invoke("explain", tmp_path / "w", run / "pictures", "--out", tmp_path / "o")
    assert status == 1
    assert "has no head" in err


def test_figures_of_weights_and_pictures(run, invoke, tmp_path):
    status, out, err = invoke("figures", run / "run", run / "pictures", "--out", tmp_path, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert [file.rsplit("/", 1)[1] for file in found["files"]] == [
        "filters.png",
        "positions.png",
        "distance.png",
        "importance.png",
    ]
    arrays = np.load(tmp_path / "figures.npz")
    assert arrays["positions"].shape == (4, 4, 4, 4)
    assert arrays["distance"].shape == arrays["importance_ablation"].shape == (2, 3)
    assert 0 < arrays["distance"].max() < math.hypot(16, 16)
    assert (tmp_path / "figures.html").read_text().count("data:image/png") == 4


def test_figures_of_weights_alone(run, invoke, tmp_path):
    status, out, err = invoke("figures", run / "run", "--out", tmp_path)
    assert status == 0
    assert "needs pictures, and is not shown: " in err
    assert "name the pictures" in err
    assert "distance" not in out


def test_figures_of_a_run_that_kept_models(invoke, tmp_path):
    words = ("--epochs", 2, "--model", "vit-pico/2", "--set", "train.keep=3", "--set", "train.batch=512")
    status, _, err = invoke("train", "digits", "--out", tmp_path / "run", *words)
    assert status == 0, err
    kept = sorted(path.name for path in (tmp_path / "run" / "history").iterdir())
    assert kept == ["00000000", "00000003", "00000006"]
    last = vt.load(tmp_path / "run" / "history" / kept[-1])
    for name, tensor in vt.load(tmp_path / "run").state_dict().items():
        assert torch.equal(tensor, last.state_dict()[name]), name
    status, out, err = invoke("figures", tmp_path / "run", "--out", tmp_path / "o", "--count", 20, "--no-ablation")
    assert status == 0, err
    for name in ("filters", "positions", "distance"):
        assert f"{name}-over-time.png" in out
    arrays = np.load(tmp_path / "o" / "figures.npz")
    assert arrays["steps"].tolist() == [0, 3, 6]
    np.testing.assert_allclose(arrays["distance_over_time"][-1], arrays["distance"].mean(1), rtol=1e-4)
    assert "importance_gradient" in arrays
    assert "importance_ablation" not in arrays


def test_walk_in_the_terminal_and_as_json(invoke, tmp_path):
    status, out, err = invoke("walk", "--causal", "--out", tmp_path / "new" / "walk.html")
    assert (status, out) == (0, f"{tmp_path / 'new' / 'walk.html'}\n")
    assert "Attention on four small vectors" in (tmp_path / "new" / "walk.html").read_text()
    status, out, err = invoke("walk", "--causal")
    assert status == 0, err
    order = ["q = x W_Q", "k = x W_K", "s = q kᵀ", "t = s / √2", "-∞", "A = softmax(m)", "v = x W_V", "z = A v"]
    places = [out.index(formula) for formula in (*order, "Z = [z_1, z_2]", "o = Z W_O", "r = x + o")]
    assert places == sorted(places)
    steps = {step["name"]: step for step in json.loads(invoke("walk", "--json", "--head", 2)[1])["steps"]}
    x, o, r = (np.array(steps[name]["values"]) for name in "xor")
    np.testing.assert_allclose(x + o, r, rtol=1e-5)


def test_walk_through_a_layer_of_a_run(run, invoke):
    picture = run / "pictures" / "ant" / "000.png"
    status, out, err = invoke("walk", "--run", run / "run", "--layer", 2, "--picture", picture, "--json")
    assert status == 0, err
    steps = {step["name"]: step for step in json.loads(out)["steps"]}
    model = vt.load(run / "run")
    from vitrail.tasks.pictures.predictor import Predictor, inputs_of

    predictor = Predictor.of(vt.run(run / "run").weights())
    ((_, pixels),) = predictor.decoded(inputs_of([str(picture)]))
    with torch.no_grad(), vt.record(model) as trace:
        model(predictor.image(pixels))
    np.testing.assert_allclose(steps["A"]["values"], trace.pattern(1)[0, 0], atol=1e-5)
    np.testing.assert_allclose(steps["r"]["values"], trace.residual()[3, 0], atol=1e-5)
    assert steps["x"]["rows"][:2] == ["class", "patch 1, 1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--layer", "3"), "layer 3 is not there; there are 2"),
        (("--head", "7"), "head 7 is not there; there are 3"),
        (("--picture", "nowhere.png"), "nowhere.png"),
        ((), "give a picture with --picture FILE"),
    ],
)
def test_mistakes_of_walk(run, invoke, words, said):
    given = () if not words or "--picture" in words else ("--picture", run / "pictures" / "ant" / "000.png")
    status, out, err = invoke("walk", "--run", run / "run", *words, *given)
    assert (status, out) == (1, "")
    assert said in err


@pytest.mark.parametrize("words", [("--layer", 2), ("--picture", "a.png")])
def test_what_is_of_a_run_needs_one(invoke, words):
    status, out, err = invoke("walk", *words)
    assert (status, out) == (1, "")
    assert "add --run RUN" in err


def test_no_picture_is_written_over(run, invoke, tmp_path):
    """Where the pages would go, a picture may have the name of one of them."""
    picture = tmp_path / "cat-heads.png"
    picture.write_bytes((run / "pictures" / "ant" / "000.png").read_bytes())
    before = picture.read_bytes()
    status, _, err = invoke("explain", run / "run", tmp_path, "--out", tmp_path)
    assert status == 1
    assert "choose another --out" in err
    assert picture.read_bytes() == before


def test_nothing_is_written_over_without_force(run, invoke, tmp_path):
    """Of a user's own files; what a command wrote before, it may write again."""
    photo = shutil.copy(next((run / "pictures").rglob("*.png")), tmp_path / "p.png")
    before = photo.read_bytes()
    for words in (
        ("walk", "--run", run / "run", "--picture", photo, "--out", photo),
        ("embed", run / "run", photo, "--out", tmp_path / "mine.npz"),
        ("convert", run / "run", tmp_path / "mine.npz", "--format", "npz"),
    ):
        (tmp_path / "mine.npz").write_bytes(b"precious")
        status, _, said = invoke(*words)
        assert status == 1
        assert "is there already, and is left alone; choose another" in said
        assert "--force" in said
        assert (photo.read_bytes(), (tmp_path / "mine.npz").read_bytes()) == (before, b"precious")
    assert invoke("embed", run / "run", photo, "--out", tmp_path / "mine.npz", "--force")[0] == 0
    assert (tmp_path / "mine.npz").read_bytes() != b"precious"
    out = tmp_path / "out"
    for words, name in (
        (("explain", run / "run", photo, "--steps", "0"), "p.html"),
        (("figures", run / "run"), "figures.html"),
    ):
        out.mkdir(exist_ok=True)
        (out / name).write_bytes(b"precious")
        status, _, said = invoke(*words, "--out", out)
        assert (status, (out / name).read_bytes()) == (1, b"precious")
        assert f"{name}' is there already" in said
        assert invoke(*words, "--out", out, "--force")[0] == 0
        assert (out / name).read_bytes() != b"precious"
        assert invoke(*words, "--out", out)[0] == 0  # its own


def test_everything_can_be_read_by_others(run):
    modes = {path.name: path.stat().st_mode & 0o777 for path in (run / "run").iterdir() if path.is_file()}
    assert set(modes.values()) == {0o666 & ~os.umask(os.umask(0o022))}


def test_the_index_is_there_after_each_picture(run, invoke, tmp_path, monkeypatch):
    import vitrail.report.explain as report

    pictures, own, seen = sorted((run / "pictures").rglob("*.png"))[:3], report.write_explanation, []

    def watched(folder, name, *args, **kwargs):
        index = tmp_path / "out" / "index.html"
        seen.append(index.read_text().count("<a href") if index.exists() else 0)
        return own(folder, name, *args, **kwargs)

    monkeypatch.setattr(report, "write_explanation", watched)
    assert invoke("explain", run / "run", *pictures, "--out", tmp_path / "out", "--steps", "0")[0] == 0
    assert seen[0] == 0 < seen[1] < seen[2]


def test_an_empty_folder_gets_a_sentence(run, invoke, tmp_path):
    (tmp_path / "empty").mkdir()
    status, _, err = invoke("explain", run / "run", tmp_path / "empty", "--out", tmp_path / "o")
    assert status == 1
    assert "is a folder with no file in it; give pictures" in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "name", [b"\xff\xfe", b"50% #1 'x' \"y\" <b>", "é中文".encode(), b"n" * 240, ("中" * 80).encode()]
)
def test_odd_names(run, invoke, tmp_path, name):
    folder = tmp_path / "p"
    folder.mkdir()
    data = (run / "pictures" / "ant" / "000.png").read_bytes()
    for place in (name, b"plain"):
        (folder / os.fsdecode(place + b".png")).write_bytes(data)
    words = ("--out", tmp_path / "o", "--steps", 0, "--method", "attention")
    status, _, err = invoke("explain", run / "run", folder, *words)
    assert status == 0, err
    assert len(list((tmp_path / "o").glob("*.html"))) == 3


def test_odd_classes(invoke, run, tmp_path):
    """Names that a drawing library would take for formulas, or has no letters for."""
    model = vt.build("vit", image=8, patch=4, width=24, depth=1, heads=3, classes=3)
    names = ("a$\\frac$", "cost $x$", "中文")
    vt.save(model, tmp_path / "run", labels=names, normalise=((0.5,) * 3, (0.5,) * 3))
    for number, label in enumerate(names):
        words = ("--class", label, "--steps", 0, "--method", "attention", "--out", tmp_path / str(number))
        status, _, err = invoke("explain", tmp_path / "run", run / "pictures" / "ant" / "000.png", *words)
        assert status == 0, err


def test_a_kept_model_that_is_broken_is_noted(run, invoke, tmp_path):
    import shutil

    shutil.copytree(run / "run", tmp_path / "run")
    shutil.copytree(run / "run", tmp_path / "run" / "history" / "00000010")
    (tmp_path / "run" / "history" / "00000020").mkdir()
    status, out, err = invoke("figures", tmp_path / "run", run / "pictures", "--out", tmp_path / "o")
    assert status == 0, err
    assert "00000020" in err
    assert "positions-over-time.png" in out


def test_how_colours_are_normalised_can_be_said_of_a_grey_model(invoke, tmp_path):
    vt.save(vt.build("vit-pico/2"), tmp_path / "w")
    Image.new("L", (8, 8), 99).save(tmp_path / "grey.png")
    status, out, err = invoke("predict", tmp_path / "w", tmp_path / "grey.png", "--normalise", "imagenet")
    assert status == 0, err
    assert "grey.png" in out
