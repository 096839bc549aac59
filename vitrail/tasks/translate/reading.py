"""A sentence and its translation, looked at from within."""

import torch

from vitrail.data.text import clean
from vitrail.data.vocabulary import MASK, SPECIAL
from vitrail.errors import InputError
from vitrail.lens.words import Reading, read_words
from vitrail.tasks.translate.translator import Decoding, Translator


def seen_through(translator: Translator, text: str, target: str | None = None) -> tuple[Reading, str]:
    """Which word looks at which while a sentence is translated; by the model itself, or as it is given."""
    config, words = translator.model.config, translator.words
    (source,) = words.source.encode([clean(text)])
    error = translator.error(text, source)
    if error:
        raise InputError(f"{text!r} cannot be translated: {error}.")
    if target is None:
        ((best,),) = translator.hypotheses([source], Decoding())
        said, written = list(best.tokens), words.target.decode([best.tokens])[0]
    else:
        (said,), written = words.target.encode([clean(target)]), target
    if len(said) > config.length:
        raise InputError(f"the target has {len(said):,} tokens, and the model takes {config.length:,}.")
    names = words.target.names()
    if config.parallel:
        said = said[:-1] or said
        given, rows = [config.mask] * len(said), [f"{SPECIAL[MASK]} {names[token].strip()}" for token in said]
    else:
        given = [config.begin, *said[:-1]]
        rows = [names[token] for token in given]
    columns = [words.source.names()[token] for token in source]
    inputs = torch.tensor([source]), torch.tensor([given])
    return read_words(translator.model, inputs, (columns, rows), said, names), written
