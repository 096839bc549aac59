"""Imports point only downward."""

import ast
from pathlib import Path

import pytest

import vitrail

ROOT = Path(vitrail.__file__).parent
LEVELS = [
    {"errors", "progress"},
    {"config", "files", "machine", "distributed"},
    {"registry"},
    {"recipe"},
    {"core", "data"},
    {"families"},
    {"weights"},
    {"lens"},
    {"tasks"},
    {"training"},
    {"runs"},
    {"report"},
    {"cli"},
    {"__init__", "__main__"},
]
# Within core, from what needs nothing to what needs much.
CORE = [
    "masks",
    "linear",
    "norms",
    "kernels",
    "positions",
    "attention",
    "embeddings",
    "resnet",
    "heads",
    "block",
    "convolution",
    "__init__",
]


def imports(path):
    """The modules of the package that a file imports, also within functions, but not for type checking alone."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(n)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for n in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vitrail"):
            yield from (
                [node.module] if node.module != "vitrail" else [f"vitrail.{alias.name}" for alias in node.names]
            )
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("vitrail."))


def level(part):
    return next(number for number, parts in enumerate(LEVELS) if part in parts)


def files():
    return sorted(ROOT.rglob("*.py"))


def test_every_file_has_a_level():
    parts = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in files()}
    assert parts == set().union(*LEVELS)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downward(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in imports(path):
        part = name.split(".")[1]
        assert part == own or level(part) < level(own), f"{path.name} imports {name}"


@pytest.mark.parametrize("name", CORE)
def test_within_the_core_too(name):
    for imported in imports(ROOT / "core" / f"{name}.py"):
        parts = imported.split(".")
        if parts[1] == "core":
            assert CORE.index(parts[2]) < CORE.index(name), f"core/{name}.py imports {imported}"


def test_the_core_is_all_there():
    assert set(CORE) == {path.stem for path in (ROOT / "core").glob("*.py")}
