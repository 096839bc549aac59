"""Comparisons: every cell an ordinary run, none of them twice, and nothing mixed in silence."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vitrail.compare import compare
from vitrail.compare.asked import Asked
from vitrail.compare.cells import cells
from vitrail.compare.comparing import Comparing
from vitrail.compare.experiments import Arm, Base, experiments, over_fractions, varied
from vitrail.errors import InputError
from vitrail.families import configure, cost
from vitrail.files import read_json, write_json
from vitrail.runs import Run
from vitrail.tasks import parse_recipe

TINY = {"model.width": 16, "model.heads": 2, "model.hidden": 32, "train.epochs": 1, "data.use": 0.3}
VIT = {"image": 28, "patch": 4, "channels": 1, "classes": 10, "width": 64, "depth": 4, "heads": 2, "hidden": 128}


@pytest.fixture(scope="module")
def done(once):
    """Two depths with two seeds."""
    return (
        once(
            "compared",
            lambda folder: compare(
                "digits", vary={"model.depth": [1, 2]}, seeds=2, out=folder / "c", settings=TINY, quiet=True
            ),
        )
        / "c"
    )


def test_cells_are_ordinary_runs_and_their_numbers_are_those_told(done):
    state = read_json(done / "compare.json")
    assert [arm["name"] for arm in state["arms"]] == ["model.depth=1", "model.depth=2"]
    with (done / "compare.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    for row in rows:
        folder = done / "cells" / row["arm"] / f"1-seed-{row['seed']}"
        run = Run(folder)
        assert float(row["accuracy"]) == run.result["accuracy"] == pytest.approx(run.evaluate().values["accuracy"])
        assert run.recipe.train.seed == int(row["seed"])
        assert run.weights().config.depth == int(row["arm"][-1])
        assert int(row["parameters"]) == run.result["parameters"]
        assert not (folder / "checkpoints").exists()
    (apart,) = state["differences"]
    own = {(row["arm"][-1], row["seed"]): float(row["accuracy"]) for row in rows}
    expected = [own["2", seed] - own["1", seed] for seed in "01"]
    assert apart["mean"]["value"] == pytest.approx(sum(expected) / 2)
    assert "compare.csv" in (done / "compare.html").read_text()


def test_nothing_is_run_twice_and_more_seeds_add_cells(done, monkeypatch):
    """The same again runs nothing; another seed runs what is new."""
    asked = Asked(("digits",), 2, vary=("model.depth=1,2",), settings=tuple(f"{k}={v}" for k, v in TINY.items()))
    before, wanted = read_json(done / "compare.json"), []
    monkeypatch.setattr("vitrail.compare.comparing.run_all", lambda folders, *_: wanted.extend(folders) or iter(()))
    assert Comparing(asked, done, quiet=True).run()["cells"] == before["cells"]
    assert wanted == []
    more = Asked(("digits",), 3, vary=asked.vary, settings=asked.settings)
    Comparing(more, done, quiet=True).run()
    assert sorted(folder.name for folder in wanted) == ["1-seed-2", "1-seed-2"]


def test_what_is_not_comparable_is_not_mixed_in_silence(done):
    asked = Asked(("digits",), 2, vary=("model.depth=1,2",), settings=tuple(f"{k}={v}" for k, v in TINY.items()))
    cell = done / "cells" / "model.depth=1" / "1-seed-0" / "cell.json"
    whole = read_json(cell)
    for name in ("code", "data", "recipe"):
        write_json(cell, {**whole, name: "other"})
        with pytest.raises(InputError, match=r"by another .*--again"):
            Comparing(asked, done, quiet=True).run()
    write_json(cell, whole)
    with pytest.raises(InputError, match="holds another comparison"):
        Comparing(Asked(("digits",), vary=("model.depth=1,3",)), done, quiet=True).run()


def test_a_cell_that_fails_is_named_and_the_others_go_on(tmp_path):
    state = compare("digits", vary=["model.heads=2,3"], seeds=1, out=tmp_path / "c", settings=TINY, quiet=True)
    assert [arm["name"] for arm in state["arms"]] == ["model.heads=2"]
    (name,) = state["failed"]
    assert name.startswith("model.heads=3")
    assert "heads" in state["failed"][name]
    assert "Failed" in (tmp_path / "c" / "compare.html").read_text()
    assert "nothing" not in state["sentences"]


def test_what_is_wrong_is_said():
    for words, says in (
        (("positons",), "is no experiment"),
        (("positions", "digits"), "above 0 and at most 1"),
        ((), "is no experiment"),
    ):
        fractions = (2.0,) if "at most" in says else ()
        with pytest.raises(InputError, match=says):
            Comparing(Asked(words, fractions=fractions), quiet=True)
    with pytest.raises(InputError, match="varies nothing"):
        varied(["model.depth=2"])
    with pytest.raises(InputError, match="leave --fractions out"):
        Comparing(Asked(("norms", "digits"), fractions=(0.1,)), quiet=True)


def test_several_things_are_varied_together():
    names = [arm.name for arm in varied(["model.depth=2,4", "optim.lr=1e-3,1e-2"])]
    assert names == [
        "model.depth=2, optim.lr=1e-3",
        "model.depth=2, optim.lr=1e-2",
        "model.depth=4, optim.lr=1e-3",
        "model.depth=4, optim.lr=1e-2",
    ]
    assert varied(["train.ema=0.0,0.9"])[1].fields == {"train.ema": 0.9}
    first = cells([Arm("a"), Arm("b")], 2, [0.1, 1.0])
    assert [(cell.arm.name, cell.at, cell.seed) for cell in first[:3]] == [("a", 0.1, 0), ("b", 0.1, 0), ("a", 1.0, 0)]


@pytest.mark.parametrize("name", list(experiments))
def test_every_experiment_is_of_recipes_that_can_be(name):
    """Each arm's recipe is one, and its model can be built, for small pictures and larger ones."""
    for fields in (VIT, {**VIT, "image": 8, "patch": 2}, {**VIT, "image": 64, "patch": 8, "channels": 3}):
        config = configure("vit", **fields)
        experiment = experiments[name](Base(config, 5_000))
        assert len(experiment.arms) > 1
        base = {"data": {"source": "digits"}, "model": {"name": "vit", **fields}}
        base["model"].pop("classes")
        for cell in cells(experiment.arms, 1, (experiment.axis.values if experiment.axis else [1.0])[:1]):
            recipe = parse_recipe(cell.table(base, experiment.axis or over_fractions([1.0]), experiment.shared))
            given = {key: value for key, value in recipe.model.items() if key != "name"}
            configure(recipe.model.get("name", "vit"), **{"classes": 10, **given})


