"""Comparisons: every cell an ordinary run, none of them twice, and nothing mixed in silence."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from texts import TEXT, write_text

from vitrail.compare import compare
from vitrail.compare.cell import WRONG
from vitrail.compare.cell import main as cell_process
from vitrail.compare.cells import cells
from vitrail.compare.comparison import Comparison
from vitrail.compare.experiments import Arm, Base, experiments, over_fractions, varied
from vitrail.compare.forecasts import START, Expected, together
from vitrail.compare.plan import planned, seldom
from vitrail.compare.request import Request
from vitrail.compare.sources import digest_of
from vitrail.errors import InputError
from vitrail.families import configure, cost_of
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
        folder = done / "cells" / row["arm"] / f"0.3-seed-{row['seed']}"
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
    assert (done / "compare.png").read_bytes().startswith(b"\x89PNG")


def test_nothing_is_run_twice_and_more_seeds_add_cells(done, monkeypatch):
    """The same again runs nothing; another seed runs what is new."""
    asked = Request(("digits",), 2, vary=("model.depth=1,2",), settings=tuple(f"{k}={v}" for k, v in TINY.items()))
    before, wanted = read_json(done / "compare.json"), []
    monkeypatch.setattr(
        "vitrail.compare.comparison.run_all", lambda folders, *_: wanted.extend(folders) or (one for one in ())
    )
    assert Comparison(asked, done, quiet=True).run()["cells"] == before["cells"]
    assert wanted == []
    more = Request(("digits",), 3, vary=asked.vary, settings=asked.settings)
    Comparison(more, done, quiet=True).run()
    assert sorted(folder.name for folder in wanted) == ["0.3-seed-2", "0.3-seed-2"]


def test_what_is_not_comparable_is_not_mixed_in_silence(done, tmp_path, monkeypatch, capsys):
    asked = Request(("digits",), 2, vary=("model.depth=1,2",), settings=tuple(f"{k}={v}" for k, v in TINY.items()))
    out = Path(shutil.copytree(done, tmp_path / "c"))
    cell = out / "cells" / "model.depth=1" / "0.3-seed-0" / "cell.json"
    whole = read_json(cell)
    for name in ("code", "data", "recipe"):
        write_json(cell, {**whole, "by": {**whole["by"], name: "other"}})
        with pytest.raises(InputError, match=rf"by other {name}.*--again"):
            Comparison(asked, out, quiet=True).run()
    with pytest.raises(InputError, match="holds another comparison"):
        Comparison(Request(("digits",), vary=("model.depth=1,3",)), out, quiet=True).run()
    begun = cell.parent.with_name(f"{cell.parent.name}.asked.json")
    cell.unlink()
    write_json(begun, {**read_json(begun), "by": {**whole["by"], "code": "other"}})
    monkeypatch.setattr("vitrail.compare.comparison.run_all", lambda *_: (one for one in ()))
    Comparison(asked, out).run()
    assert "model.depth=1/0.3-seed-0 was begun by other code, and begins anew" in capsys.readouterr().err
    assert not cell.parent.exists()


def test_a_cell_that_fails_is_named_and_the_others_go_on(tmp_path):
    settings = {name: value for name, value in TINY.items() if name != "model.heads"}
    state = compare("digits", vary=["model.heads=2,3"], seeds=1, out=tmp_path / "c", settings=settings, quiet=True)
    assert [arm["name"] for arm in state["arms"]] == ["model.heads=2"]
    (name,) = state["failed"]
    assert name.startswith("model.heads=3")
    assert "heads" in state["failed"][name]
    assert "Failed" in (tmp_path / "c" / "compare.html").read_text()
    assert state["sentences"] == []
    again = Comparison(
        Request(
            ("digits",),
            1,
            vary=("model.heads=2,3",),
            settings=tuple(f"{k}={v}" for k, v in settings.items()),
            only=("*=2",),
        ),
        tmp_path / "c",
        quiet=True,
    ).run()
    assert again["failed"] == state["failed"]  # which was not asked for again, and is not forgotten
    told = compare("digits", vary=["model.heads=2,3"], seeds=1, out=tmp_path / "c", settings=settings, quiet=True)
    assert told["failed"] == state["failed"]  # and neither is what the others came to
    assert told["cells"] == state["cells"]


def test_a_cell_whose_process_was_killed_is_named(tmp_path, monkeypatch):
    """As by the kernel, where memory runs out: it says nothing itself."""
    monkeypatch.setattr("vitrail.compare.comparison.run_all", lambda folders, *_: ((one, -9) for one in folders))
    state = compare("digits", vary=["model.depth=1,2"], seeds=1, out=tmp_path / "c", settings=TINY, quiet=True)
    assert len(state["failed"]) == 2
    assert state["sentences"] == ["No cell has come to a number yet."]
    for why in state["failed"].values():
        assert re.match(r"its process ended by SIGKILL, as where memory runs out; see '.*\.log'", why)


def test_a_cell_whose_number_is_none_has_failed(done, tmp_path):
    """Such as a loss that is infinite: a mean over the others would be another arm's."""
    shutil.copytree(done / "cells" / "model.depth=1", tmp_path / "arm")
    folder = tmp_path / "arm" / "0.3-seed-0"
    (folder / "cell.json").unlink()
    asked = folder.with_name(f"{folder.name}.asked.json")
    about = read_json(folder / "config.json")
    write_json(folder / "config.json", {**about, "result": {**about["result"], "accuracy": float("inf")}})
    assert cell_process(folder) == WRONG
    assert read_json(folder.with_name(f"{folder.name}.failed.json")) == {"why": "its accuracy is no number."}
    assert not (folder / "cell.json").exists()
    write_json(folder / "config.json", about)
    assert cell_process(folder) == 0
    assert read_json(folder / "cell.json")["by"] == read_json(asked)["by"]


