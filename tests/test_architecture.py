"""Imports point only downward."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

import vitrail
from vitrail.registry import Registry

ROOT = Path(vitrail.__file__).parent
LEVELS = [
    {"errors", "lazy", "progress"},
    {"config", "files", "machine"},
    {"distributed", "registry"},
    {"recipe"},
    {"core", "data"},
    {"families"},
    {"weights"},
    {"decode", "lens"},
    {"tasks"},
    {"training"},
    {"beginning"},
    {"runs"},
    {"report"},
    {"terminal"},
    {"trainer"},
    {"compare", "shrink"},
    {"cli"},
    {"__init__", "__main__"},
]
# Within core, from what needs nothing to what needs much.
CORE = [
    "masks",
    "linear",
    "dropout",
    "norms",
    "kernels",
    "sparse",
    "local",
    "star",
    "graphs",
    "hashing",
    "linear_attention",
    "positions",
    "attention",
    "span",
    "tokens",
    "embeddings",
    "resnet",
    "heads",
    "block",
    "merge",
    "flat",
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


def test_no_verb_imports_another():
    verbs = {path.stem for path in (ROOT / "cli").glob("*.py")} - {"__init__", "console", "progress", "plan"}
    for verb in verbs:
        others = {
            name.split(".")[2] for name in imports(ROOT / "cli" / f"{verb}.py") if name.startswith("vitrail.cli.")
        }
        assert not others & verbs, f"cli/{verb}.py imports {others & verbs}"


@pytest.mark.parametrize("name", ["recipe.json", "data.json", "metrics.jsonl", "scores.json", "history", "tensorboard"])
def test_the_run_directory_has_one_reader_and_writer(name):
    """The names of its files stand in runs.py; weights.reading asks for one, to say that a run has not finished."""
    known = {path.name for path in files() if f'"{name}"' in path.read_text()}
    field = {"beginning.py"} if name == "tensorboard" else set()  # which is a field of the recipe too
    assert known <= {"runs.py", "reading.py", *field}


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_not_replaced_by_a_function_of_its_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    if parts[-1] in ("__init__", "__main__"):
        return
    importlib.import_module(".".join(parts))
    named = getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])
    assert isinstance(named, ModuleType | Registry), f"{'.'.join(parts)} is {named}"  # kernels are in kernels.py


@pytest.mark.parametrize("folder", ["training", "runs.py", "report/run.py", "terminal", "trainer.py"])
def test_what_trains_and_reports_knows_of_no_picture(folder):
    """Of the task it is given it knows the interface; a run alone has a predictor of pictures."""
    for path in [ROOT / folder] if folder.endswith(".py") else sorted((ROOT / folder).glob("*.py")):
        known = {name for name in imports(path) if name.startswith("vitrail.tasks.pictures")}
        assert known <= ({"vitrail.tasks.pictures.predictor"} if path.name == "runs.py" else set())
