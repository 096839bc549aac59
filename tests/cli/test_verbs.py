"""Every verb with its defaults, as it is first typed; in terminals of several widths, and in a pipe."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from corpus import write_classes
from processes import vitrail
from sentences import SMALL, write_pairs
from texts import TAGS, TEXT, write_tags, write_text

import vitrail as vt
from vitrail.cli import VERBS


@pytest.fixture(scope="module")
def place(once):
    """A folder to work in, with pictures of two classes and a run that learned them."""

    def make(folder):
        write_classes(folder / "all", {"ant": 12, "bee": 12})
        assert vitrail("train", "all", "--epochs", "2", cwd=folder).returncode == 0
        words = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
        ran = vitrail("train", *write_pairs(folder, 60), "--epochs", "2", "--out", "runs/words", *words, cwd=folder)
        assert ran.returncode == 0
        for name, given in (("text", TEXT), ("tags", TAGS)):
            words = [word for field, value in given.items() for word in ("--set", f"{field}={value}")]
            file = write_text(folder / "some.txt") if name == "text" else write_tags(folder / "words.txt")
            ran = vitrail("train", file, "--out", f"runs/{name}", *words, "--set", "train.steps=5", cwd=folder)
            assert ran.returncode == 0, ran.stderr

    return once("verbs", make)


DEFAULTS = {
    "train": [],
    "evaluate": ["runs/all"],
    "predict": ["runs/all", "all/ant/000.png"],
    "translate": ["runs/words", "abcd"],
    "tag": ["runs/tags", "a b"],
    "generate": ["runs/text"],
    "explain": ["runs/all", "all/ant/000.png", "--out", "why"],
    "figures": ["runs/all", "--out", "figures"],
    "walk": [],
    "words": ["runs/text", "cat"],
    "embed": ["runs/all", "all"],
    "convert": ["runs/all", "moved"],
    "shrink": ["runs/all", "--way", "quantize=4"],
    "export": ["runs/all"],
    "compare": ["all", "--vary", "model.depth=1,2", "--seeds", "1", "--set", "train.epochs=1"],
    "models": [],
    "recipes": [],
}


def test_every_verb_is_here():
    assert list(DEFAULTS) == [verb.__name__ for verb in VERBS]


@pytest.mark.parametrize("verb", DEFAULTS)
def test_with_its_defaults(place, tmp_path, verb):
    shutil.copytree(place, tmp_path / "here")
    ran = vitrail(verb, *DEFAULTS[verb], cwd=tmp_path / "here")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
    assert "Traceback" not in ran.stderr
    assert "Warning" not in ran.stderr


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("verb", [name for name in DEFAULTS if name not in ("train", "explain", "figures", "compare")])
def test_tables_fit_the_terminal(place, tmp_path, invoke, monkeypatch, verb, columns):  # noqa: PLR0917
    """No line is cut with dots, and tables stay within the width; a sentence, or a row of a result, may wrap."""
    shutil.copytree(place, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, err = invoke(verb, *DEFAULTS[verb])
    assert status == 0, err
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in out.splitlines()]
    assert not any(line.rstrip().endswith("…") for line in lines)
    if verb in ("evaluate", "models", "recipes"):
        assert max(map(len, lines)) <= columns


@pytest.mark.parametrize("verb", ["", *DEFAULTS])
def test_help_fits_a_narrow_terminal(verb):
    ran = subprocess.run(
        [sys.executable, "-m", "vitrail", *([verb] if verb else []), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "60", "TERMINAL_WIDTH": "60"},
    )
    assert max(map(len, ran.stdout.splitlines())) <= 60
    assert "..." not in ran.stdout.partition("Commands:")[2]


def test_a_thousand_bad_files_are_ten_lines(place, tmp_path):
    for number in range(1000):
        (tmp_path / "all" / "ant").mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / "ant" / f"{number:04}.png").write_bytes(b"none")
    write_classes(tmp_path / "all", {"bee": 3, "cow": 3})
    ran = vitrail("predict", place / "runs" / "all", tmp_path / "all")
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 11
    assert "1,000 of the pictures could not be read, 990 more than are named here" in ran.stderr
    for words in (
        ("evaluate", place / "runs" / "all", tmp_path / "all"),
        ("train", tmp_path / "all", "--out", tmp_path / "run"),
        ("embed", place / "runs" / "all", tmp_path / "all", "--out", tmp_path / "f.npz"),
    ):
        ran = vitrail(*words)
        assert len(ran.stderr.splitlines()) < 15, ran.stderr
    words = ("--epochs", "1", "--set", "data.bad=0.999")
    ran = vitrail("train", tmp_path / "all", "--out", tmp_path / "run", *words)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("0.png") + ran.stderr.count("1.png") < 15
    assert "... and " in ran.stderr
    assert len(json.loads((tmp_path / "run" / "data.json").read_text())["set aside"]) >= 1000


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_an_empty_folder_is_said(place, tmp_path, verb):
    (tmp_path / "none").mkdir()
    out = ("--out", tmp_path / "f.npz") if verb == "embed" else ()
    ran = vitrail(verb, place / "runs" / "all", tmp_path / "none", *out)
    assert ran.returncode == 1
    assert "is a folder with no file in it; give pictures" in ran.stderr


def test_two_names_for_data_are_a_mistake(place, invoke, tmp_path):
    status, _, err = invoke("train", place / "all", "--data", tmp_path, "--out", tmp_path / "run")
    assert status == 1
    assert "both name data; give one of them" in err


def test_a_format_is_named_once(invoke, place, tmp_path):
    status, _, err = invoke("convert", place / "runs" / "all", tmp_path / "x", "--format", "zzzzzz")
    assert status == 1
    names = err.partition("choose one of ")[2].rstrip(".\n").split(", ")
    assert len(names) == len(set(names)) > 3


def test_classes_of_equal_size_are_in_the_order_of_the_alphabet(tmp_path):
    write_classes(tmp_path / "all", {"cow": 10, "ant": 10, "bee": 10})
    ran = vitrail("train", tmp_path / "all", "--out", tmp_path / "run", "--epochs", "1")
    assert "classes   3: ant 8, bee 8, cow 8" in ran.stderr
    assert " 1 epoch of" in ran.stderr
    assert not re.search(r"\b1 (epochs|steps)", ran.stderr + (tmp_path / "run" / "report.html").read_text())


def test_a_full_disk_names_the_file(tmp_path, invoke, monkeypatch):
    import errno

    import vitrail.files

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    vt.save(vt.build("vit-pico/2"), tmp_path / "run", labels=tuple("0123456789"))
    monkeypatch.setattr(vitrail.files.os, "fsync", full)
    status, _, err = invoke("walk", "--out", tmp_path / "page.html")
    assert status == 1
    assert f"'{tmp_path / 'page.html'}' could not be read or written: No space left on device." in err
    assert list(tmp_path.glob("*.html")) == list(tmp_path.glob(".*part")) == []


def test_what_a_library_thinks_of_a_picture_is_not_said(place, tmp_path):
    """libtiff writes to the terminal by itself, Pillow through a logger."""
    from corpus import encoded, gradient
    from mutations import mutated

    data = encoded(gradient(), "TIFF", compression="tiff_lzw")
    (tmp_path / "all").mkdir()
    for seed in range(150):
        (tmp_path / "all" / f"{seed}.tif").write_bytes(mutated(data, seed))
    ran = vitrail("predict", place / "runs" / "all", tmp_path / "all")
    lines = ran.stderr.splitlines()
    assert len(lines) == 11
    assert all(line.startswith((str(tmp_path), "vitrail: ")) for line in lines)
