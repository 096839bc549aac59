"""``vitrail convert``."""

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.console import Force, Json, Normalisation, parse_size, print_json
from vitrail.terminal.console import messages, say, tell


def convert(
    source: Annotated[
        str, typer.Argument(help="Weights to read: a run, a file, a folder, or hf:owner/name.", metavar="FROM")
    ],
    target: Annotated[Path, typer.Argument(help="File to write; a folder for hf and vitrail.", metavar="TO")],
    name: Annotated[
        str,
        typer.Option("--format", help="vitrail, timm, hf, npz (Google's), torchvision or vit-pytorch.", metavar="F"),
    ] = "vitrail",
    image: Annotated[
        str | None, typer.Option(help="New image size: 384, or 224x384 (height x width).", metavar="PIXELS")
    ] = None,
    patch: Annotated[int | None, typer.Option(help="New patch size.", min=1, metavar="PIXELS")] = None,
    channels: Annotated[int | None, typer.Option(help="New number of channels.", min=1, metavar="N")] = None,
    classes: Annotated[
        int | None, typer.Option(help="New head for this many classes; 0 removes the head.", min=0, metavar="N")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="Number of heads, if the file does not say. Default: width / 64.", metavar="N")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict/--partial", help="Stop at tensors that the model has no use for, or skip them.")
    ] = True,
    normalise: Normalisation = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert weights to another format, and optionally to another size."""
    with messages().status("Starting ..."):
        from vitrail.families import count_parameters
        from vitrail.files import check_free
        from vitrail.weights import read, save

    size = None if image is None else parse_size("--image", image)
    if not target.is_dir() or any(target.iterdir()):
        check_free(target, force=force, option="name")
    check_free(target.with_name(f"{target.name}.json"), force=force, option="name")
    with messages().status(f"Reading {source} ..."):
        weights = read(source, strict=strict, image=size, channels=channels, normalise=normalise, heads=heads)
        weights = weights.adapted(image=size, patch=patch, channels=channels, classes=classes)
    for note in weights.remarks:
        say(f"note: {note}")
    model = weights.model()
    with messages().status(f"Writing {target} ..."):
        save(model, target, name, normalise=weights.normalise, labels=weights.labels, fit=weights.fit)
    count = count_parameters(model)
    if as_json:
        fields = weights.config.model_dump(mode="json")
        print_json({"from": source, "was": weights.format, "to": str(target), "format": name, "model": fields})
        return
    tell(f"{source} ({weights.format}, {count:,} parameters) written to {target} ({name})")