def test_some_arms_alone_are_run_and_others_are_added(tmp_path, monkeypatch):
    wanted = []
    monkeypatch.setattr(
        "vitrail.compare.comparison.run_all", lambda folders, *_: wanted.extend(folders) or (one for one in ())
    )
    settings = tuple(f"{name}={value}" for name, value in TINY.items())
    asked = Request(("digits",), 1, vary=("model.depth=1,2,3",), settings=settings, only=("*=1", "*=2"))
    Comparison(asked, tmp_path / "c", quiet=True).run()
    assert [folder.parent.name for folder in wanted] == ["model.depth=1", "model.depth=2"]
    wanted.clear()
    more = Comparison(replace(asked, only=("*=3",)), tmp_path / "c", quiet=True)
    more.run()
    assert [folder.parent.name for folder in wanted] == ["model.depth=3"]
    assert len(more.plan.experiment.arms) == 3
    with pytest.raises(InputError, match=r"--only 'deep' is none of what is compared: model\.depth=1; model\.depth=2"):
        Comparison(replace(asked, only=("deep",)), tmp_path / "other", quiet=True)


def test_what_is_wrong_is_said():
    for words, says in (
        (("positons",), "is no experiment; did you mean 'positions'"),
        (("holidays",), "is no experiment; choose one of positions"),
        (("positions", "digits"), "above 0 and at most 1"),
        ((), "nothing is said that could be compared; choose one of positions"),
        (("digits", "models"), "it comes first: vitrail compare models digits"),
        (("depth", "digits", "--set", "model.depth=3"), "is what is compared"),
        (("depth", "digits", "--set", "train.seed=3"), "is what cells differ by"),
    ):
        fractions = (2.0,) if "at most" in says else ()
        settings = words[3:]
        with pytest.raises(InputError, match=says):
            Comparison(Request(words[:2], fractions=fractions, settings=settings), quiet=True)
    with pytest.raises(InputError, match="different examples"):
        Comparison(Request(("digits",), vary=("data.seed=1,2",)), quiet=True)
    with pytest.raises(InputError, match="varies nothing"):
        varied(["model.depth=2"])
    with pytest.raises(InputError, match="leave --fractions out"):
        Comparison(Request(("norms", "digits"), fractions=(0.1,)), quiet=True)


def test_what_no_cell_can_do_is_said_before_any_begins(tmp_path):
    asked = Request(("digits",), vary=("model.depht=1,2",))
    with pytest.raises(InputError, match=r"did you mean 'model\.depth'"):
        Comparison(asked, tmp_path / "c", quiet=True).run()
    assert not (tmp_path / "c" / "cells").exists()


