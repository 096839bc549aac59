"""What tells the data of a comparison from other data."""

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from vitrail.data import find, idx_parts

READ = 2**31  # bytes that are read to tell them from others; of more the sizes and times are taken
PIECE = 2**20


def data_digest(table: Mapping[str, Any]) -> str:
    """Of all that a recipe's data section names: the contents of its files."""
    data = table.get("data", {})
    several = [data.get(name) for name in ("files", "validation", "test")]
    paths = [data.get("path"), *(one for some in several if isinstance(some, list | tuple) for one in some)]
    files = sorted({file for path in paths if path is not None for file in _files(Path(path))})
    digest = blake2b(repr((data.get("source"), len(files))).encode(), digest_size=8)
    whole = sum(file.stat().st_size for file in files) <= READ
    for file in files:
        digest.update(file.name.encode())
        if whole:
            with file.open("rb") as content:
                while piece := content.read(PIECE):
                    digest.update(piece)
        else:
            status = file.stat()
            digest.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    """The files that a path stands for: itself, all of a folder, or those that a table of pictures names too."""
    if path.is_dir():
        if idx_parts(path):
            return [file for file in path.iterdir() if file.is_file()]
        return [file for file in path.rglob("*") if file.is_file() and not file.name.startswith(".")]
    if path.suffix.lower() in (".csv", ".tsv"):
        return [path, *(item.file for item in find(path).items)]
    return [path] if path.is_file() else []
