"""Models in our own format and in those of other libraries, so that those load them."""

from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from vitrail.data.decode import Fit
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError, unknown
from vitrail.families import Model, family_of
from vitrail.files import Pathlike, make_folder, whole, write_json
from vitrail.weights.compact import packed
from vitrail.weights.formats import formats
from vitrail.weights.weights import Usage, described, ties


def save(
    model: Model,
    path: Pathlike,
    format: str = "vitrail",  # noqa: A002
    *,
    normalise: Any = None,
    labels: tuple[str, ...] | None = None,
    fit: Fit = "crop",
    bits: int | None = None,
    sparse: bool = False,
    **about: Any,
) -> None:
    """Write a model: ``vitrail`` (a run directory), ``hf`` (a folder), ``timm``, ``torchvision``, ``vit-pytorch``
    (.safetensors, or .pt), ``npz`` (Google's).

    What a file of these cannot say, such as the number of heads, goes into NAME.json beside it. How pictures are
    normalised (a pair of mean and std), what of them is seen (crop, pad, squash), and what the classes are called, are
    kept where the format has a place for them. In our own format matrices may be written in few bits, such as 4, each
    number as the nearest of 2^bits that k-means finds; what is read again are those. ``sparse`` writes matrices that
    are mostly zeros without them.
    """
    model = getattr(model, "_orig_mod", model)  # of a compiled model
    if not isinstance(model, Model):
        raise InputError(f"a {type(model).__name__} has no tensors to write; save the model that it was made of.")
    tied = ties(model)
    every = model.state_dict().items()
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in every if name not in tied}
    normalise = Normalise.of(normalise)
    if format == "vitrail":
        state = packed(state, bits) if bits is not None or sparse else state
        _run(Path(path), state, labels, {**described(model.config, format, Usage(normalise, fit=fit)), **about})
        return
    if bits is not None or sparse:
        what = "sparse" if bits is None else f"bits={bits}"
        raise InputError(f"{what} has no place in format={format!r}; choose format='vitrail'.")
    kinds = [kind() for kind in formats.values() if kind.name == format]
    if not kinds:
        raise unknown("format", format, {"vitrail", *(kind.name for kind in formats.values())})
    if about:
        raise InputError(f"{min(about)!r} has no place in format={format!r}; leave it out.")
    family = family_of(model.config)
    kind = next((kind for kind in kinds if kind.family == family and kind.suits(model.config)), None)
    if kind is None:
        raise InputError(f"the model is a {family}, which {format} has no place for; choose format='vitrail'.")
    kind.write(Path(path), model.config, state, Usage(normalise, labels, fit))


def _run(folder: Path, state: dict[str, Tensor], labels: tuple[str, ...] | None, about: dict[str, Any]) -> None:
    make_folder(folder)
    with whole(folder / "model.safetensors") as aside:
        save_file(state, aside)
    if labels is not None:
        write_json(folder / "labels.json", list(labels))
    write_json(folder / "config.json", about)
