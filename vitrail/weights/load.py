"""Weights from anywhere: a run directory, or a file or folder of another library."""

import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.families import Model, families
from vitrail.files import Pathlike, read_json
from vitrail.weights.adapt import NORMALISATIONS
from vitrail.weights.beside import hints, normalisation, own_config
from vitrail.weights.files import AGAIN, Lazy, listed, read_shards, read_tensors
from vitrail.weights.formats import Format, Hints, Known, formats
from vitrail.weights.hub import fetch
from vitrail.weights.weights import Weights, check_bounds, check_positions

WHOLE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
KINDS = (".safetensors", ".npz", ".bin", ".pt", ".pth")
SAID = ("heads", "eps", "activation", "position", "normalise")  # what no tensor says


def load(path: Pathlike, *, strict: bool = True, head: str = "keep", **fields: Any) -> Model:
    """A model, in evaluation mode, from a run directory, .npz (Google), .safetensors, .bin, .pt, an HF folder or
    ``hf:owner/name``; its architecture is read off the tensors.

    Fields that differ from what the weights were made for are had by changing them: ``image``, ``channels``, ``patch``,
    ``classes`` (a fresh head of zeros), ``prelogits`` (True: kept with a fresh head). What no tensor says can be given:
    ``heads`` (64 numbers each unless known otherwise), ``eps``, ``activation``, ``position`` (where none is stored).
    ``strict=False`` leaves out tensors with no place in the model, and says which.
    """
    said = {name: fields.pop(name) for name in list(fields) if name in SAID}
    weights = read(path, strict=strict, image=fields.get("image"), channels=fields.get("channels"), **said)
    weights = weights.adapted(head=head, **fields)
    for note in weights.notes:
        warnings.warn(f"{os.fspath(path)}: {note}", stacklevel=2)
    return weights.model()


def read(path: Pathlike, *, strict: bool = True, image: Any = None, channels: Any = None, **said: Any) -> Weights:
    """What is in a file or folder of weights, under our names.

    A size or a number of channels that is wanted tells the shape of positions or patches, where nothing else does.
    """
    place = fetch(os.fspath(path)) if os.fspath(path).startswith("hf:") else Path(path)
    if not place.is_file() and not place.is_dir():
        raise InputError(f"{str(place)!r} is not there; give a run directory, a file of weights, or hf:owner/name.")
    told = _told(image, channels, said)
    about = own_config(place)
    if about is None and not place.is_dir() and place.name == "model.safetensors":
        about = own_config(place.parent)
    if about is not None and about.get("format", "vitrail") == "vitrail":
        return _own(place if place.is_dir() else place.parent, about, told)
    tensors = _tensors(place)
    for kind in formats.values():
        if kind().recognises(tensors):
            return _foreign(place, kind(), tensors, about, told, strict=strict)
    if any(name.endswith("attention.f.query.weight") for name in tensors):
        raise InputError(
            f"{str(place)!r} is of a run, and needs the run's config.json beside it; give its whole folder."
        )
    raise InputError(
        f"{str(place)!r} holds {len(tensors)} tensors, such as {listed(sorted(tensors), 3)}, in no format known here: "
        f"{', '.join(dict.fromkeys(kind.name for kind in formats.values()))}."
    )


def _told(image: Any, channels: Any, said: dict[str, Any]) -> Hints:
    """What the user says, checked."""
    wrong = sorted(said.keys() - set(SAID))
    if wrong:
        raise unknown("field", wrong[0], SAID)
    heads, normalise = said.get("heads"), said.pop("normalise", None)
    if heads is not None and not (type(heads) is int and heads > 0):
        raise InputError(f"heads={heads!r} does not fit; it should be a number of heads, such as 12.")
    if normalise is not None and normalise not in NORMALISATIONS:
        raise unknown("normalise", normalise, NORMALISATIONS)
    wanted = (image, image) if isinstance(image, int) else tuple(image) if isinstance(image, list | tuple) else None
    return Hints(
        asked=wanted if wanted and len(wanted) == 2 and all(type(side) is int for side in wanted) else None,  # noqa: PLR2004
        channels=channels if type(channels) is int else None,
        normalise=NORMALISATIONS[normalise] if normalise else None,
        **said,
    )


def _tensors(place: Path) -> dict[str, Lazy]:
    if place.is_dir():
        files = [place / name for name in WHOLE if (place / name).is_file()]
        files = files[:1] or sorted(path for path in place.iterdir() if path.suffix in KINDS)
        if not files and (place / "recipe.json").is_file():
            raise InputError(f"the run in {str(place)!r} has not finished; go on with it by adding --resume.")
        if len(files) != 1:
            found = f"several: {listed([path.name for path in files])}" if files else "none"
            raise InputError(f"{str(place)!r} should hold one file of weights, and holds {found}; name the file.")
        place = files[0]
    return read_shards(place) if place.name.endswith(".index.json") else read_tensors(place)