def test_comparisons_of_other_things_are_in_folders_of_their_own(tmp_path, monkeypatch):
    (tmp_path / "My photos").mkdir()
    monkeypatch.chdir(tmp_path / "My photos")
    for what, vary, name in (
        (("positions",), (), "compare-positions"),
        (("models", "a/Photos/"), (), "compare-models-photos"),
        (("models", "."), (), "compare-models-my-photos"),
        (("digits",), ("model.depth=1,2", "optim.lr=1e-3,1e-2"), "compare-digits-model.depth-optim.lr"),
        (("x/a.toml", "x/b.toml"), (), "compare-a-b"),
    ):
        assert Request(what, vary=vary).folder == name


def test_several_things_are_varied_together():
    names = [arm.name for arm in varied(["model.depth=2,4", "optim.lr=1e-3,1e-2"])]
    assert names == [
        "model.depth=2, optim.lr=1e-3",
        "model.depth=2, optim.lr=1e-2",
        "model.depth=4, optim.lr=1e-3",
        "model.depth=4, optim.lr=1e-2",
    ]
    assert varied(["train.ema=0.0,0.9"])[1].fields == {"train.ema": 0.9}
    lists = [arm.fields["model.units"] for arm in varied(["model.units=[2,2],[3,3]"])]
    assert lists == [[2, 2], [3, 3]]
    with pytest.raises(InputError, match="--seeds"):
        varied(["train.seed=1,2"])


def test_cells_have_folders_of_their_own():
    """Also arms whose names differ by signs alone, or have none that a path may have."""
    axis = over_fractions([0.1, 1.0])
    found = cells([Arm("a b"), Arm("a-b"), Arm("ж")], 2, axis)
    names = [cell.name for cell in found]
    assert len(set(names)) == len(names) == 12
    assert all(not name.startswith("/") for name in names)
    assert [(cell.arm.name, cell.at, cell.seed) for cell in found[2:5]] == [
        ("ж", 0.1, 0),
        ("a b", 1.0, 0),
        ("a-b", 1.0, 0),
    ]


@pytest.mark.parametrize("name", list(experiments))
@pytest.mark.parametrize("fields", [VIT, {**VIT, "image": 8, "patch": 2}, {**VIT, "image": 64, "patch": 8}])
def test_every_experiment_is_of_recipes_that_can_be(name, fields):
    """Each arm's recipe is one, and its model can be built, for small pictures and larger ones."""
    compared = {"depth": "depth", "heads": "heads", "patches": "patch", "generative": "image"}.get(name, "")
    settings = tuple(f"model.{key}={value}" for key, value in fields.items() if key not in ("classes", compared))
    plan = planned(Request((name, "digits"), seeds=1, settings=settings))
    assert len(plan.experiment.arms) > 1
    for cell, table in plan.tables.items():
        recipe = parse_recipe(table)
        given = {key: value for key, value in recipe.model.items() if key != "name"}
        config = configure(recipe.model.get("name", "vit"), **{"classes": 10, **given})
        assert cost_of(config).parameters > 0  # which is counted before cells begin
        assert recipe.train.seed == cell.seed


def test_arms_of_one_comparison_have_the_same_shape_at_every_fraction():
    """What data chooses for a model is chosen once, for all of it."""
    plan = planned(Request(("positions", "digits"), seeds=1, fractions=(0.01, 1.0)))
    shapes = {json.dumps({**table["model"], "position": ""}, sort_keys=True) for table in plan.tables.values()}
    assert len(shapes) == 1


def test_fewer_pictures_are_seen_more_often(tmp_path):
    """Epochs that a recipe says grow with the root of how few pictures there are; those that are set are for all."""
    asked = Request(("positions", "digits"), seeds=1, fractions=(0.01, 0.25, 1.0))
    found = {cell.at: table["train"]["epochs"] for cell, table in planned(asked).tables.items()}
    assert found == {0.01: 500, 0.25: 100, 1.0: 50}
    same = planned(replace(asked, settings=("train.epochs=7",)))
    assert {table["train"]["epochs"] for table in same.tables.values()} == {7}
    varied = planned(Request(("digits",), seeds=1, fractions=(0.25,), vary=("train.epochs=3,6",)))
    assert [table["train"]["epochs"] for table in varied.tables.values()] == [3, 6]
    often = Comparison(Request(("digits",), seeds=1, vary=("train.evaluate=1,2",)), tmp_path, quiet=True)
    assert [table["train"]["evaluate"] for table in often._seldom(often.plan.tables).values()] == [1, 2]
    (tmp_path / "a.toml").write_text('[data]\nsource = "digits"\n[train]\nepochs = 9\n')
    (tmp_path / "b.toml").write_text('[data]\nsource = "digits"\n[train]\nepochs = 18\n')
    recipes = planned(Request((f"{tmp_path}/a.toml", f"{tmp_path}/b.toml"), seeds=1, fractions=(0.09,)))
    assert [table["train"]["epochs"] for table in recipes.tables.values()] == [30, 60]
    assert seldom({"train": {"epochs": 500, "evaluate": 5}})["train"]["evaluate"] == 100
    assert seldom({"train": {"epochs": 4}})["train"]["evaluate"] == 1
    assert seldom({"train": {}}) == {"train": {}}


def test_time_is_shared_by_one_factor_that_stays(tmp_path, monkeypatch):
    """All cells take as long together as was asked for; what is added later has the same factor, not a new one."""
    monkeypatch.setattr("vitrail.compare.comparison.expected", lambda *_, **__: Expected(50, START + 100.0))
    asked = Request(("digits",), 3, vary=("model.depth=1,2",), minutes=2.05, workers=2)
    first = Comparison(asked, tmp_path, quiet=True)
    tables = first._pinned(first.plan.tables)
    (epochs,) = {table["train"]["epochs"] for table in tables.values()}
    assert epochs == round(50 * first.pace)
    three_rounds = [3 * (START + 2.0 * count) for count in (epochs, epochs + 1)]  # of two cells at a time
    assert three_rounds[0] <= 123 < three_rounds[1]
    first.store.write({"asked": asked.same(), "pace": first.pace, "pinned": first.pinned, "seeds": 3})
    more = Comparison(replace(asked, seeds=9, fractions=(0.5, 1.0)), tmp_path, quiet=True)
    again = more._pinned(more.plan.tables)
    assert len(again) == 2 * 2 * 9
    assert more.pace == first.pace
    assert {table["train"]["epochs"] for table in again.values()} == {round(50 * first.pace)}
    hurried = Comparison(replace(asked, minutes=0.1), tmp_path / "hurried", quiet=True)
    with pytest.raises(InputError, match=r"with one epoch each, 6 cells take about 18 s; give --minutes 2 or more"):
        hurried._pinned(hurried.plan.tables)
    plenty = Comparison(replace(asked, minutes=1e4), tmp_path / "other", quiet=True)
    assert {table["train"]["epochs"] for table in plenty._pinned(plenty.plan.tables).values()} == {50}


def test_what_could_not_be_tried_has_the_same_factor_later(tmp_path, monkeypatch):
    """Such as a shape there was no memory for: it is cut as all others are, once it can be."""
    found = {1: Expected(50, START + 100.0), 2: Expected(0, START, wrong="too large")}
    monkeypatch.setattr("vitrail.compare.comparison.expected", lambda table, *_, **__: found[table["model"]["depth"]])
    asked = Request(("digits",), 3, vary=("model.depth=1,2",), minutes=2, workers=2)
    first = Comparison(asked, tmp_path, quiet=True)
    first._pinned(first.plan.tables)
    first.store.write({"asked": asked.same(), "pace": first.pace, "pinned": first.pinned, "seeds": 3})
    found[2] = found[1]
    again = Comparison(asked, tmp_path, quiet=True)
    (epochs,) = {table["train"]["epochs"] for table in again._pinned(again.plan.tables).values()}
    assert epochs == round(50 * first.pace)


