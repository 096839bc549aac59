"""Sequence-level distillation (Kim and Rush 2016): a student learns what its teacher says, which is simpler than what
people say, and the more so the less a student sees of its own words (Zhou et al. 2020).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from vitrail.errors import InputError
from vitrail.files import make_folder
from vitrail.progress import Progress
from vitrail.tasks.task import Trained
from vitrail.tasks.translate.recipe import Speaker
from vitrail.tasks.translate.translator import Decoding, Translator
from vitrail.weights import read

FOLDER = "translations"  # of the teacher's run, where what it says is kept
TOGETHER = 512  # sentences between two times that it is written


def taught(sources: Sequence[str], teacher: Speaker, progress: Progress) -> list[str]:
    """What the teacher says of each sentence: as it was kept, or said anew, and kept as far as it came."""
    folder = Path(str(teacher.path))
    if not (folder / "model.safetensors").is_file():
        raise InputError(f"{str(folder)!r} is no finished run; train the teacher first.")
    weights = read(folder)
    translator, how = Translator.of(Trained(weights, folder)), Decoding(beam=teacher.beam)
    if translator.model.config.parallel:
        how = Decoding(passes=10)
    kept = folder / FOLDER / f"{_digest(sources, folder, how)}.jsonl"
    known = _read(kept)
    rest = [row for row in range(len(sources)) if row not in known]

    def more() -> Iterator[tuple[int, str]]:
        for first in range(0, len(rest), TOGETHER):
            rows = rest[first : first + TOGETHER]
            texts = [one.text for one in translator.translations([sources[row] for row in rows], how)]
            some = dict(zip(rows, texts, strict=True))
            _write(kept, some)
            yield from some.items()

    known |= dict(progress("sentences translated by the teacher", more(), len(rest)) if rest else ())
    return [known[row] for row in range(len(sources))]


def _read(kept: Path) -> dict[int, str]:
    """What is kept, by the row of its source; a line that is not whole says nothing."""
    known = {}
    for line in kept.read_bytes().splitlines() if kept.is_file() else ():
        with suppress(ValueError, TypeError):
            row, text = json.loads(line)
            known[int(row)] = str(text)
    return known


def _write(kept: Path, some: Mapping[int, str]) -> None:
    """Keep more: each on a line of its own, whatever a process that was killed, or another one, wrote before it."""
    lines = "".join(f"\n{json.dumps([row, text])}" for row, text in some.items())
    with suppress(OSError):  # a teacher that may not be written to is asked again next time
        make_folder(kept.parent)
        with kept.open("ab") as file:
            file.write(f"{lines}\n".encode())


def _digest(sources: Sequence[str], folder: Path, how: Decoding) -> str:
    digest = blake2b("\n".join([*sources, repr(how)]).encode(), digest_size=8)
    with (folder / "model.safetensors").open("rb") as file:
        while data := file.read(2**20):
            digest.update(data)
    return digest.hexdigest()