def test_models_are_matched_by_what_they_cost():
    config = configure("vit", **VIT)
    plain = config.model_copy(update={"stem": "patch"}).cost()
    for arm in experiments["models"](Base(config, 5_000)).arms[1:]:
        fields = {name.removeprefix("model."): value for name, value in arm.fields.items() if name.startswith("model.")}
        found = configure(fields.pop("name"), **{"classes": 10, **fields})
        own = found.cost()
        if own is None:
            own = cost(found)
        by = "multiply_adds" if "multiply" in arm.name else "parameters"
        assert getattr(own, by) == pytest.approx(getattr(plain, by), rel=0.15)


def _read(file):
    try:
        return file.read_bytes()
    except OSError:  # of a process that has ended
        return b""


def test_a_comparison_that_is_killed_goes_on(tmp_path):
    """With SIGINT its cells stop too, and write how far they came; the same command ends what was begun."""
    out = tmp_path / "c"
    settings = {**TINY, "train.epochs": 400, "train.checkpoint": 0.0}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "vitrail", "compare", "digits", "--vary", "model.depth=1,2", "--seeds", "1"]
    command += ["--out", str(out), *words]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    began = time.monotonic()
    while not list(out.glob("cells/*/*/checkpoints/*")) and time.monotonic() - began < 120:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with" in said.decode()
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(out).encode() in _read(one)]
    assert not list(out.glob("cells/*/*/cell.json"))
    assert json.loads((out / "compare.json").read_text())["finished"] is False
