"""Weights by name: from the cache, or with a sentence about what to do."""

import sys

import pytest
import torch
from copying import randomise

import vitrail as vt

SHAPE = {"image": 16, "patch": 4, "width": 24, "depth": 2, "heads": 3, "hidden": 48, "classes": 5}


def cached(folder, model):
    """As huggingface_hub lays out what it has fetched."""
    place = folder / "hub" / "models--someone--model"
    vt.save(model, place / "snapshots" / "0123abc", format="hf")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0123abc")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@torch.no_grad()
def test_what_is_in_the_cache_needs_no_network(offline):
    model = randomise(vt.build("vit", **SHAPE))
    cached(offline, model)
    images = torch.randn(2, 3, 16, 16)
    assert torch.equal(vt.load("hf:someone/model")(images), model(images))


def test_what_is_not_says_what_to_do(offline):  # noqa: ARG001
    with pytest.raises(vt.InputError, match=r"not in the cache, and the hub cannot be reached; download"):
        vt.load("hf:someone/other")


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(vt.InputError, match=r"needs huggingface_hub; install it \(pip install vitrail\[hub\]\)"):
        vt.load("hf:someone/model")


@pytest.mark.parametrize("name", ["hf:model", "hf:", "hf:a/b/c", "hf:/b"])
def test_a_name_that_is_none(name):
    with pytest.raises(vt.InputError, match="is not a name on the hub; write hf:owner/name"):
        vt.load(name)
