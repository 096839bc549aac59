"""The cells of a comparison: one training each, of an arm with a seed, on a fraction of the data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import vitrail
from vitrail.compare.experiments import Arm, Axis
from vitrail.files import read_json

DONE, FAILED, ASKED = "cell.json", "failed.json", "asked.json"
# What a number depends on: whatever computes it, but nothing that only shows it.
PARTS = ("core", "data", "families", "tasks", "training", "weights", "recipe.py", "trainer.py", "machine.py")


@dataclass(frozen=True, eq=False)
class Cell:
    """Where one number of a comparison comes from."""

    arm: Arm
    seed: int
    at: float  # the fraction of the data, or the value of what else is varied

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{slug(self.arm.name)}/{self.at:g}-seed-{self.seed}"

    def table(self, base: Mapping[str, Any], axis: Axis, shared: Mapping[str, Any]) -> dict[str, Any]:
        """Its recipe: the base with what all arms have, what the arm has, and what the place has."""
        fields = {**shared, **self.arm.fields, **axis.fields(self.at), "train.seed": self.seed}
        table = {section: dict(value) if isinstance(value, dict) else value for section, value in base.items()}
        if "model.name" in fields:  # another model, with none of the base's fields
            table["model"] = {}
            table.pop("optim", None)
        for path, value in fields.items():
            *parents, leaf = path.split(".")
            inner = table
            for parent in parents:
                inner = inner.setdefault(parent, {})
            inner[leaf] = value
        return table


@dataclass(frozen=True)
class Result:
    """What came of a cell."""

    cell: Cell
    values: Mapping[str, float]  # the headline number, and others
    parameters: int
    multiply_adds: int
    seconds: float
    steps: int


def cells(arms: Sequence[Arm], seeds: int, values: Sequence[float]) -> list[Cell]:
    """All of them: the first seed of everything first, so that there is something to see."""
    return [Cell(arm, seed, at) for seed in range(seeds) for at in values for arm in arms]


def read_result(cell: Cell, folder: Path) -> Result:
    """What a finished cell wrote."""
    told = read_json(folder / cell.name / DONE)
    return Result(cell, told["values"], told["parameters"], told["multiply_adds"], told["seconds"], told["steps"])


def slug(name: str) -> str:
    """As a part of a path."""
    return re.sub(r"[^a-z0-9.=]+", "-", name.lower()).strip("-")


@cache
def code() -> str:
    """What tells this code from other code whose numbers may be others."""
    digest, root = blake2b(digest_size=8), Path(vitrail.__file__).parent
    for part in PARTS:
        for file in sorted((root / part).rglob("*.py")) if (root / part).is_dir() else [root / part]:
            digest.update(file.read_bytes())
    return digest.hexdigest()


def digest(table: Mapping[str, Any]) -> str:
    """What tells one recipe from another."""
    return blake2b(repr(_sorted(table)).encode(), digest_size=8).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((name, _sorted(one)) for name, one in value.items())
    return list(value) if isinstance(value, list | tuple) else value