def _own(folder: Path, about: dict[str, Any], told: Hints) -> Weights:
    """A run directory's."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not there; the run may not have finished.")
    tensors = read_tensors(path)
    check_bounds(str(folder), about["model"], len(tensors))
    config: Any = families[about["family"]].Config(**about["model"])
    check_positions(str(folder), config)
    _check_told(str(folder), config, told)
    state = _owned({name: lazy.read() for name, lazy in tensors.items()})
    labels = read_json(folder / "labels.json") if (folder / "labels.json").is_file() else None
    normalise = told.normalise or _normalise(about, str(folder))
    return Weights(str(folder), "vitrail", about["family"], config, state, normalise, _labels(labels, str(folder)))


def _foreign(
    place: Path, kind: Format, tensors: dict[str, Lazy], about: dict[str, Any] | None, told: Hints, *, strict: bool
) -> Weights:
    """Another library's; whatever is wrong with a stranger's tensors ends here, as a sentence."""
    try:
        return _understood(place, kind, tensors, about, told, strict=strict)
    except InputError:
        raise
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        first = str(error).strip().splitlines()[:1]
        raise InputError(
            f"{str(place)!r} is of {kind.name}, but its tensors do not fit together ({' '.join(first)[:120]}); {AGAIN}."
        ) from error


def _understood(
    place: Path, kind: Format, tensors: dict[str, Lazy], about: dict[str, Any] | None, told: Hints, *, strict: bool
) -> Weights:
    path, family = str(place), families["vit"]
    config: Any = None
    if about is None:
        found = hints(place if place.is_dir() else place.parent)
        _check_told(path, found, told)
        beside = told.over(found)
    else:
        check_bounds(path, about["model"], len(tensors))
        config = family.Config(**about["model"])
        _check_told(path, config, told)
        labels = _labels(about.get("labels"), path)
        normalise = told.normalise or _normalise(about, path)
        beside = replace(told, image=config.size, pool=config.pool, normalise=normalise, labels=labels)
    known = kind.understand(tensors, beside)
    if config is None:
        fields = kind.fields(known, beside)
        check_bounds(path, fields, len(tensors))
        config = family.Config(**fields)
    check_positions(path, config)
    state, over = _moved(path, kind, config, known, strict=strict)
    notes = [*known.notes, *([f"left out: {listed(over, len(over))}"] if over else [])]
    labels = beside.labels if beside.labels is not None and len(beside.labels) == config.classes else None
    normalise, assumed = beside.normalise, ""
    if normalise is None and known.normalise is not None and about is None:
        normalise = known.normalise
        name = next(name for name, value in NORMALISATIONS.items() if value == normalise)
        assumed = f"nothing says how pictures are normalised; {name!r} is assumed, as most such weights want it"
    if normalise is not None and len(normalise[0]) != config.channels:
        normalise, assumed = None, ""
    return Weights(path, kind.name, "vit", config, _one_type(state), normalise, labels, notes, assumed)


def _moved(path: str, kind: Format, config: Any, known: Known, *, strict: bool) -> tuple[dict[str, Tensor], list[str]]:
    """Our tensors, and the names of theirs that have no place among them."""
    state: dict[str, Tensor] = {}
    used: set[str] = set()
    missing: list[str] = []
    moves = list(kind.plan(config))
    for move in moves:
        names = [theirs for theirs, _ in move.theirs]
        missing += [theirs for theirs in names if theirs not in known.tensors]
        used |= set(names)
    over = sorted(known.tensors.keys() - used)
    rest = f", and has {listed(over)} with no place in the model" if over else ""
    if missing:
        raise InputError(
            f"{path!r} is of {kind.name} and lacks {listed(missing)}{rest}; it is another model, or damaged."
        )
    if over and strict:
        raise InputError(
            f"{path!r} has {listed(over)}, with no place in the model, whose answers would then be others; leave them "
            f"out with strict=False (--partial)."
        )
    for move in moves:
        state |= _owned(move.read(known.tensors))
    return state, over


def _check_told(path: str, config: Any, told: Hints) -> None:
    """What the user says of a model whose configuration is known has to be true."""
    for name in ("heads", "eps", "activation", "position"):
        said = getattr(told, name)
        if said is not None and getattr(config, name) not in (None, said):
            raise InputError(f"{path!r} has {name}={getattr(config, name)!r}, not {said!r}; leave it out.")


def _normalise(about: dict[str, Any], path: str) -> Any:
    table = about.get("normalise")
    if table is None:
        return None
    found = normalisation(table.get("mean"), table.get("std")) if isinstance(table, dict) else None
    if found is None:
        raise InputError(f"{path!r} does not say how pictures are normalised in numbers: {str(table)[:80]}; mend it.")
    return found


def _labels(names: Any, path: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"the labels of {path!r} are not a list of names; take them from the run again.")
    return tuple(names) or None


def _owned(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor in memory of its own: not a part of another's, nor of a file's, whose alignment moves last bits."""
    return {
        name: tensor
        if tensor.is_contiguous()
        and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        and not tensor.untyped_storage().filename
        else tensor.clone(memory_format=torch.contiguous_format)
        for name, tensor in state.items()
    }


def _one_type(state: dict[str, Tensor]) -> dict[str, Tensor]:
    types = {tensor.dtype for tensor in state.values()}
    wanted = types.pop() if len(types) == 1 else torch.float32
    return {name: tensor.to(wanted) for name, tensor in state.items()}
