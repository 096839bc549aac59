"""``vitrail figures``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitrail.cli.console import Json, Normalisation, messages, print_json, say, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from vitrail.serve import Predictor


def figures(
    run: Annotated[str, typer.Argument(help="A run directory, or weights.", metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Where the figures go.", metavar="DIR")],
    data: Annotated[
        str | None,
        typer.Argument(help="Pictures that the heads look at; the run's own test part unless given.", metavar="DATA"),
    ] = None,
    count: Annotated[int, typer.Option(help="How many of the pictures are looked at.", min=1, metavar="N")] = 64,
    ablation: Annotated[
        bool, typer.Option(help="Measure the loss without each head, which takes a pass for every one.")
    ] = True,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Draw the ViT paper's figures: patch filters, position similarity, attention distance, and what heads are worth.

    For a run that kept models along the way (--set train.keep=8), also how they changed while it was trained.
    """
    with messages().status("Starting ..."):
        from functools import partial

        from vitrail.files import make_folder
        from vitrail.lens import loss_without, sensitivity
        from vitrail.machine import keep_memory
        from vitrail.report.figures import Figures
        from vitrail.serve import Predictor

        keep_memory()
        predictor = Predictor.of(run, head=False, normalise=normalise)
        made = Figures(make_folder(out))
    for note in predictor.notes:
        say(f"note: {note}")
    model: Any = predictor.model
    images, labels, why = _pictures(run, data, predictor, count)
    with messages().status("Drawing ..."):
        made.unless(partial(made.filters, model))
        made.unless(partial(made.positions, model))
    if images is None:
        made.notes.append(f"how far the heads look needs pictures, and is not shown: {why}")
    else:
        with messages().status(f"Looking at {len(images)} pictures ..."):
            made.unless(partial(made.distance, model, images))
        if labels is not None:
            without = loss_without(model, images, labels, _watched) if ablation else None
            made.importance(sensitivity(model, images, labels), without, len(images))
    kept = _history(Path(run))
    if kept:
        with messages().status(f"Looking at {len(kept)} models of the training ..."):
            made.over_time(kept, images)
    page = made.finish(Path(run).name, {"run": run, "pictures": 0 if images is None else len(images)})
    for note in made.notes:
        say(f"note: {note}")
    if as_json:
        print_json({"page": str(page), "files": [str(out / one.file) for one in made.drawn], "notes": made.notes})
        return
    for one in made.drawn:
        tell(f"{out / one.file}  {one.title}")
    tell(f"{page}  all of them")


def _pictures(
    run: str, data: str | None, predictor: "Predictor", count: int
) -> "tuple[Tensor | None, Tensor | None, str]":
    """Pictures as the model takes them, and their labels where they are known; or why there are none."""
    from vitrail.cli.evaluate import given, own
    from vitrail.data import unit
    from vitrail.errors import InputError
    from vitrail.report.figures import spread

    if data is None:
        try:
            found, aside = own(_run_of(run), predictor, "give pictures after RUN")
        except InputError as error:  # they may be on another machine, and the weights alone have much to show
            return None, None, str(error)
    elif _labelled(data, predictor):
        found, aside = given(data, predictor)
    else:
        return _unlabelled(data, predictor, count), None, ""
    for one in aside:
        say(f"set aside: {one.what}: {one.why}")
    some = found[spread(len(found), count)]
    return predictor.normalise(unit(some.images)), some.labels if predictor.config.classes else None, ""


def _labelled(data: str, predictor: "Predictor") -> bool:
    """Whether pictures are of classes that the model has."""
    from vitrail.data import idx_parts, sources

    path = Path(data)
    if data in sources or (path.is_dir() and idx_parts(path)):
        return True
    return path.is_dir() and any((path / label).is_dir() for label in predictor.labels)


def _unlabelled(data: str, predictor: "Predictor", count: int) -> "Tensor":
    import torch

    from vitrail.cli.predict import sources_of
    from vitrail.errors import InputError
    from vitrail.report.figures import spread

    sources = list(sources_of([data]))
    good = []
    for source, pixels in predictor.decoded(sources[place] for place in spread(len(sources), count).tolist()):
        if isinstance(pixels, str):
            say(f"set aside: {source.name}: {pixels}")
        else:
            good.append(predictor.image(pixels))
    if not good:
        raise InputError(f"{data!r} holds no picture to look at.")
    return torch.cat(good)


def _run_of(place: str) -> str:
    """The run that a kept model is of, or the run itself."""
    from vitrail.train import HISTORY

    folder = Path(place).resolve()
    return str(folder.parent.parent) if folder.parent.name == HISTORY else place


def _history(run: Path) -> dict[int, Path]:
    """The models that a training kept, by the step they were kept at."""
    from vitrail.train import HISTORY

    places = sorted(path for path in (run / HISTORY).glob("*") if path.name.isdigit()) if run.is_dir() else []
    return {int(place.name): place for place in places}


def _watched(heads: "Iterable[tuple[str, int]]") -> "Iterator[tuple[str, int]]":
    """Heads on their way, with a bar on a terminal."""
    from rich.progress import track

    every = list(heads)
    console = messages()
    if console.is_terminal:
        yield from track(every, f"Without each of {len(every)} heads", console=console, transient=True)
    else:
        yield from every
