"""A sentence and its labels, looked at from within."""

import torch

from vitrail.errors import InputError
from vitrail.lens.words import Reading, read_tokens
from vitrail.tasks.tags.tagger import Tagger
from vitrail.tasks.task import Read


def as_read(tagger: Tagger, text: str) -> Read:
    """A text as the model is given it."""
    words = [text] if tagger.whole else tagger.split(text)
    if not text.strip() or not words:
        raise InputError("the text is empty; give some words.")
    pieces = tagger.pieces([words])
    if len(pieces) > 1:
        raise InputError(
            f"the text has more tokens than the {tagger.model.config.length:,} that the model takes; give a part of it."
        )
    names = tagger.words.names()
    return Read(tagger.model, torch.tensor([pieces[0].tokens]), tuple(names[token] for token in pieces[0].tokens))


def seen_through(tagger: Tagger, text: str, target: str | None = None) -> tuple[Reading, str]:
    """Which word looks at which while a sentence is labelled."""
    if target is not None:
        raise InputError("--target is of what is translated; leave it out.")
    read = as_read(tagger, text)
    with torch.no_grad():
        logits = tagger.model(read.inputs)
    predicted = logits.argmax(-1).flatten().tolist()
    (tags,) = tagger.tagged([text])
    shown = [label if tagger.whole else f"{word}/{label}" for word, label, _ in tags.words]
    written = ("" if tagger.characters else " ").join(shown)
    reading = read_tokens(tagger.model, read.inputs, read.names, predicted, names=tagger.labels, asked="label")
    return reading, written
