"""The run directory at the start of a training: taken for this process alone, new, or the same run taken up again."""

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from vitrail.data import Parts
from vitrail.errors import InputError
from vitrail.files import make_folder, read_json, write_json
from vitrail.train.checkpoint import Lock
from vitrail.train.distributed import World
from vitrail.train.prepare import Prepared

FREE = {("train", name) for name in ("checkpoint", "keep", "tensorboard")}  # they change nothing in what is learned
PACKAGES = ("vitrail", "torch", "numpy", "kornia", "pillow", "scikit-learn")


def check_free(out: Path, *, resume: bool) -> None:
    """A folder that holds something is not written to, but to go on with the run that is in it."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{str(out)!r} is a file, and is left alone; choose another --out.")
    begun = (out / "recipe.json").is_file()
    there = out.is_dir() and any(not _before(path) for path in out.iterdir())
    if there and not begun:
        raise InputError(f"{str(out)!r} is there already, and is left alone; choose another --out, or remove it.")
    if there and not resume:
        raise InputError(
            f"{str(out)!r} holds a run already, and is left alone; go on with it by adding --resume, "
            f"or choose another --out."
        )


@contextmanager
def begun(prepared: Prepared, out: Path, world: World, *, resume: bool, command: str) -> Iterator[None]:
    """Hold the run directory, with what the run is written into it: recipe.json and data.json."""
    if not world.first:
        yield
        return
    make_folder(out)
    lock = Lock(out)
    try:
        check_free(out, resume=resume)
        for stray in out.glob(".*.part"):  # of a process that was killed
            stray.unlink(missing_ok=True)
        run = _description(prepared, world, command)
        if (out / "recipe.json").is_file():
            _check_same(read_json(out / "recipe.json"), run, out)
        else:
            write_json(out / "data.json", data_record(prepared.parts))
            write_json(out / "recipe.json", run)
        yield
    finally:
        lock.release()


def _before(path: Path) -> bool:
    """Whether a file is one that a process killed before the run began may leave: recipe.json is written last."""
    return path.name in (".lock", "data.json") or (path.name.startswith(".") and path.suffix == ".part")


def data_record(parts: Parts) -> dict[str, Any]:
    """What was found, what was set aside and why, and what is in both parts."""
    return {
        "layout": parts.layout,
        "files": parts.found,
        "train": len(parts.train),
        "test": len(parts.test),
        "classes": {
            name: [int((part.labels == number).sum()) for part in (parts.train, parts.test)]
            for number, name in enumerate(parts.train.names)
        },
        "sizes": parts.sizes,
        "left for later": parts.left,
        "set aside": [asdict(one) for one in parts.aside],
        "in both parts": parts.leaks,
    }


def _description(prepared: Prepared, world: World, command: str) -> dict[str, Any]:
    pixels = blake2b(digest_size=16)
    for part in (prepared.parts.train, prepared.parts.test):
        for rows in part.rows.split(4096):
            pixels.update(part.store[rows].numpy().tobytes())
        pixels.update(part.labels.numpy().tobytes())
    return {
        "command": command,
        "recipe": prepared.recipe.model_dump(mode="json"),
        "chosen": [asdict(choice) for choice in prepared.choices],
        "processes": world.size,
        "pictures": pixels.hexdigest(),
        "weights": _digest(prepared),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _digest(prepared: Prepared) -> str | None:
    """What tells the weights that a run began with from others."""
    if prepared.weights is None:
        return None
    digest = blake2b(digest_size=16)
    for _, tensor in sorted(prepared.weights.state.items()):
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _check_same(before: Any, now: dict[str, Any], out: Path) -> None:
    """A run goes on only as what it began as."""
    if not isinstance(before, dict) or not {"recipe", "pictures", "processes"} <= before.keys():
        raise InputError(f"{str(out / 'recipe.json')!r} does not describe a run; choose another --out.")
    _check_fields(before, now, out, ("data",))
    if before["pictures"] != now["pictures"]:
        raise InputError(
            f"the pictures are not those that the run in {str(out)!r} began with; "
            f"bring them back, or choose another --out."
        )
    if before.get("weights") != now["weights"]:
        raise InputError(
            f"the weights are not those that the run in {str(out)!r} began with; "
            f"bring them back, or choose another --out."
        )
    _check_fields(before, now, out, ("weights", "model", "augment", "optim", "train"))
    if before["processes"] != now["processes"]:
        raise InputError(
            f"the run in {str(out)!r} was begun with {before['processes']} processes, and is now asked for with "
            f"{now['processes']}; give the same --processes."
        )


def _check_fields(before: dict[str, Any], now: dict[str, Any], out: Path, sections: tuple[str, ...]) -> None:
    for section in sections:
        old, new = before["recipe"].get(section, {}), now["recipe"][section]
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name) and (section, name) not in FREE:
                raise InputError(
                    f"the run in {str(out)!r} was begun with {section}.{name}={old.get(name)!r}, and is now asked for "
                    f"with {new.get(name)!r}; give the same command, or choose another --out."
                )
