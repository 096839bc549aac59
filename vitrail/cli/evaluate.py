"""``vitrail evaluate``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Json, Normalisation, messages, print_json, results, say, table
from vitrail.cli.progress import counted

if TYPE_CHECKING:
    from vitrail.data import Aside, Pictures
    from vitrail.serve import Predictor


def evaluate(
    run: Annotated[str, typer.Argument(help="A run directory, or weights with a head.", metavar="RUN")],
    data: Annotated[
        str | None, typer.Argument(help="A folder or table of labelled pictures; the run's own test part unless given.")
    ] = None,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy, top 5, each class, calibration."""
    with messages().status("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.serve import Predictor
        from vitrail.train import answers, scores

        keep_memory()
        predictor = Predictor.of(run, normalise=normalise)
    for note in predictor.notes:
        say(f"note: {note}")
    pictures, aside = own(run, predictor) if data is None else given(data, predictor)
    for one in aside:
        say(f"set aside: {one.what}: {one.why}")
    with messages().status(f"Measuring on {len(pictures):,} pictures ..."):
        logits = answers(predictor.model, pictures, predictor.normalise)
    found = scores(logits, pictures.labels, pictures.names)
    if as_json:
        print_json({"run": run, "data": data, "set aside": len(aside), **asdict(found)})
        return
    lines = table("class", ">pictures", ">found", ">right when said")
    for each in found.classes:
        lines.add_row(each.name, f"{each.pictures:,}", f"{each.recall:.2%}", f"{each.precision:.2%}")
    results().print(lines)
    results().print(
        f"\naccuracy     {found.accuracy:.2%} ({found.correct:,} of {found.tested:,})\n"
        f"top 5        {found.top5:.2%}\nloss         {found.loss:.4f}\n"
        f"calibration  {found.calibration:.2%} (expected error)",
        markup=False,
    )


def own(
    run: str, predictor: "Predictor", way_out: str = "give the pictures to measure on"
) -> "tuple[Pictures, list[Aside]]":
    """The pictures that the run was tested on."""
    from vitrail.errors import InputError
    from vitrail.files import read_json
    from vitrail.recipe import Recipe
    from vitrail.train import prepare

    about = read_json(Path(run) / "config.json") if (Path(run) / "config.json").is_file() else {}
    if "recipe" not in about:
        raise InputError(f"{str(run)!r} does not say what it was trained on; {way_out}.")
    model = {"name": about["family"], **about["model"]}  # as it is now, whatever weights it began from
    parts = prepare(Recipe(**{**about["recipe"], "model": model, "weights": {}}), counted).parts
    if parts.test.names != predictor.labels:
        raise InputError(f"the classes of the pictures are no longer those that {str(run)!r} learned; {way_out}.")
    return parts.test, parts.aside


def given(data: str, predictor: "Predictor") -> "tuple[Pictures, list[Aside]]":
    """Pictures that the user names, of the classes that the model has."""
    from vitrail.data import Aside, find, idx_parts, labelled, read_idx_part, sources
    from vitrail.errors import InputError

    config, path = predictor.config, Path(data)
    if data not in sources and not (path.is_dir() and idx_parts(path)):
        return labelled(find(path), predictor.labels, config.size, config.channels, counted)
    pictures = sources[data](None, 0.2, 0).test if data in sources else read_idx_part(path)
    known = pictures.among(predictor.labels)
    if not len(known):
        raise InputError(f"{data!r} holds no class that the model knows: {', '.join(pictures.present().names)}.")
    unknown = len(pictures) - len(known)
    aside = [Aside(f"{unknown} pictures", "of classes that the model does not know")] if unknown else []
    return known.fitted(config.size, config.channels), aside
