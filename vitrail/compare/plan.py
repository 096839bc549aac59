"""What is compared with what: the arms, the cells, and the recipe of each."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from vitrail.compare.cells import Cell, cells
from vitrail.compare.experiments import Arm, Axis, Base, Experiment, experiments, over_fractions, varied
from vitrail.compare.request import Request
from vitrail.config import override, table_of, toml_value
from vitrail.errors import InputError
from vitrail.families import ViTConfig, known_as
from vitrail.families.bert.config import BERTConfig
from vitrail.tasks import parse_recipe, read_recipe
from vitrail.tasks.registry import tasks
from vitrail.tasks.task import Metric, Task

# Fields that say which examples a model is measured on, and what is counted there: what is compared has
# the same.
EXAMPLES = (
    "data.source",
    "data.path",
    "data.files",
    "data.validation",
    "data.test",
    "data.seed",
    "data.fraction",
    "data.reverse",
    "data.longest",
)
COUNTED = ("data.measure", "data.colours", "data.size", "data.hidden", "data.layout", "data.column")
# and where a number is one of hidden tokens, not of characters
OF_TOKENS = (
    "data.tokens",
    "data.vocabulary",
    "hidden.words",
    "hidden.rate",
    "hidden.masked",
    "hidden.other",
    "hidden.next",
)
SHOWN = ("image", "channels")
LOOKS = 5  # on the way of a cell, at most
# Fields that are chosen by the clock, or by what a machine is good at, where there are weights.
TIMED = ("model.image", "weights.freeze", "train.epochs", "train.accumulate", "train.precision")
Table = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """All cells of a comparison, with their recipes, and the number that they are compared by."""

    experiment: Experiment
    axis: Axis
    metric: Metric
    tables: Mapping[Cell, Table]
    given: frozenset[str] = frozenset()  # fields that someone has set, or varies
    minutes: float | None = None  # for all of it, where recipes say how many each training has
    timed: Mapping[str, Table] = field(default_factory=dict)  # what was chosen by the clock, by the path of weights


def planned(request: Request, timed: Mapping[str, Table] | None = None) -> Plan:
    """What someone asks for, made into cells; with what was chosen by the clock before, which would be another choice
    now.
    """
    _check(request)
    experiment, base, task = _experiment(request)
    axis = experiment.axis
    if axis is not None and request.fractions:
        raise InputError(f"{experiment.name} is compared over {axis.name}; leave --fractions out.")
    if request.fractions and base.get("task", "pictures") != "pictures":
        raise InputError(f"--fractions are of pictures, and this is {base['task']}; leave them out.")
    axis = axis or over_fractions(sorted(set(request.fractions)), base.get("data", {}).get("use", 1.0))
    settings = _settings(request, experiment, axis, base)
    experiment = _wanted(experiment, request)
    arm_tables = {
        arm.name: _filled(_arm_table(base, arm, experiment, settings), arm, experiment) for arm in experiment.arms
    }
    tables = {
        cell: laid(arm_tables[cell.arm.name], {**axis.fields(cell.at), "train.seed": cell.seed})
        for cell in cells(experiment.arms, request.seeds, axis)
    }
    tables, timed = _timed(tables, axis, dict(timed or {}))
    own = set(settings) | {one.partition("=")[0].strip() for one in request.vary}  # what someone has said
    if request.fractions and "train.epochs" not in own:
        tables = {cell: _longer(table, cell.at) for cell, table in tables.items()}
    tables, minutes = _unclocked(tables)
    _same_examples(tables)
    _same_metric(arm_tables, task)
    return Plan(experiment, axis, task.metric, tables, frozenset(own), minutes, timed)


def _wanted(experiment: Experiment, request: Request) -> Experiment:
    """With those of its arms that are wanted, which go by different names."""
    names = [arm.name for arm in experiment.arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{twice!r} is there twice; what is compared goes by different names.")
    for pattern in request.only:
        if not any(replace(request, only=(pattern,)).wants(name) for name in names):
            raise InputError(f"--only {pattern!r} is none of what is compared: {'; '.join(names)}.")
    return replace(experiment, arms=[arm for arm in experiment.arms if request.wants(arm.name)])


def _filled(table: Table, arm: Arm, experiment: Experiment) -> Table:
    """With what an arm's recipe leaves open, which the data choose: once, as of all of them, lest a shape differ with
    the fraction of the data.
    """
    if experiment.name != "recipes" and ("model.name" not in arm.fields or experiment.shaped):
        return table  # the rest of which was chosen for what all arms start from
    try:
        return laid(table, _chosen(_prepared(table)))
    except InputError:  # which its cells will say, each for itself
        return table


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


def _unclocked(tables: Mapping[Cell, Table]) -> tuple[dict[Cell, Table], float | None]:
    """Recipes without how many minutes each training has, which the clock would end while others want the cores; and
    how many all of them have together.
    """
    minutes = {cell: table.get("train", {}).get("minutes") for cell, table in tables.items()}
    each = set(minutes.values())
    if len(each) > 1:
        names = " and ".join("none" if one is None else f"{one:g}" for one in each)
        raise InputError(f"the recipes have {names} minutes (train.minutes); give --minutes, which is for all of them.")
    (most,) = each
    if most is None:
        return dict(tables), None
    without = {
        cell: {**table, "train": {name: value for name, value in table["train"].items() if name != "minutes"}}
        for cell, table in tables.items()
    }
    return without, most * len(tables)


def _check(request: Request) -> None:
    for option, value in (("--seeds", request.seeds), ("--workers", request.workers)):
        if value is not None and value < 1:
            raise InputError(f"{option} {value} does not fit; it should be 1 or more.")
    if request.minutes is not None and request.minutes <= 0:
        raise InputError(f"--minutes {request.minutes:g} does not fit; it should be more than 0.")
    if any(not 0 < one <= 1 for one in request.fractions):
        raise InputError("--fractions are parts of the data, above 0 and at most 1, such as 0.01 0.1 1.")


def _experiment(request: Request) -> tuple[Experiment, Table, Task]:
    """The arms, the recipe that they start from, and a task of it."""
    name, what = request.name, request.what
    if name == "vary":
        base = _read(what or ("digits",), request.settings)
        task, fields = _prepared(base), " and ".join(one.partition("=")[0].strip() for one in request.vary)
        return (
            Experiment("vary", f"What does each value of {fields} do?", varied(request.vary), shaped=False),
            laid(base, _chosen(task)),
            task,
        )
    if name == "recipes":
        arms, base = _recipes(what)
        task = _prepared(override(laid({**base}, arms[0].fields), request.settings))
        return Experiment("recipes", "Which recipe is better?", arms, shaped=False), base, task
    if name not in experiments:
        raise InputError(_no_experiment(what))
    base = _read(what[1:] or ("digits",), request.settings)
    if base.get("task", "pictures") != "pictures":
        raise InputError(f"{name} is compared on pictures; vary fields of other tasks with --vary.")
    task = _prepared(base)
    if not isinstance(task.config, ViTConfig):
        raise InputError(f"{name} begins with a ViT; leave model.name out.")
    return experiments[name](Base(task.config, task.counts[0])), laid(base, _chosen(task)), task


def _no_experiment(what: Sequence[str]) -> str:
    """What was meant by words of which the first is none."""
    choices = (
        f"choose one of {', '.join(experiments)}, or give recipes (a.toml b.toml), or data and what is varied "
        f"(--vary model.depth=2,4,6)"
    )
    if not what:
        return f"nothing is said that could be compared; {choices}."
    name, *rest = what
    if rest and rest[0] in experiments:
        return f"{name!r} is no experiment, and {rest[0]!r} is one; it comes first: vitrail compare {rest[0]} {name}."
    near = get_close_matches(name, experiments, n=1)
    return f"{name!r} is no experiment; did you mean {near[0]!r}?" if near else f"{name!r} is no experiment; {choices}."


def _chosen(task: Task) -> dict[str, Any]:
    """What pictures choose for a model and its training: once, for all cells, lest they differ in more than is said;
    but for what follows from the number of epochs, or from weights.
    """
    if task.recipe.task != "pictures" or task.recipe.weights.path is not None:
        return {}
    return {choice.field: choice.value for choice in task.choices if choice.field != "train.evaluate"}


def _read(what: Sequence[str], settings: Sequence[str] = ()) -> Table:
    return read_recipe(list(what), settings).model_dump(mode="json", exclude_unset=True)


def _prepared(table: Table) -> Task:
    recipe = parse_recipe(table)
    return tasks[recipe.task].prepare(recipe)


def _timed(
    tables: Mapping[Cell, Table], axis: Axis, timed: dict[str, Table]
) -> tuple[dict[Cell, Table], dict[str, Table]]:
    """With what is chosen by the clock for weights, which every cell would choose for itself: by the first of them that
    has all the data; and what that was, by the path of the weights.
    """
    found = dict[Cell, Table]()
    for cell, table in sorted(tables.items(), key=lambda one: one[0].at != axis.values[-1]):
        path = table.get("weights", {}).get("path")
        if path is not None and path not in timed:
            chosen = {choice.field: choice.value for choice in _prepared(table).choices if choice.field in TIMED}
            timed[path] = chosen
        given = _flat(table)
        fields = {name: value for name, value in timed.get(path, {}).items() if name not in given}
        found[cell] = laid(table, fields)
    return {cell: found[cell] for cell in tables}, timed


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


def _settings(request: Request, experiment: Experiment, axis: Axis, base: Table) -> dict[str, str]:
    """What is set for all arms, which is not what they differ by: assignments, by the paths of fields."""
    override({}, request.settings)  # which says what is none
    settings = {one.partition("=")[0].strip(): one for one in request.settings}
    every = set.intersection(*(set(arm.fields) for arm in experiment.arms))
    some = {name for arm in experiment.arms for name in arm.fields if not name.startswith(("model.", "optim."))}
    apart = {name for name in every | some if len({repr(arm.fields.get(name)) for arm in experiment.arms}) > 1}
    cut = axis.fields(axis.values[0])
    for name in settings:
        if any(name == one or name.startswith(f"{one}.") for one in apart) and experiment.name != "recipes":
            raise InputError(f"{name} is what is compared; leave it out of --set.")
        if name in (*cut, "train.seed") or (name == "data.use" and request.fractions):
            raise InputError(f"{name} is what cells differ by; leave it out of --set.")
        if name == "train.minutes":
            raise InputError("train.minutes would end each cell by the clock; give --minutes, which is for all of it.")
    uses = [base.get("data", {}).get("use", 1.0), *(arm.fields.get("data.use", 1.0) for arm in experiment.arms)]
    if request.fractions and any(one != 1 for one in uses):
        raise InputError("data.use is what --fractions are; leave those out, or let nothing else say it.")
    return settings


def _arm_table(base: Table, arm: Arm, experiment: Experiment, settings: Mapping[str, str]) -> Table:
    """The recipe of an arm: the base, what all arms have, what the arm has, and what was set.

    Where arms have a shape of their own, what was set of a model is what they begin with.
    """
    shared = {**experiment.shared, **({"train.keep": experiment.followed} if experiment.followed else {})}
    shared = {name: value for name, value in shared.items() if name not in settings}
    model = {name: text for name, text in settings.items() if name.startswith("model.")}
    table, given = override(base, model.values()), {**shared, **arm.fields}
    own = table.get("model", {}).get("name", "vit")
    if "model.name" in given:  # another model, with none of the base's fields but what pictures it is shown
        shown = {f"model.{name}": value for name, value in table.get("model", {}).items() if name in SHOWN}
        table["model"], given = {}, shown | given
        if known_as(own)[0] is not known_as(given["model.name"])[0]:
            table.pop("optim", None)  # nor what it was learned by
    rest = [text for name, text in settings.items() if name not in model or not experiment.shaped]
    values = {name: toml_value(text.partition("=")[2].strip()) for name, text in model.items()}
    changed = next(
        (name for name, value in values.items() if _sides(arm.fields.get(name, value)) != _sides(value)), None
    )
    if changed is not None and experiment.shaped and "model.name" not in arm.fields:
        raise InputError(f"{arm.name!r} has {changed}={given[changed]!r} of its own; leave it out of --set.")
    return override(laid(table, given), rest)


def _sides(value: Any) -> Any:
    """Of pictures, as two numbers; anything else as it is."""
    return [value, value] if isinstance(value, int) else list(value) if isinstance(value, tuple) else value


def _same_examples(tables: Mapping[Cell, Table]) -> None:
    """Whatever is compared is measured on the same, by a number of the same."""
    parsed = {cell: parse_recipe(table) for cell, table in tables.items()}
    of_tokens = any(_kind(recipe.model) is BERTConfig for recipe in parsed.values())
    counted = (*COUNTED, *OF_TOKENS * of_tokens)
    for names, what in ((EXAMPLES, "on different examples"), (counted, "by numbers of other things")):
        kinds = dict[str, tuple[str, Any]]()
        for cell, recipe in parsed.items():
            fields = {path: _field(recipe, path) for path in names}
            kinds.setdefault(repr(fields), (cell.arm.name, fields))
        if len(kinds) > 1:
            (one, own), (other, others), *_ = kinds.values()
            differ = ", ".join(path for path in names if own[path] != others[path])
            raise InputError(f"{one} and {other} are measured {what} ({differ}), and cannot be compared.")


def _field(recipe: Any, path: str) -> Any:
    """A field of a recipe; None where it has none of that name."""
    section, name = path.split(".")
    return getattr(getattr(recipe, section, None), name, None)


def _same_metric(tables: Mapping[str, Table], task: Task) -> None:
    """Whatever is compared is judged by one number, which in some tasks follows from the family of the model."""
    firsts = {_kind(table.get("model", {})): name for name, table in tables.items()}
    if isinstance(type(task).metric, Metric) or len(firsts) == 1:
        return
    for name in firsts.values():
        own = _prepared(tables[name]).metric
        if own != task.metric:
            raise InputError(f"{name} is judged by {own.name}, others by {task.metric.name}; they cannot be compared.")


def _kind(model: Mapping[str, Any]) -> Any:
    """Of which family a model is; None where its name is left out."""
    return known_as(model["name"])[0] if "name" in model else None


def laid(table: Table, fields: Mapping[str, Any]) -> Table:
    """A table with some fields set, each by its path."""
    changed = deepcopy(table)
    for path, value in fields.items():
        inner, leaf = table_of(changed, path)
        inner[leaf] = value
    return changed


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the sections of a table, by their paths."""
    return {
        f"{section}.{name}": value
        for section, fields in table.items()
        if isinstance(fields, dict)
        for name, value in fields.items()
    }
