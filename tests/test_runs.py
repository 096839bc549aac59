"""The run directory, from Python."""

import json
import shutil

import pytest
import torch
from corpus import write_classes
from processes import vitrail

import vitrail as vt
from vitrail.data import decode


@pytest.fixture(scope="module")
def colours(once):
    def make(folder):
        write_classes(folder / "all", {"ant": 20, "bee": 20, "cow": 20})
        ran = vitrail("train", "all", "--out", "run", "--epochs", "6", "--set", "train.keep=2", cwd=folder)
        assert ran.returncode == 0, ran.stderr

    return once("runs", make)


def test_it_says_what_it_is(colours):
    run = vt.run(colours / "run")
    assert run.recipe.data.path == str(colours / "all")
    assert run.result["tested"] == 12
    assert run.task.metric.name == "accuracy"
    assert [line["epoch"] for line in run.metrics() if "epoch" in line][-1] == 6
    assert list(run.history) == [0, 6]
    with pytest.raises(vt.InputError, match="is not there"):
        vt.run(colours / "nowhere")


def test_files_folders_and_lists_are_predicted(colours, tmp_path):
    run, file = vt.run(colours / "run"), colours / "all" / "bee" / "000.png"
    (one,), (same,), (named,) = run.predict(file), run.predict([file]), run.predict(str(file))
    assert one == same == named
    assert len(run.predict([colours / "all" / "ant", file], top=1)) == 21
    assert sum(probability for _, probability in one.labels) == pytest.approx(1)
    (tmp_path / "no.png").write_text("text")
    assert run.predict(tmp_path / "no.png")[0].error


def test_only_the_held_out_pictures_are_read(colours, monkeypatch, tmp_path):
    """From whatever folder, and whatever has become of the others."""
    monkeypatch.chdir(tmp_path)
    run, read = vt.run(colours / "run"), []
    own = decode._open
    monkeypatch.setattr(decode, "_open", lambda file: read.append(str(file)) or own(file))
    assert run.evaluate().summary["correct"] == run.result["correct"]
    assert sorted(read) == sorted(file for file, _ in run.data["measured files"])
    assert len(read) == 12


def test_a_run_whose_test_pictures_are_gone_says_so(colours, tmp_path):
    shutil.copytree(colours / "run", tmp_path / "run")
    data = tmp_path / "run" / "data.json"
    record = json.loads(data.read_text())
    record["measured files"][0][0] = str(tmp_path / "gone.png")
    data.write_text(json.dumps(record))
    run = vt.run(tmp_path / "run")
    assert run.evaluate().summary["tested"] == 11  # one of twelve is within data.bad
    record["measured files"] = [
        [str(tmp_path / f"{n}.png"), label] for n, (_, label) in enumerate(record["measured files"])
    ]
    data.write_text(json.dumps(record))
    with pytest.raises(vt.InputError, match=r"12 of the 12 pictures that .* was measured on cannot be read, such as"):
        vt.run(tmp_path / "run").evaluate()
    data.write_text('{"test files": 3}')
    with pytest.raises(vt.InputError, match="is damaged"):
        vt.run(tmp_path / "run").evaluate()
    del record["measured files"]  # as runs before there was a list: the pictures are split again
    data.write_text(json.dumps(record))
    assert vt.run(tmp_path / "run").evaluate().summary["correct"] == run.result["correct"]


def test_a_run_begun_before_there_were_tasks_goes_on(colours, tmp_path):
    shutil.copytree(colours / "run", tmp_path / "run")
    path = tmp_path / "run" / "recipe.json"
    begun = json.loads(path.read_text())
    begun["pictures"] = begun.pop("data")
    del begun["recipe"]["task"]
    begun["recipe"]["data"]["path"] = "all"
    path.write_text(json.dumps(begun))
    words = ("train", "../" + colours.name + "/all", "--out", tmp_path / "run", "--epochs", "6", "--resume")
    ran = vitrail(*words, "--set", "train.keep=2", cwd=colours)
    assert ran.returncode == 0, ran.stderr
    assert "going on after step" in ran.stderr


def test_the_idx_files_to_train_on_are_not_read(tmp_path):
    images = torch.randint(0, 256, (60, 8, 8), dtype=torch.uint8)
    for part, count in (("train", 60), ("t10k", 20)):
        header = [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 8, 0, 0, 0, 8]
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(bytes(header) + images[:count].numpy().tobytes())
        labels = bytes(number % 3 for number in range(count))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, count]) + labels)
    ran = vitrail("train", tmp_path, "--out", tmp_path / "run", "--epochs", "1")
    assert ran.returncode == 0, ran.stderr
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"damaged")
    run = vt.run(tmp_path / "run")
    assert run.evaluate().summary["correct"] == run.result["correct"]


def test_a_run_in_a_folder_called_history_is_its_own(colours, tmp_path):
    for name in ("a", "00000012"):
        shutil.copytree(colours / "run", tmp_path / "history" / name)
        assert vt.run(tmp_path / "history" / name).evaluate().summary["tested"] == 12
    kept = vt.run(colours / "run" / "history" / "00000006")
    assert kept.recipe == vt.run(colours / "run").recipe
    assert kept.evaluate().summary["tested"] == 12
