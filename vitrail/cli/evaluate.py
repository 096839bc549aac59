"""``vitrail evaluate``."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vitrail.cli.console import Json, messages, print_json, results, say, table
from vitrail.cli.progress import counted

if TYPE_CHECKING:
    from vitrail.data import Aside, Pictures
    from vitrail.serve import Predictor


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    data: Annotated[
        str | None, typer.Argument(help="A folder or table of labelled pictures; the run's own test part unless given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a model: accuracy, top 5, each class, calibration."""
    with messages().status("Starting ..."):
        from vitrail.machine import keep_memory
        from vitrail.serve import Predictor
        from vitrail.train import answers, scores

        keep_memory()
        predictor = Predictor.of(run)
    pictures, aside = _own(run) if data is None else _given(data, predictor)
    for one in aside:
        say(f"set aside: {one.what}: {one.why}")
    with messages().status(f"Measuring on {len(pictures):,} pictures ..."):
        logits = answers(predictor.model, pictures, predictor.normalise)
    found = scores(logits[:, : len(predictor.labels)], pictures.labels, pictures.names)
    if as_json:
        print_json({"run": str(run), "data": data, "set aside": len(aside), **asdict(found)})
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


def _own(run: Path) -> "tuple[Pictures, list[Aside]]":
    """The pictures that the run was tested on."""
    from vitrail.files import read_json
    from vitrail.recipe import Recipe
    from vitrail.train import prepare

    parts = prepare(Recipe(**read_json(run / "config.json")["recipe"]), counted).parts
    return parts.test, []


def _given(data: str, predictor: "Predictor") -> "tuple[Pictures, list[Aside]]":
    """Pictures that the user names."""
    from vitrail.data import find, from_idx, idx_parts, labelled, sources

    config, path = predictor.config, Path(data)
    if data in sources:
        return sources[data](None, 0.2, 0).test.fitted(config.size, config.channels), []
    if path.is_dir() and "train" in idx_parts(path):
        return from_idx(path, 0.2, 0, predictor.labels).test.fitted(config.size, config.channels), []
    return labelled(find(path), predictor.labels, config.size, config.channels, counted)
