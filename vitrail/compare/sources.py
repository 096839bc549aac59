"""What tells the data of a comparison, and the weights that it starts from, from others."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vitrail.data import find, idx_parts
from vitrail.files import walk

READ = 2**31  # bytes that are read to tell them from others; of more the sizes and times are taken
PIECE = 2**20
SECTIONS = ("data", "weights", "teacher")


def sources_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """What a recipe names that is learned from: of its sections the paths, and the name of a known set."""
    data = table.get("data", {})
    several = [data.get(name) for name in ("files", "validation", "test")]
    paths = [*(table.get(section, {}).get("path") for section in SECTIONS), table.get("weights", {}).get("names")]
    paths += [one for some in several if isinstance(some, list | tuple) for one in some]
    return (str(data.get("source")), *(str(path) for path in paths if path is not None))


def placeless(table: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without where files are, whose contents tell them from others: what it says is the same wherever they
    are.
    """
    placed = {(section, "path") for section in SECTIONS} | {("weights", "names"), ("data", "files")}
    placed |= {("data", name) for name in ("validation", "test")}

    def kept(section: str, name: str, value: Any) -> bool:
        local = isinstance(value, list | tuple) or (isinstance(value, str) and not value.startswith("hf:"))
        return not (local and (section, name) in placed)

    return {
        section: {name: value for name, value in fields.items() if kept(section, name, value)}
        if isinstance(fields, Mapping)
        else fields
        for section, fields in table.items()
    }


def digest_of(sources: tuple[str, ...]) -> str:
    """Of the contents of all their files, and of where each is in its folder, which may say its class."""
    digest = blake2b(repr(sources[0]).encode(), digest_size=8)
    files = [pair for name in sources[1:] for pair in sorted(_files(Path(name)))]
    whole = sum(file.stat().st_size for _, file in files) <= READ
    for name, file in files:
        size = file.stat().st_size
        digest.update(repr((name, size)).encode())
        if not whole:
            digest.update(repr(file.stat().st_mtime_ns).encode())
            continue
        with file.open("rb") as content:
            while piece := content.read(PIECE):
                digest.update(piece)
    return digest.hexdigest()


def _files(path: Path) -> list[tuple[str, Path]]:
    """The files that a path stands for, by their places in it: itself, all of a folder, or those that a table of
    pictures names too.
    """
    if path.is_dir():
        some = path.iterdir() if idx_parts(path) else walk(path)
        there = [file for file in some if file.is_file()]
        return [(file.relative_to(path).as_posix(), file) for file in there]
    if path.suffix.lower() in (".csv", ".tsv") and path.is_file():
        return [(path.name, path), *((item.file.name, item.file) for item in find(path).items)]
    return [(path.name, path)] if path.is_file() else []
