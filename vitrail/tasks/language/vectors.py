"""Words as vectors, asked for as people write them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.data.vocabulary import ROLES, Vocabulary
from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.families.bert.model import BERT
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.lens.vectors import Followed, embedding, follow, nearest
from vitrail.tasks.task import Trained


@dataclass(frozen=True, eq=False)
class WordVectors:
    """A model with an embedding, and its vocabulary."""

    model: Model
    words: Vocabulary

    @classmethod
    def of(cls, trained: Trained) -> "WordVectors":
        """Those of a run, or of weights with a tokenizer beside them."""
        model = trained.weights.model().float()
        embedding(model)  # an error, where there is none
        apart = trained.folder / "source.tokenizer.json"
        return cls(model, Vocabulary.read(apart) if apart.is_file() else Vocabulary.beside(Path(trained.folder)))

    def tokens(self, word: str) -> list[int]:
        """The tokens of a word: one if it has one of its own, as it stands within a text or at the beginning."""
        for form in (f" {word}", word):
            (one,) = self.words.pieces([form])
            if len(one.tokens) == 1 and one.tokens[0] != self.words.role("unknown"):
                return one.tokens
        (one,) = self.words.pieces([f" {word}"])
        unknown = self.words.role("unknown")
        known = [token for token in one.tokens if token != unknown]
        if not known:
            raise InputError(f"{word!r} has no token in this vocabulary of {len(self.words):,}; ask for another word.")
        return known

    def vector(self, word: str) -> Tensor:
        """The mean of the vectors of its tokens."""
        return embedding(self.model)[self.tokens(word)].mean(0)

    def ask(self, query: str, most: int = 10) -> tuple[list[tuple[str, float]], list[str]]:
        """The words nearest to ``a``, or to ``a - b + c``, with a cosine each; and what is to be said of the words."""
        terms = parsed(query)
        each = {word: self.tokens(word) for _, word in terms}
        total = sum((sign * self.vector(word) for sign, word in terms), start=torch.zeros(self.model.config.width))
        special = [token for name in ROLES if (token := self.words.role(name)) is not None]
        asked = [token for tokens in each.values() if len(tokens) == 1 for token in tokens]
        names = self.words.names()
        table = embedding(self.model)[: len(names)]
        lower = {names[token].strip().lower() for token in asked}
        same = [token for token, name in enumerate(names) if name.strip().lower() in lower]
        neighbours = nearest(table, total, [*special, *asked, *same], most)
        pieces = {word: tokens for word, tokens in each.items() if len(tokens) > 1}
        notes = [f"{word!r} is in {len(tokens)} pieces, whose mean is taken" for word, tokens in pieces.items()]
        notes += [f"{one!r} was never seen in training, and left out" for one in self.words.unknown(list(each))]
        return [(names[token].strip() or repr(names[token]), value) for token, value in neighbours], notes

    def followed(self, word: str, texts: Sequence[str]) -> Followed:
        """A word in several texts, from layer to layer."""
        return follow(self.model, [self._place(word, text) for text in texts])

    def _place(self, word: str, text: str) -> tuple[Any, list[int]]:
        """A text as the model is given it, and where the word stands in it, the first time."""
        match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE)
        if match is None:
            raise InputError(f"{word!r} is not in {text!r}; give texts that have the word.")
        (one,) = self.words.pieces([text])
        first = [self.words.needed("begin")] if isinstance(self.model, BERT) else []
        last = [self.words.needed("end")] if isinstance(self.model, BERT | Seq2Seq) else []
        tokens = [*first, *one.tokens, *last]
        if len(tokens) > self.model.config.length:
            raise InputError(
                f"{text[:40]!r} ... has {len(tokens):,} tokens, and the model takes {self.model.config.length:,}."
            )
        within = [
            index + len(first)
            for index, (begin, end) in enumerate(one.spans)
            if begin < match.end() and end > match.start()
        ]
        given = torch.tensor([tokens])
        start = torch.tensor([[self.model.config.begin]]) if isinstance(self.model, Seq2Seq) else None
        return (given if start is None else (given, start)), within


def parsed(query: str) -> list[tuple[int, str]]:
    """``a - b + c`` as words with a sign each."""
    parts = re.findall(r"([+-]?)\s*([^\s+-](?:[^+-]|(?<=\S)-(?=\S))*)", query)
    terms = [(-1 if sign == "-" else 1, word.strip()) for sign, word in parts if word.strip()]
    if not terms:
        raise InputError(f"{query!r} names no word; write one, or several as in 'king - man + woman'.")
    return terms