def test_minutes_of_recipes_are_shared_by_all(tmp_path):
    """The clock of a recipe would end each cell by what the others do: together they have as long."""
    asked = Request(("topics",), seeds=2, vary=("model.depth=2,4",))
    plan = planned(asked)
    assert plan.minutes == 4 * len(plan.tables) == 16
    assert not any("minutes" in table["train"] for table in plan.tables.values())
    (tmp_path / "a.toml").write_text('[data]\nsource = "digits"\n[train]\nminutes = 2\n')
    (tmp_path / "b.toml").write_text('[data]\nsource = "digits"\n')
    with pytest.raises(InputError, match=r"minutes \(train\.minutes\); give --minutes"):
        planned(Request((f"{tmp_path}/a.toml", f"{tmp_path}/b.toml")))
    with pytest.raises(InputError, match=r"train\.minutes is what --minutes is for"):
        planned(replace(asked, vary=("train.minutes=1,2",)))


def test_what_is_counted_otherwise_is_not_compared(tmp_path):
    with pytest.raises(InputError, match=r"by numbers of other things \(data\.colours\)"):
        planned(Request(("igpt",), vary=("data.colours=8,32",)))
    text = write_text(tmp_path / "some.txt")
    settings = tuple(f"{name}={value}" for name, value in TEXT.items() if name not in ("model.name", "model.causal"))
    bert = (*settings, "model.name=bert")
    for vary, field in (("hidden.rate=0.15,0.4", "hidden.rate"), ("data.vocabulary=100,200", "data.vocabulary")):
        with pytest.raises(InputError, match=rf"by numbers of other things \({re.escape(field)}\)"):
            planned(Request((text,), vary=(vary,), settings=bert))
    with pytest.raises(InputError, match=r"judged by (nats|loss), others by (nats|loss)"):
        planned(Request((text,), vary=("model.name=gpt,bert",), settings=settings))


@pytest.mark.parametrize(
    ("what", "only", "setting"),
    [
        (("augment", "digits"), ("moved",), "augment.shift=0.3"),
        (("generative", "digits"), (), "augment.shift=0.3"),
        (("depth", "digits"), ("2 layers",), "model.depth=3"),
    ],
)
def test_what_arms_differ_by_is_not_set_for_all(what, only, setting):
    with pytest.raises(InputError, match="is what is compared"):
        planned(Request(what, only=only, settings=(setting,)))


def test_the_size_of_pictures_is_the_same_said_once_or_twice():
    plan = planned(Request(("generative", "digits"), seeds=1, settings=("model.image=[8, 8]",)))
    assert len(plan.tables) == 6


def test_a_name_is_itself_whatever_signs_are_in_it():
    asked = Request((), only=('model.kernel=["softmax"]',))
    assert asked.wants('model.kernel=["softmax"]')
    assert not asked.wants('model.kernel=["relu"]')


def test_a_folder_in_the_pictures_is_refused(tmp_path, monkeypatch):
    """It would become a class of them."""
    for label in "ab":
        for number in range(8):
            picture = tmp_path / "photos" / label / f"{number}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 16 * number + (label == "a")).save(picture)
    monkeypatch.chdir(tmp_path / "photos")
    with pytest.raises(InputError, match=r"is in '.*photos', which is learned from.*choose another --out"):
        Comparison(Request((".",), 1, vary=("model.depth=1,2",)), quiet=True).run()
    assert sorted(one.name for one in Path().iterdir()) == ["a", "b"]
    sources = ("pictures", str(tmp_path / "photos"))
    before = digest_of(sources)
    for junk in ("Thumbs.db", ".git/index", "a/desktop.ini", "__MACOSX/a/0.png"):
        (tmp_path / "photos" / junk).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "photos" / junk).write_text("what systems leave behind")
        assert digest_of(sources) == before
    (tmp_path / "photos" / "a" / "0.png").write_bytes(b"other")
    assert digest_of(sources) != before


def test_as_many_cells_at_a_time_as_there_is_memory_for(monkeypatch):
    cells = [Expected(1, 1.0, memory=2**30), Expected(1, 1.0, memory=3 * 2**30)]
    for free, many in ((64, 8), (16, 4), (5, 1), (1, 1)):
        monkeypatch.setattr("vitrail.compare.forecasts.available_memory", lambda free=free: free * 2**30)
        assert together(8, cells) == many
    monkeypatch.setattr("vitrail.compare.forecasts.available_memory", lambda: None)
    assert together(8, cells) == 8


