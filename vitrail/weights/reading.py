"""Weights from anywhere: a run directory, or a file or folder of another library."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.data.normalise import Normalise
from vitrail.errors import AGAIN, InputError, unknown
from vitrail.families import Model
from vitrail.files import Pathlike, read_json
from vitrail.weights.compact import unpacked
from vitrail.weights.files import Lazy, json_table, listed, read_shards, read_tensors
from vitrail.weights.formats import Format, Request, formats
from vitrail.weights.formats.seq2seq.torch import TorchSeq2Seq
from vitrail.weights.formats.vit.structure import ByStructure, names_table, read_names
from vitrail.weights.hub import fetch
from vitrail.weights.onnx import is_onnx, read_onnx
from vitrail.weights.weights import Weights, checked_config, owned, stated_fit, stated_labels, stated_normalise

WHOLE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
KINDS = (".safetensors", ".npz", ".bin", ".pt", ".pth")
# Fields that no tensor says, and a user may.
STATED = ("heads", "eps", "activation", "position", "order", "scaled", "pad", "begin", "end")


def load(path: Pathlike, *, strict: bool = True, head: str = "keep", **fields: Any) -> Model:
    """A model, in evaluation mode, from a run directory, .npz (Google), .safetensors, .bin, .pt, an HF folder or
    ``hf:owner/name``; its architecture is read off the tensors.

    Fields that differ from what the weights were made for are had by changing them: ``image``, ``channels``, ``patch``,
    ``classes`` (a fresh head of zeros), ``prelogits`` (True: kept with a fresh head). What no tensor says can be given:
    ``heads`` (64 numbers each unless known otherwise), ``eps``, ``activation``, ``position`` (where none is stored),
    ``order`` (pre or post) and what ``answers`` (class or mean), where names say nothing (another ``pool`` would be
    another head); of a seq2seq ``scaled``, ``pad``, ``begin``, ``end``. ``names`` is a table of names (a TOML file or
    a mapping) for a file whose own were never seen, and guessed wrong. ``strict=False`` leaves out tensors that have
    no place in the model, and says which.
    """
    stated = {name: fields.pop(name) for name in list(fields) if name in (*STATED, "answers", "normalise", "names")}
    weights = read(path, strict=strict, image=fields.get("image"), channels=fields.get("channels"), **stated)
    weights = weights.adapted(head=head, **fields)
    for note in weights.notes:
        warnings.warn(f"{os.fspath(path)}: {note}", stacklevel=2)
    return weights.model()


def read(
    path: Pathlike,
    *,
    strict: bool = True,
    image: Any = None,
    channels: Any = None,
    normalise: Any = None,
    names: Pathlike | Mapping[str, Any] | None = None,
    **stated: Any,
) -> Weights:
    """What is in a file or folder of weights, under our names.

    A size or a number of channels that is wanted tells the shape of positions or patches, where nothing else does.
    """
    location = fetch(os.fspath(path)) if os.fspath(path).startswith("hf:") else Path(path)
    if not location.is_file() and not location.is_dir():
        raise InputError(f"{str(location)!r} is not there; give a run directory, a file of weights, or hf:owner/name.")
    request = _request(strict, normalise, stated, {"image": image, "channels": channels})
    if is_onnx(location):
        return read_onnx(location, stated=[*(["normalise"] if normalise is not None else []), *request.stated])
    about = own_config(location)
    if about is None and not location.is_dir() and location.name == "model.safetensors":
        about = own_config(location.parent)
    if names is not None:
        return _named(location, names, request)
    if about is not None and about.get("format", "vitrail") == "vitrail":
        return _own(location if location.is_dir() else location.parent, about, request)
    tensors = _tensors(location)
    for kind in formats.values():
        if kind().recognises(tensors):
            return _foreign(location, kind(), tensors, about, request)
    if any(name.endswith("attention.f.query.weight") for name in tensors):
        raise InputError(
            f"{str(location)!r} is of a run, and needs the run's config.json beside it; give its whole folder."
        )
    try:
        structure = ByStructure.of(tensors)
    except InputError as error:
        raise InputError(
            f"{str(location)!r} holds {len(tensors)} tensors, such as {listed(sorted(tensors), 3)}, in no format known "
            f"here: {', '.join(dict.fromkeys(kind.name for kind in formats.values()))}. Nor is it a ViT by its "
            f"structure: {error}; if it is one, give a table of its names (--names)."
        ) from None
    return _foreign(location, structure, tensors, None, request)


def _named(location: Path, names: Pathlike | Mapping[str, Any], request: Request) -> Weights:
    """Weights of a file whose names a table tells."""
    tensors, table = _tensors(location), names_table(names)
    if TorchSeq2Seq().recognises(tensors):
        return _foreign(location, TorchSeq2Seq(table), tensors, None, request)
    return _foreign(location, ByStructure.named(read_names(table), tensors), tensors, None, request)


def own_config(path: Path) -> dict[str, Any] | None:
    """What ``save`` wrote about a model: config.json of a run directory, or NAME.json beside a file."""
    about = json_table(path / "config.json" if path.is_dir() else path.with_name(f"{path.name}.json"))
    return about if isinstance(about.get("model"), dict) and "family" in about else None


def _request(strict: bool, normalise: Any, stated: dict[str, Any], wanted: dict[str, Any]) -> Request:
    """What the user says, checked."""
    wrong = sorted(stated.keys() - {*STATED, "answers"})
    if wrong:
        raise unknown("field", wrong[0], [*STATED, "answers", "normalise"])
    stated = {"pool" if name == "answers" else name: value for name, value in stated.items() if value is not None}
    heads = stated.get("heads")
    if heads is not None and not (type(heads) is int and heads > 0):
        raise InputError(f"heads={heads!r} does not fit; it should be a number of heads, such as 12.")
    return Request(strict, stated, wanted, Normalise.of(normalise) if normalise is not None else None)


def _tensors(location: Path) -> dict[str, Lazy]:
    if location.is_dir():
        files = [location / name for name in WHOLE if (location / name).is_file()]
        files = files[:1] or sorted(path for path in location.iterdir() if path.suffix in KINDS)
        if not files and (location / "recipe.json").is_file():
            raise InputError(f"the run in {str(location)!r} has not finished; go on with it by adding --resume.")
        if len(files) != 1:
            several = f"several: {listed([path.name for path in files])}" if files else "none"
            raise InputError(f"{str(location)!r} should hold one file of weights, and holds {several}; name the file.")
        location = files[0]
    return read_shards(location) if location.name.endswith(".index.json") else read_tensors(location)


def _own(folder: Path, about: dict[str, Any], request: Request) -> Weights:
    """A run directory's."""
    path = folder / "model.safetensors"
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not there; the run may not have finished.")
    tensors = unpacked(read_tensors(path), str(path))
    config = checked_config(str(folder), about["family"], about["model"], tensors)
    request.check(str(folder), config)
    state = owned({name: lazy.read() for name, lazy in tensors.items()})
    labels = read_json(folder / "labels.json") if (folder / "labels.json").is_file() else None
    normalise = request.normalise or stated_normalise(about, str(folder))
    return Weights(
        str(folder),
        "vitrail",
        about["family"],
        config,
        state,
        normalise,
        stated_labels(labels, str(folder)),
        fit=stated_fit(about),
    )


def _foreign(
    location: Path, kind: Format, tensors: dict[str, Lazy], about: dict[str, Any] | None, request: Request
) -> Weights:
    """Another library's; whatever is wrong with a stranger's tensors ends here, as a sentence."""
    try:
        return kind.read(location, tensors, about, request)
    except InputError:
        raise
    except (RuntimeError, IndexError, KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        first = str(error).strip().splitlines()[:1]
        raise InputError(
            f"{str(location)!r} is of {kind.name}, but its tensors do not fit together "
            f"({' '.join(first)[:120]}); {AGAIN}."
        ) from error
