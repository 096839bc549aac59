"""The cells of a comparison: one training each, of an arm with a seed, on a fraction of the data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import vitrail
from vitrail.beginning import PACKAGES
from vitrail.compare.experiments import Arm, Axis
from vitrail.files import read_json

DONE, FAILED, ASKED = "cell.json", "failed.json", "asked.json"
# What a number depends on: whatever computes it, but nothing that only shows it.
FOLDERS = ("core", "data", "decode", "families", "tasks", "training", "weights")
FILES = ("config.py", "distributed.py", "recipe.py", "trainer.py", "compare/cell.py", "compare/measures.py")


@dataclass(frozen=True, eq=False)
class Cell:
    """Where one number of a comparison comes from."""

    arm: Arm
    seed: int
    at: float  # the fraction of the data, or the value of what else is varied
    folder: str  # of its arm

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.folder}/{self.at:.12g}-seed-{self.seed}"

    @property
    def place(self) -> str:
        """What it goes by, whatever its seed."""
        return f"{self.arm.name} @ {self.at:.12g}"


@dataclass(frozen=True)
class Result:
    """What came of a cell."""

    cell: Cell
    values: Mapping[str, float]  # the headline number, and others
    parameters: int
    multiply_adds: int
    seconds: float
    steps: int
    epochs: float = 0.0
    part: str = ""  # of the data, which it was measured on: test, or validation
    tested: int = 0  # how many examples that are
    moments: Sequence[tuple[int, Mapping[str, float]]] = ()  # numbers on its way, by the steps they were had after


def cells(arms: Sequence[Arm], seeds: int, axis: Axis) -> list[Cell]:
    """All of them: the first seed of everything first, so that there is something to see."""
    folders = _folders(arms)
    return [Cell(arm, seed, at, folders[arm.name]) for seed in range(seeds) for at in axis.values for arm in arms]


def _folders(arms: Sequence[Arm]) -> dict[str, str]:
    """A folder for each arm, none of two, nor of none."""
    folders = dict[str, str]()
    for arm in arms:
        plain = slug(arm.name) or "arm"
        tries = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        folders[arm.name] = next(one for one in tries if one not in folders.values())
    return folders


def read_result(cell: Cell, folder: Path) -> Result:
    """What a finished cell wrote; numbers that are none are left out."""
    table = read_json(folder / cell.name / DONE)
    names = ("parameters", "multiply_adds", "seconds", "steps", "epochs", "part", "tested")
    numbers = {name: table[name] for name in names}
    moments = [(step, _there(found)) for step, found in table["moments"]]
    return Result(cell, _there(table["values"]), **numbers, moments=moments)


def _there(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def slug(name: str) -> str:
    """As a part of a path."""
    return re.sub(r"[^a-z0-9.=]+", "-", name.lower()).strip("-")


@cache
def code() -> str:
    """What tells this code from other code whose numbers may be others."""
    packages = {name: version(name) for name in PACKAGES if name != "vitrail"}  # whose own files are read
    digest, root = blake2b(repr(packages).encode(), digest_size=8), Path(vitrail.__file__).parent
    modules = [file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py"))]
    for file in [*modules, *(root / name for name in FILES)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def digest(table: Mapping[str, Any]) -> str:
    """What tells one recipe from another."""
    return blake2b(repr(_sorted(table)).encode(), digest_size=8).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((name, _sorted(one)) for name, one in value.items())
    return list(value) if isinstance(value, list | tuple) else value
