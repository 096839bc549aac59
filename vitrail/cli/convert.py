"""``vitrail convert``."""

from pathlib import Path
from typing import Annotated

import typer

from vitrail.cli.console import Json, Normalisation, messages, parse_size, print_json, say, tell


def convert(
    source: Annotated[
        str, typer.Argument(help="A run, a file or folder of weights, or hf:owner/name.", metavar="FROM")
    ],
    target: Annotated[
        Path, typer.Argument(help="Where it goes: a file, or a folder for hf and vitrail.", metavar="TO")
    ],
    name: Annotated[
        str,
        typer.Option("--format", help="vitrail, timm, hf, npz (Google's), torchvision or vit-pytorch.", metavar="F"),
    ] = "vitrail",
    image: Annotated[
        str | None, typer.Option(help="For pictures of this size: 384, or 224x384 (down, across).", metavar="PIXELS")
    ] = None,
    patch: Annotated[int | None, typer.Option(help="With patches of this size.", min=1, metavar="PIXELS")] = None,
    channels: Annotated[int | None, typer.Option(help="For pictures of so many channels.", min=1, metavar="N")] = None,
    classes: Annotated[
        int | None, typer.Option(help="With a fresh head for so many classes; 0: none.", min=0, metavar="N")
    ] = None,
    heads: Annotated[
        int | None, typer.Option(help="How many heads, where nothing says; 64 numbers each unless known.", metavar="N")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict/--partial", help="Stop at tensors with no place in the model, or leave them out.")
    ] = True,
    normalise: Normalisation = None,
    as_json: Json = False,
) -> None:
    """Move weights from one format to another, and to other sizes on the way."""
    with messages().status("Starting ..."):
        from vitrail.errors import InputError
        from vitrail.families import count_parameters
        from vitrail.weights import read, save

    size = None if image is None else parse_size("--image", image)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{str(target)!r} is there already, and is left alone; choose another name, or remove it.")
    config_file = target.with_name(f"{target.name}.json")
    if config_file.exists():
        raise InputError(
            f"{str(config_file)!r} is there already, and is left alone; choose another name, or remove it."
        )
    with messages().status(f"Reading {source} ..."):
        weights = read(source, strict=strict, image=size, channels=channels, normalise=normalise, heads=heads)
        weights = weights.adapted(image=size, patch=patch, channels=channels, classes=classes)
    for note in weights.remarks:
        say(f"note: {note}")
    model = weights.model()
    with messages().status(f"Writing {target} ..."):
        save(model, target, name, normalise=weights.normalise, labels=weights.labels)
    count = count_parameters(model)
    if as_json:
        fields = weights.config.model_dump(mode="json")
        print_json({"from": source, "was": weights.format, "to": str(target), "format": name, "model": fields})
        return
    tell(f"{source} ({weights.format}, {count:,} parameters) written to {target} ({name})")
