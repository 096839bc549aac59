"""Weights with something wrong in them, a few hundred of each format: a model, or a sentence; never anything else."""

import os
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from copying import randomise
from mutations import mutated, mutated_json

import vitrail as vt
from vitrail.runs import Run

COUNT = int(os.environ.get("VITRAIL_MUTATIONS", "300"))
SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}


def model(**fields):
    torch.manual_seed(0)
    return randomise(vt.build("vit", **SHAPE, **fields))


def as_legacy(path):
    vt.save(model(), path, format="timm")
    torch.save(torch.load(path), path, _use_new_zipfile_serialization=False)


WRITTEN = {
    "timm.safetensors": lambda path: vt.save(model(), path, format="timm"),
    "timm.pt": lambda path: vt.save(model(), path, format="timm"),
    "older.pth": as_legacy,
    "google.npz": lambda path: vt.save(model(), path, format="npz"),
    "torchvision.pth": lambda path: vt.save(model(), path, format="torchvision"),
    "vit-pytorch.pt": lambda path: vt.save(model(stem="patch-norm", bias=False, eps=1e-5), path, format="vit-pytorch"),
}


def outcome(path):
    """Nothing, where it is a model or a sentence."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module="vitrail|tests|test_fuzz|")
            vt.load(path, strict=False)
    except vt.InputError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 1000  # noqa: PT017
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("name", WRITTEN)
def test_files(tmp_path, name):
    WRITTEN[name](tmp_path / name)
    for beside in (True, False):
        data = (tmp_path / name).read_bytes()
        found = {}
        for seed in range(COUNT // 2):
            (tmp_path / name).write_bytes(mutated(data, seed))
            if wrong := outcome(tmp_path / name):
                found[seed] = wrong
        assert not found
        (tmp_path / name).write_bytes(data)
        if beside:
            (tmp_path / f"{name}.json").unlink()  # and then what the tensors alone say


@pytest.mark.parametrize("format_", ["hf", "vitrail"])
def test_folders(tmp_path, format_):
    kept = tmp_path / "kept"
    vt.save(model(), kept, format_, labels=tuple("abcde"), normalise=((0.5,) * 3, (0.5,) * 3))
    if format_ == "vitrail":
        (kept / "recipe.json").write_text('{"recipe": {"task": "pictures", "data": {"path": "x"}}, "processes": 1}')
        (kept / "data.json").write_text('{"test": 1, "measured files": [["a.png", "a"]], "trained on": "00"}')
    names = sorted(path.name for path in kept.iterdir())
    folder, found = tmp_path / "m", {}
    for seed in range(COUNT):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
        path = folder / names[seed % len(names)]
        if path.suffix == ".json" and seed % 3:
            path.write_text(mutated_json(path.read_text(), seed))
        else:
            path.write_bytes(mutated(path.read_bytes(), seed))
        wrong = outcome(folder) or (used(folder) if format_ == "vitrail" else None)
        if wrong:
            found[seed] = (path.name, wrong)
    assert not found


def used(folder):
    """What a run says of itself, and what it answers."""
    try:
        run = Run(folder)
        run.predict([Path(__file__)])
        run.evaluate()
    except vt.InputError:
        return None
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"
    return None
