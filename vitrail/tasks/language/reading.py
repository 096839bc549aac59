"""A text, looked at from within."""

import torch

from vitrail.errors import InputError
from vitrail.families.bert.model import BERT
from vitrail.families.gpt.model import GPT
from vitrail.lens.words import Reading, read_tokens
from vitrail.tasks.language.writer import Filler, Reader
from vitrail.tasks.task import Read


def as_read(reader: Reader, text: str) -> Read:
    """A text as the model is given it; [MASK] in it is what a BERT's is hidden by."""
    hides = isinstance(reader.model, BERT) and reader.words.role("mask") is not None
    tokens = Filler(reader.model, reader.words).hidden(text) if hides else reader.words.running(text).tolist()
    whole, length = reader.between(tokens), reader.model.config.length
    if not tokens:
        raise InputError("the text is empty; give some words.")
    if len(whole) > length:
        raise InputError(f"the text has {len(whole):,} tokens, and the model takes {length:,}; give a part of it.")
    names = reader.names
    return Read(reader.model, torch.tensor([whole]), tuple(names[token] for token in whole))


def seen_through(reader: Reader, text: str, target: str | None = None) -> tuple[Reading, str]:
    """Which word looks at which; and what is said at each: what follows it, or what stands there."""
    if target is not None:
        raise InputError("--target is of what is translated; leave it out.")
    read, model, names = as_read(reader, text), reader.model, reader.names
    tokens = read.inputs[0].tolist()
    with torch.no_grad():
        logits = model(read.inputs)
    if isinstance(model, BERT) and model.words is None:
        return read_tokens(model, read.inputs, read.names, (), names=names, asked="stands"), ""
    likeliest = logits[0].argmax(-1).tolist()
    if isinstance(model, GPT):
        said, asked, written = [*tokens[1:], likeliest[-1]], "follows", f"... {names[likeliest[-1]]}"
    else:
        mask = reader.words.role("mask")
        said = [best if token == mask else token for token, best in zip(tokens, likeliest, strict=True)]
        filled = [names[best].strip() for token, best in zip(tokens, likeliest, strict=True) if token == mask]
        asked, written = "stands", ", ".join(filled) or "no word is hidden"
    return read_tokens(model, read.inputs, read.names, said, names=names, asked=asked), written
