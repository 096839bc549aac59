"""Run directories: config.json, model.safetensors, labels.json. All that is needed to use a model, or to move it."""

import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from vitrail.errors import InputError, unknown
from vitrail.families import Model, families, family_of
from vitrail.files import make_folder, read_json, whole, write_json

Pathlike = str | os.PathLike[str]


def save(model: Model, path: Pathlike, format: str = "vitrail", **about: Any) -> None:  # noqa: A002
    """Write a model to a run directory; what is said about it (such as its recipe) goes into config.json."""
    if format != "vitrail":
        raise unknown("format", format, ["vitrail"])
    folder = make_folder(Path(path))
    with whole(folder / "model.safetensors") as aside:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, aside)
    config = model.config.model_dump(mode="json")
    write_json(folder / "config.json", {"family": family_of(model.config), "model": config, **about})


def load(path: Pathlike) -> Model:
    """The model of a run directory, in evaluation mode."""
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a run directory; give the folder that was named with --out.")
    about = read_json(folder / "config.json")
    if not isinstance(about, dict) or not isinstance(about.get("model"), dict):
        raise InputError(f"{str(folder / 'config.json')!r} does not describe a model; it needs 'family' and 'model'.")
    family = families[about.get("family", "vit")]
    model = family(family.Config(**about["model"]))
    weights = folder / "model.safetensors"
    try:
        tensors = load_file(weights)
    except FileNotFoundError:
        raise InputError(f"{str(weights)!r} is not there; the run may not have finished.") from None
    except SafetensorError as error:
        raise InputError(
            f"{str(weights)!r} is damaged or not safetensors ({error}); take it from its source again."
        ) from None
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{str(weights)!r} does not fit its config.json: {error}") from None
    return model.eval()
