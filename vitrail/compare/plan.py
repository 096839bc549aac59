"""What is compared with what: the arms, the cells, and the recipe of each."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitrail.compare.asked import Asked
from vitrail.compare.cells import Cell, cells
from vitrail.compare.experiments import Arm, Axis, Base, Experiment, experiments, over_fractions, varied
from vitrail.config import override
from vitrail.errors import InputError
from vitrail.families import ViTConfig, known_as
from vitrail.tasks import parse_recipe, read_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import Metric, Task

# Fields that say which examples a model is measured on: what is compared has the same.
MEASURED = ("source", "path", "files", "validation", "test", "seed", "fraction", "limit")
SHOWN = ("model.image", "model.channels")
LOOKS = 5  # on the way of a cell, at most
TIMED = ("model.image", "weights.freeze", "train.epochs", "train.accumulate")  # chosen by the clock, with weights
Table = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """All cells of a comparison, with their recipes, and the number that they are compared by."""

    experiment: Experiment
    axis: Axis
    metric: Metric
    tables: Mapping[Cell, Table]
    said: frozenset[str] = frozenset()  # fields that someone has set, or varies


def planned(asked: Asked) -> Plan:
    """What someone asks for, made into cells."""
    _check(asked)
    experiment, base, task = _experiment(asked)
    axis = experiment.axis
    if axis is not None and asked.fractions:
        raise InputError(f"{experiment.name} is compared over {axis.name}; leave --fractions out.")
    if asked.fractions and base.get("task", "pictures") != "pictures":
        raise InputError(f"--fractions are of pictures, and this is {base['task']}; leave them out.")
    axis = axis or over_fractions(sorted(set(asked.fractions)) or [1.0])
    names = [arm.name for arm in experiment.arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice!r} is there twice; what is compared goes by different names.")
    fields = _settings(asked, experiment, axis)
    tables = {cell: _table(base, cell, axis, experiment, fields) for cell in cells(experiment.arms, asked.seeds, axis)}
    own = set(fields) | {one.partition("=")[0].strip() for one in asked.vary}  # what someone has said
    if asked.fractions and "train.epochs" not in own:
        tables = {cell: _longer(table, cell.at) for cell, table in tables.items()}
    _same_examples(tables)
    return Plan(experiment, axis, task.metric, tables, frozenset(own))


def _longer(table: Table, fraction: float) -> Table:
    """A recipe that says for how many epochs it goes with all pictures: with fewer for more, by the root of how many
    times fewer they are, lest few pictures mean few steps.
    """
    train = table.get("train", {})
    if "epochs" not in train or fraction == 1:
        return table
    return {**table, "train": {**train, "epochs": round(train["epochs"] / fraction**0.5)}}


def seldom(table: Table) -> Table:
    """A recipe whose model is measured a few times on its way: what many cells would do every epoch."""
    train = table.get("train", {})
    if "epochs" not in train:
        return table
    often = max(train.get("evaluate") or 1, -(-train["epochs"] // LOOKS))
    return {**table, "train": {**train, "evaluate": often}}


def _check(asked: Asked) -> None:
    if asked.seeds < 1:
        raise InputError(f"--seeds {asked.seeds} does not fit; it should be 1 or more.")
    if any(not 0 < one <= 1 for one in asked.fractions):
        raise InputError("--fractions are parts of the data, above 0 and at most 1, such as 0.01 0.1 1.")


def _experiment(asked: Asked) -> tuple[Experiment, Table, Task]:
    """The arms, the recipe that they start from, and a task of it."""
    what, rest = (asked.what or ("",))[0], asked.what[1:]
    if asked.vary:
        base = _read(asked.what or ("digits",), asked.settings)
        task = _prepared(base)
        return Experiment("vary", "What does each value do?", varied(asked.vary)), _timed(base, task), task
    if len(asked.what) > 1 and all(one.endswith(".toml") for one in asked.what):
        arms, base = _recipes(asked.what)
        first = {**base, **_nested(arms[0].fields)}
        task = _prepared(override(first, asked.settings))
        return Experiment("recipes", "Which recipe is better?", arms), base, task
    if what not in experiments:
        raise InputError(
            f"{what!r} is no experiment; choose one of {', '.join(experiments)}, or give recipes (a.toml b.toml), or "
            f"data and what is varied (--vary model.depth=2,4,6)."
        )
    base = _read(rest or ("digits",), asked.settings)
    if base.get("task", "pictures") != "pictures":
        raise InputError(f"{what} is compared on pictures; vary fields of other tasks with --vary.")
    task = _prepared(base)
    if not isinstance(task.config, ViTConfig):
        raise InputError(f"{what} begins with a ViT; leave model.name out.")
    chosen = {f"model.{name}": value for name, value in task.recipe.model.items()}
    return experiments[what](Base(task.config, task.counts[0])), _laid(_timed(base, task), chosen), task


def _read(what: Sequence[str], settings: Sequence[str] = ()) -> Table:
    return read_recipe(list(what), settings).model_dump(mode="json", exclude_unset=True)


def _prepared(table: Table) -> Task:
    recipe = parse_recipe(table)
    return tasks[recipe.task].prepare(recipe)


def _timed(base: Table, task: Task) -> Table:
    """With what was chosen by the clock, which every cell would choose for itself."""
    if task.recipe.weights.path is None:
        return base
    return _laid(base, {choice.field: choice.value for choice in task.choices if choice.field in TIMED})


def _recipes(paths: Sequence[str]) -> tuple[list[Arm], Table]:
    """Recipes as arms: what each of them says, over nothing."""
    tables = [_read([path]) for path in paths]
    kinds = {table.get("task", "pictures") for table in tables}
    if len(kinds) > 1:
        raise InputError(f"the recipes are of several tasks, {', '.join(sorted(kinds))}; compare those of one.")
    stems = [Path(path).stem for path in paths]
    names = stems if len(set(stems)) == len(stems) else [str(Path(path).with_suffix("")) for path in paths]
    arms = [Arm(name, _flat(table)) for name, table in zip(names, tables, strict=True)]
    return arms, {"task": kinds.pop()}


def _settings(asked: Asked, experiment: Experiment, axis: Axis) -> dict[str, Any]:
    """What is set for all arms, which is not what they differ by."""
    fields = _flat(override({}, asked.settings))
    every = set.intersection(*(set(arm.fields) for arm in experiment.arms))
    apart = {name for name in every if len({repr(arm.fields[name]) for arm in experiment.arms}) > 1}
    for name in fields:
        if name in apart and experiment.name != "recipes":
            raise InputError(f"{name} is what is compared; leave it out of --set.")
        if name in (*axis.fields(axis.values[0]), "train.seed") or (name == "data.use" and asked.fractions):
            raise InputError(f"{name} is what cells differ by; leave it out of --set.")
    return fields


def _table(base: Table, cell: Cell, axis: Axis, experiment: Experiment, settings: Mapping[str, Any]) -> Table:
    """The recipe of a cell: the base, what all arms have, what the arm has, what was set, and what the place has.

    What was set of a model is what arms begin with; what was set of anything else goes before what they have.
    """
    model = {name: value for name, value in settings.items() if name.startswith("model.")}
    rest = {name: value for name, value in settings.items() if name not in model}
    shared = {**experiment.shared, **({"train.keep": experiment.followed} if experiment.followed else {})}
    shared = {name: value for name, value in shared.items() if name not in settings}
    table, given = _laid(base, model), {**shared, **cell.arm.fields}
    own = table.get("model", {}).get("name", "vit")
    if "model.name" in given:  # another model, with none of the base's fields but what pictures it is shown
        table["model"] = {}
        given = {name: model[name] for name in SHOWN if name in model} | given
        if known_as(own)[0] is not known_as(given["model.name"])[0]:
            table.pop("optim", None)  # nor what it was learned by
    return _laid(table, {**given, **rest, **axis.fields(cell.at), "train.seed": cell.seed})


def _same_examples(tables: Mapping[Cell, Table]) -> None:
    """Whatever is compared is measured on the same."""
    sources = {
        repr([(name, table.get("data", {}).get(name)) for name in MEASURED]): cell.arm.name
        for cell, table in tables.items()
    }
    if len(sources) > 1:
        one, other, *_ = sources.values()
        raise InputError(f"{one} and {other} are measured on different examples, and cannot be compared.")


def _laid(table: Table, fields: Mapping[str, Any]) -> Table:
    """A table with some fields set, each by its path."""
    changed = deepcopy(table)
    for path, value in fields.items():
        *parents, leaf = path.split(".")
        inner = changed
        for parent in parents:
            inner = inner.setdefault(parent, {})
            if not isinstance(inner, dict):
                raise InputError(f"{path!r} cannot be set: {parent!r} is a value, not a table of fields.")
        inner[leaf] = value
    return changed


def _nested(fields: Mapping[str, Any]) -> Table:
    return _laid({}, fields)


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sections of a table, by their paths."""
    return {
        f"{section}.{name}": value
        for section, fields in table.items()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }
