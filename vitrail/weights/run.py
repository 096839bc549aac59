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
    model = getattr(model, "_orig_mod", model)  # of a compiled model
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
    expected = model.state_dict()
    wrong = sorted(expected.keys() ^ tensors.keys())
    wrong += [name for name in expected.keys() & tensors.keys() if expected[name].shape != tensors[name].shape]
    if wrong:
        raise InputError(
            f"{str(weights)!r} does not fit its config.json: {len(wrong)} tensors are missing, left over or of another "
            f"shape, the first {wrong[0]!r}; take both from one run."
        )
    types = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    if len(types) == 1:
        model.to(types.pop())
    # Copied, not taken as they are: tensors from a file are not aligned as PyTorch's own, which moves the last bits.
    model.load_state_dict(tensors)
    return model.eval()
