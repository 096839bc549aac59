"""A training from Python, in the time it is given, of the layers it is told, and what is kept of it."""

import json
import shutil
import time

import pytest
import torch
from corpus import write_classes
from processes import vitrail
from safetensors.torch import load_file

import vitrail as vt
from vitrail.tasks.pictures.model import read_weights
from vitrail.training.checkpoint import unpack

SHAPE = {"model.image": 12, "model.patch": 4, "model.width": 16, "model.depth": 3, "model.heads": 2}
WEIGHTS = {"image": 12, "patch": 4, "width": 16, "depth": 3, "heads": 2, "hidden": 32, "classes": 4}


@pytest.fixture(scope="module")
def pictures(once):
    return once("trainer", lambda folder: write_classes(folder / "all", {"ant": 20, "bee": 20, "cow": 20})) / "all"


@pytest.fixture(scope="module")
def parts(once):
    """With pictures to validate on, and others to test on."""

    def make(folder):
        for part, count, seed in (("train", 12, 0), ("val", 6, 1), ("test", 5, 2)):
            write_classes(folder / part, {"ant": count, "bee": count}, seed=seed)

    return once("trainer-parts", make)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    vt.save(vt.build("vit", **WEIGHTS), path, "timm", normalise="half")
    return path


def test_from_python_it_is_the_verb(pictures, tmp_path, capsys):
    run = vt.train(pictures, out=tmp_path / "here", epochs=2, settings=SHAPE, quiet=True)
    assert capsys.readouterr() == ("", "")
    words = [word for name, value in SHAPE.items() for word in ("--set", f"{name}={value}")]
    assert vitrail("train", pictures, "--out", tmp_path / "there", "--epochs", 2, *words).returncode == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("here", "there"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert run.evaluate().values["accuracy"] == run.result["accuracy"]
    assert len(run.predict(pictures / "bee")) == 20


def test_a_head_alone_from_python(pictures, weights, tmp_path):
    run = vt.train(pictures, weights=weights, freeze=True, out=tmp_path / "run", quiet=True)
    assert run.result["steps"] == 0
    assert run.recipe.weights.freeze
    before, after = load_file(weights), run.weights().state
    assert torch.equal(after["encoder.0.attention.f.out.weight"], before["blocks.0.attn.proj.weight"])


def test_the_last_layers_alone_learn(pictures, weights, tmp_path):
    how = {"weights": weights, "freeze": False, "epochs": 1, "quiet": True}
    run = vt.train(pictures, out=tmp_path / "run", settings={"weights.layers": 1, "train.ema": 0}, **how)
    before, after = load_file(weights), run.weights().state
    for number, held in enumerate((True, True, False)):
        one, other = after[f"encoder.{number}.attention.f.out.weight"], before[f"blocks.{number}.attn.proj.weight"]
        assert torch.equal(one, other) == held
    assert torch.equal(after["embed.stem.projection.weight"].flatten(), before["patch_embed.proj.weight"].flatten())
    assert not torch.equal(after["norm.weight"], before["norm.weight"])


def test_time_that_is_given_is_kept(pictures, tmp_path):
    """More epochs than there is time for; the rate still falls to nothing by the end, and more time goes on."""
    words = [word for name, value in SHAPE.items() for word in ("--set", f"{name}={value}")]
    words += ["--set", "train.checkpoint=0", "--epochs", "100000", "--set", "train.evaluate=1000"]
    began = time.monotonic()
    ran = vitrail("train", pictures, "--out", tmp_path / "run", "--minutes", "0.25", *words)
    took = time.monotonic() - began
    assert ran.returncode == 0, ran.stderr
    assert took < 20, "with some room for a busy machine"
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    rates = [step["lr"] for step in steps if "lr" in step]
    assert len(rates) > 50
    assert rates[-1] < 0.1 * max(rates)
    result = json.loads((tmp_path / "run" / "config.json").read_text())["result"]
    assert result["steps"] == len(rates) < 100_000
    again = vitrail("train", "--resume", "--out", tmp_path / "run", "--minutes", "0.25")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["steps"] == result["steps"]
    more = vitrail("train", "--resume", "--out", tmp_path / "run", "--minutes", "0.5")
    assert more.returncode == 0, more.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["steps"] > result["steps"]


def test_a_tuned_run_goes_on_from_where_it_was(pictures, weights, tmp_path):
    """The head that it began from was fitted, and is not fitted again: it may differ in a last bit."""
    words = ("--weights", weights, "--tune", "--set", "train.checkpoint=0")
    whole = vitrail("train", pictures, "--out", tmp_path / "whole", "--epochs", "4", *words)
    assert whole.returncode == 0, whole.stderr
    assert vitrail("train", pictures, "--out", tmp_path / "run", "--epochs", "4", *words).returncode == 0
    kept = sorted((tmp_path / "run" / "checkpoints").glob("*"))
    for path in kept[2:]:
        path.unlink()
    (tmp_path / "run" / "model.safetensors").unlink()
    ran = vitrail("train", "--resume", "--out", tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    assert "going on after step" in ran.stderr
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_unfinished_run_can_be_used(pictures, tmp_path):
    words = [word for name, value in SHAPE.items() for word in ("--set", f"{name}={value}")]
    ran = vitrail("train", pictures, "--out", tmp_path / "run", "--epochs", 2, "--set", "train.checkpoint=0", *words)
    assert ran.returncode == 0, ran.stderr
    finished = vitrail("predict", tmp_path / "run", pictures / "cow", "--json").stdout
    for name in ("model.safetensors", "config.json", "labels.json"):
        (tmp_path / "run" / name).unlink()
    said = vitrail("predict", tmp_path / "run", pictures / "cow", "--json")
    assert said.returncode == 0, said.stderr
    assert "the run has not finished: this is its model after step" in said.stderr
    assert said.stdout == finished
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    refused = vitrail("predict", tmp_path / "run", pictures / "cow")
    assert refused.returncode == 1
    assert "has not finished" in refused.stderr


def test_the_best_on_validation_is_kept_beside_the_last(parts, tmp_path):
    """With a rate that spoils what was learned, the best came before the last."""
    settings = {**SHAPE, "optim.name": "adamw", "optim.lr": 0.3, "train.ema": 0, "train.checkpoint": 0}
    settings["optim.warmup"] = 0.0
    run = vt.train(parts, out=tmp_path / "run", epochs=12, settings=settings, quiet=True)
    points = [(line["step"], line["accuracy"]) for line in run.metrics() if "epoch" in line]
    best = max(accuracy for _, accuracy in points)
    first = next(step for step, accuracy in points if accuracy == best)
    assert run.result["part"] == "validation"
    assert run.result["accuracy"] == best
    assert run.result["kept"] == (first if best > points[-1][1] else points[-1][0])
    assert points[-1][1] < best, "the test needs a run whose last model is not its best"
    last = vt.run(tmp_path / "run" / "last")
    assert last.recipe.train.epochs == 12
    assert not torch.equal(last.weights().state["head.logits.weight"], run.weights().state["head.logits.weight"])
    state = unpack(run.checkpoints.newest()[1])
    assert torch.equal(state["model"]["head.logits.weight"], last.weights().state["head.logits.weight"])
    assert state["best"]["step"] == first


def test_test_pictures_choose_nothing(pictures, tmp_path):
    settings = {**SHAPE, "optim.name": "adamw", "optim.lr": 0.3, "train.ema": 0}
    run = vt.train(pictures, out=tmp_path / "run", epochs=6, settings=settings, quiet=True)
    assert run.result["kept"] == run.result["steps"]
    assert not (tmp_path / "run" / "last").exists()


def test_a_preview_trains_nothing(pictures, tmp_path, opened):
    page = tmp_path / "page.html"
    ran = vitrail("train", pictures, "--preview", page, "--set", "augment.mixup=1.0", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "runs").exists()
    with opened(page) as shown:
        assert shown.locator("figure").count() == 4 * 16
        assert "%" in shown.locator("section").nth(1).inner_text()
    assert vitrail("train", pictures, "--preview", page, cwd=tmp_path).returncode == 1
    assert vitrail("train", pictures, "--preview", page, "--force", cwd=tmp_path).returncode == 0


def test_rates_are_tried(tmp_path):
    ran = vitrail("train", "digits", "--find-lr", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    rates = [rate for rate, _ in seen["points"]]
    assert rates == sorted(rates)
    assert min(rates) < seen["suggested"]["optim.lr"] < seen["least"] <= max(rates)
    both = seen["suggested"]["optim.muon"] / seen["suggested"]["optim.lr"]
    assert both == pytest.approx(3e-3 / seen["recipe"], rel=0.5), "to one digit each"
    assert not (tmp_path / "runs").exists()
    assert "try --set optim.lr=" in vitrail("train", "digits", "--find-lr", cwd=tmp_path).stdout


def test_several_processes_end_at_one_time(pictures, tmp_path):
    words = [word for name, value in SHAPE.items() for word in ("--set", f"{name}={value}")]
    words += ["--epochs", "100000", "--set", "train.evaluate=1000", "--processes", "2"]
    ran = vitrail("train", pictures, "--out", tmp_path / "run", "--minutes", "0.4", *words)
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["steps"] < 100_000


@pytest.mark.parametrize("given", [{"weights.head": "keep"}, {"weights.layers": 1}])
def test_a_wish_that_has_more_to_learn_than_a_head_is_kept(tmp_path, given):
    """Although so few pictures, with weights as wide, would have the head alone learn."""
    write_classes(tmp_path / "all", {"ant": 6, "bee": 6})
    torch.manual_seed(0)
    wide = vt.build("vit", **{**WEIGHTS, "width": 192, "depth": 1, "hidden": 8, "classes": 2})
    vt.save(wide, tmp_path / "wide.safetensors", "timm", normalise="half")
    how = {"weights": tmp_path / "wide.safetensors", "epochs": 1, "quiet": True}
    run = vt.train(tmp_path / "all", out=tmp_path / "run", settings=given, **how)
    assert not run.recipe.weights.freeze
    assert run.result["steps"] > 0
    with pytest.raises(vt.InputError, match="leave one of them out"):
        vt.train(tmp_path / "all", out=tmp_path / "no", settings=given, freeze=True, **how)
    with pytest.raises(vt.InputError, match=r"weights\.layers is of weights that are given"):
        vt.train(tmp_path / "all", out=tmp_path / "no", settings={"weights.layers": 1}, quiet=True)


def test_another_pooling_of_weights_is_another_head(pictures, weights, tmp_path):
    """A change that the weights are adapted to, and nothing that is said of their file; and the run goes on with it."""
    settings = {"model.pool": "mean", "train.checkpoint": 0}
    run = vt.train(
        pictures, out=tmp_path / "run", weights=weights, freeze=False, epochs=1, settings=settings, quiet=True
    )
    assert (run.weights().config.pool, run.recipe.model["pool"]) == ("mean", "mean")
    assert read_weights(run.recipe).config.pool == "class", "as the file has it"
    more = vt.train(out=tmp_path / "run", epochs=2, resume=True, quiet=True)
    assert more.result["epochs"] == 2
