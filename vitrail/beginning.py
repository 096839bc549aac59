"""What a run was begun with, and whether that is what it goes on with."""

import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vitrail.data.normalise import Normalise
from vitrail.distributed import World
from vitrail.errors import InputError
from vitrail.tasks import parse_recipe
from vitrail.tasks.task import Task
from vitrail.weights import Weights
from vitrail.weights.weights import Usage, described

# What may change when a run goes on: what changes nothing in what is learned, and how long it is learned.
FREE = {("train", name) for name in ("checkpoint", "keep", "tensorboard", "epochs", "steps", "minutes", "evaluate")}
PACKAGES = ("vitrail", "torch", "numpy", "kornia", "pillow", "scikit-learn")


def _about(task: Task) -> dict[str, Any]:
    """What its model is and is used with, for who uses it before it is finished."""
    given = task.usage()
    usage = Usage(Normalise.of(given.get("normalise")), given.get("labels"), given.get("fit", "crop"))
    return {**described(task.config, "vitrail", usage), "task": task.recipe.task}


def description(task: Task, world: World, command: str) -> dict[str, Any]:
    """All that a run begins with."""
    return {
        "command": command,
        "recipe": task.recipe.model_dump(mode="json"),
        "chosen": [asdict(choice) for choice in task.choices],
        "model": _about(task),
        "processes": world.size,
        "data": task.fingerprint(),
        "weights": _digest(task.given),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _digest(weights: Weights | None) -> str | None:
    """What tells the weights that a run began with from others."""
    if weights is None:
        return None
    digest = blake2b(digest_size=16)
    for _, tensor in sorted(weights.state.items()):
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_same(before: Any, now: dict[str, Any], out: Path) -> None:
    """A run goes on only as what it began as."""
    if not isinstance(before, dict) or not {"recipe", "data", "processes"} <= before.keys():
        raise InputError(f"what {str(out)!r} says of itself does not describe a run; choose another --out.")
    with suppress(InputError):  # a field that there was not yet has its default
        before = {**before, "recipe": parse_recipe(before["recipe"]).model_dump(mode="json")}
    _check_fields(before, now, out, ("task", "data"))
    for what, name in (("data", "data"), ("weights", "weights")):
        if before.get(name) != now[name]:
            raise InputError(
                f"the {what} are not those that the run in {str(out)!r} began with; "
                f"bring them back, or choose another --out."
            )
    others = [name for name in now["recipe"] if name not in ("about", "command", "reached", "task", "data")]
    _check_fields(before, now, out, others)
    if before["processes"] != now["processes"]:
        raise InputError(
            f"the run in {str(out)!r} was begun with {before['processes']} processes, and is now asked for with "
            f"{now['processes']}; give the same --processes."
        )


def upgraded(before: Any) -> Any:
    """What an earlier version wrote, before there were tasks."""
    if isinstance(before, dict) and "pictures" in before and isinstance(before.get("recipe"), dict):
        return {**before, "data": before["pictures"], "recipe": {"task": "pictures", **before["recipe"]}}
    return before


def _alike(name: str, old: Any, new: Any) -> bool:
    """Whether two values are the same, or the same path."""
    paths = name == "path" and isinstance(old, str) and isinstance(new, str)
    return old == new or (paths and Path(old).resolve() == Path(new).resolve())


def _check_fields(before: dict[str, Any], now: dict[str, Any], out: Path, sections: Iterable[str]) -> None:
    for section in sections:
        old, new = before["recipe"].get(section, {}), now["recipe"].get(section, {})
        if not isinstance(new, dict):
            old, new = {"": old}, {"": new}
        for name in sorted(old.keys() | new.keys()):
            if not _alike(name, old.get(name), new.get(name)) and (section, name) not in FREE:
                field = f"{section}.{name}".rstrip(".")
                raise InputError(
                    f"the run in {str(out)!r} was begun with {field}={old.get(name)!r}, and is now asked for "
                    f"with {new.get(name)!r}; give the same command, or choose another --out."
                )
