"""``vitrail figures``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Force, Json, Normalisation, print_json
from vitrail.progress import first_of
from vitrail.terminal.console import say, tell
from vitrail.terminal.progress import counted, working

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.runs import Run
    from vitrail.tasks.pictures.predictor import Predictor


def figures(
    run: Annotated[str, typer.Argument(help="A run directory, or weights.", metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Folder to write the figures to.", metavar="DIR")],
    data: Annotated[
        str | None,
        typer.Argument(help="Pictures to look at. Default: the run's own test pictures.", metavar="DATA"),
    ] = None,
    count: Annotated[int, typer.Option(help="Number of pictures to use.", min=1, metavar="N")] = 64,
    ablation: Annotated[bool, typer.Option(help="Measure the loss without each head: one pass per head.")] = True,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw the figures of the ViT paper: patch filters, position similarity, attention distance; and head importance.

    For a run that kept models during training (--set train.keep=8), also how they changed.
    """
    with working("Starting ..."):
        from functools import partial

        from vitrail.files import Output
        from vitrail.lens import loss_without, sensitivity
        from vitrail.machine import keep_memory
        from vitrail.report.figures import Figures
        from vitrail.runs import Run
        from vitrail.tasks.pictures.predictor import Predictor

        keep_memory()
        opened = Run(run)
        predictor = Predictor.of(opened.weights(normalise=normalise), head=False, inside=True)
        drawing = Figures(Output(out, force=force))
    for note in predictor.notes:
        say(f"note: {note}")
    model = predictor.attending
    images, labels, why = _pictures(opened, data, predictor, count)
    with working("Drawing ..."):
        drawing.unless(partial(drawing.filters, model))
        drawing.unless(partial(drawing.positions, model))
    if images is None:
        drawing.notes.append(f"how far the heads look needs pictures, and is not shown: {why}")
    else:
        with working(f"Looking at {len(images)} pictures ..."):
            drawing.unless(partial(drawing.distance, model, images))
        if labels is not None:
            without = loss_without(model, images, labels, counted) if ablation else None
            drawing.importance(sensitivity(model, images, labels), without, len(images))
    if kept := opened.history:
        with working(f"Looking at {len(kept)} models of the training ..."):
            drawing.over_time(kept, images)
    page = drawing.finish(Path(run).name, {"run": run, "pictures": 0 if images is None else len(images)})
    for note in drawing.notes:
        say(f"note: {note}")
    if as_json:
        print_json({"page": str(page), "files": [str(out / one.file) for one in drawing.drawn], "notes": drawing.notes})
        return
    for one in drawing.drawn:
        tell(f"{out / one.file}  {one.title}")
    tell(f"{page}  all of them")


def _pictures(
    run: "Run", data: str | None, predictor: "Predictor", count: int
) -> "tuple[Tensor | None, Tensor | None, str]":
    """Pictures as the model takes them, and their labels where they are known; or why there are none."""
    from vitrail.data import unit
    from vitrail.errors import InputError
    from vitrail.report.figures import spread
    from vitrail.tasks.pictures.examples import TestPictures

    if data is not None and not _labelled(data, predictor):
        return _unlabelled(data, predictor, count), None, ""
    try:
        examples = run.evaluation_set(data, counted, weights=predictor.weights)
    except InputError as error:
        if data is None:  # they may be on another machine, and the weights alone have much to show
            return None, None, str(error)
        raise
    if not isinstance(examples, TestPictures):
        raise InputError(f"{run.name!r} takes no pictures.")
    for line in first_of([f"set aside: {one.what}: {one.why}" for one in examples.aside]):
        say(line)
    some = examples.pictures[spread(len(examples), count)]
    images = predictor.normalise(unit(some.images))
    return images, some.labels if predictor.model.config.classes else None, ""


def _labelled(data: str, predictor: "Predictor") -> bool:
    """Whether pictures are of classes that the model has."""
    from vitrail.data import idx_parts, sources

    path = Path(data)
    if data in sources or (path.is_dir() and idx_parts(path)):
        return True
    return path.is_dir() and any((path / label).is_dir() for label in predictor.labels)


def _unlabelled(data: str, predictor: "Predictor", count: int) -> "Tensor":
    import torch

    from vitrail.errors import InputError
    from vitrail.report.figures import spread
    from vitrail.tasks.pictures.predictor import inputs_of

    inputs = list(inputs_of([data]))
    good = []
    for one, pixels in predictor.decoded(inputs[number] for number in spread(len(inputs), count).tolist()):
        if isinstance(pixels, str):
            say(f"set aside: {one.name}: {pixels}")
        else:
            good.append(predictor.image(pixels))
    if not good:
        raise InputError(f"{data!r} holds no picture to look at.")
    return torch.cat(good)
