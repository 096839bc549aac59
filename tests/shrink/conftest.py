"""A model to shrink, and measurements that take no time."""

import pytest

from vitrail.trainer import train

SMALL = {"model.width": 32, "model.depth": 4, "model.heads": 4, "model.hidden": 64, "train.keep": 2}


@pytest.fixture(scope="session")
def run(once):
    """A model of the digits that knows something."""
    return (
        once("shrunk", lambda folder: train("digits", out=folder / "run", epochs=6, settings=SMALL, quiet=True)) / "run"
    )


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Memory is measured in processes of their own, and time in many rounds, which takes long: here it does not."""
    monkeypatch.setattr("vitrail.shrink.costs.SECONDS", 0.1)
    monkeypatch.setattr("vitrail.shrink.costs.peak", lambda _: None)