def test_what_cells_take_is_said_and_refused_where_there_is_no_room(tmp_path, monkeypatch, capsys):
    asked = Request(("digits",), 2, vary=("model.depth=1,2",), settings=tuple(f"{k}={v}" for k, v in TINY.items()))
    monkeypatch.setattr("vitrail.compare.comparison.run_all", lambda *_: (one for one in ()))
    Comparison(asked, tmp_path / "c").run()
    assert re.search(
        r"4 cells: 2 arms x 2 seeds, in .*\nabout \d+ s with \d at a time, and \d+ MB", capsys.readouterr().err
    )
    Comparison(replace(asked, only=("*=2",)), tmp_path / "c").run()
    assert "4 cells: 2 arms x 2 seeds, 2 of them left for later, in" in capsys.readouterr().err
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**30 + 10))
    with pytest.raises(InputError, match=r"4 cells take about .* GB, and 1.1 GB are free"):
        Comparison(asked, tmp_path / "c", quiet=True).run()


def test_the_page_opens(done, opened):
    with opened(done / "compare.html") as page:
        assert page.locator("h1").inner_text() == "vary, compared"
        assert page.locator("svg").count() > 0


def test_other_tasks_have_numbers_of_their_own(tmp_path):
    """Any field of theirs can be varied; fractions are of pictures."""
    text = write_text(tmp_path / "some.txt")
    settings = tuple(f"{name}={value}" for name, value in TEXT.items() if name != "model.depth")
    asked = Request((text,), vary=("model.depth=1,2",), settings=settings)
    assert planned(asked).metric.name == "nats"
    with pytest.raises(InputError, match="are of pictures"):
        planned(replace(asked, fractions=(0.1, 1.0)))


@pytest.mark.parametrize("fields", [VIT, {**VIT, "image": 8, "patch": 2}, {**VIT, "image": 64, "patch": 8}])
def test_models_are_matched_by_what_they_cost(fields):
    config = configure("vit", **fields)
    plain = config.model_copy(update={"stem": "patch"}).cost()
    for arm in experiments["models"](Base(config, 5_000)).arms[1:]:
        given = {name.removeprefix("model."): value for name, value in arm.fields.items() if name.startswith("model.")}
        own = cost_of(configure(given.pop("name"), **{"classes": 10, **given}))
        for by in ("multiply_adds", "parameters"):
            if by.replace("_", "-") in arm.name or "both" in arm.name:
                assert getattr(own, by) == pytest.approx(getattr(plain, by), rel=0.2)


def test_what_no_model_can_match_is_left_out_and_said():
    """The convolutions of a hybrid of 64 pixels alone take more multiply-adds than a small ViT."""
    experiment = experiments["models"](Base(configure("vit", **{**VIT, "image": 64, "patch": 8}), 5_000))
    names = [arm.name for arm in experiment.arms]
    assert "hybrid, as many parameters" in names
    assert "hybrid, as many multiply-adds" not in names
    assert "No hybrid has as many multiply-adds as the ViT." in experiment.notes
    odd = experiments["models"](Base(configure("vit", **{**VIT, "patch": 7}), 5_000))
    assert [arm.name.partition(",")[0] for arm in odd.arms[1:]] == ["residual CNN"] * 2 + ["plain CNN"] * 2
    assert len(odd.notes) == 2


def _read(file):
    try:
        return file.read_bytes()
    except OSError:  # of a process that has ended
        return b""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_comparison_that_is_stopped_leaves_nothing_running(tmp_path, how):
    """Its cells stop too, and write how far they came; the command that goes on with it is said."""
    out = tmp_path / "c"
    settings = {**TINY, "train.epochs": 400, "train.checkpoint": 0.0}
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "vitrail", "compare", "digits", "--vary", "model.depth=1,2", "--seeds", "1"]
    command += ["--out", str(out), *words]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    began = time.monotonic()
    while not list(out.glob("cells/*/*/checkpoints/*")) and time.monotonic() - began < 120:
        time.sleep(0.1)
    os.kill(process.pid, how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "go on with" in said.decode()
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if str(out).encode() in _read(one)]
    assert not list(out.glob("cells/*/*/cell.json"))
    assert json.loads((out / "compare.json").read_text())["finished"] is False
