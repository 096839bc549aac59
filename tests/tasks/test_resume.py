"""Trainings of text, labels and pixels that are killed go on to the bit; several processes learn what one does."""

import signal
from functools import partial

import pytest
from killing import die_at, environment
from processes import Command
from safetensors.torch import load_file
from texts import TAGS, TEXT, write_tags, write_text

COMMON = {"train.checkpoint": 0, "train.steps": 24, "model.dropout": 0.1, "train.evaluate": 1}
PIXELS = {**TAGS, "train.batch": 128}
PIXELS.pop("data.vocabulary")
KINDS = {
    "gpt": {**TEXT, **COMMON},
    "bert": {**TEXT, **COMMON, "model.name": "bert", "hidden.next": "true", "model.order": "pre"},
    "tags": {**TAGS, **COMMON},
    "pixels": {**PIXELS, **COMMON, "data.colours": 4},
}


def command(kind, folder, out, *more, before=None):
    what = "igpt"
    if kind != "pixels":
        what = write_tags(folder / "tags.txt", 60) if kind == "tags" else write_text(folder / "text.txt", 200)
    settings = [word for name, value in KINDS[kind].items() for word in ("--set", f"{name}={value}")]
    return Command("train", what, "--out", out, *settings, *more, env=environment(), before=before)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_gone_on_with(kind, tmp_path):
    whole = command(kind, tmp_path, tmp_path / "whole").ran()
    assert whole.returncode == 0, whole.stderr
    killed = command(kind, tmp_path, tmp_path / "run", before=partial(die_at, "fsync", 25))
    assert killed.wait() == -signal.SIGKILL
    again = command(kind, tmp_path, tmp_path / "run", "--resume").ran()
    assert again.returncode == 0, again.stderr
    assert "going on after step" in again.stderr
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    assert one.keys() == other.keys()
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("kind", ["gpt", "tags"])
def test_two_processes_learn_what_one_does_in_parts(kind, tmp_path):
    one = command(kind, tmp_path, tmp_path / "one", "--set", "train.accumulate=2").ran()
    two = command(kind, tmp_path, tmp_path / "two", "--processes", "2").ran()
    assert one.returncode == two.returncode == 0, two.stderr
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert max(float((a[name] - b[name]).abs().max()) for name in a) < 1e-3
