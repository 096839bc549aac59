"""Words with labels as they are learned from: tokens, and which of them the labels are asked of."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batch, Examples, Rows
from vitrail.data.batches import UNASKED, cut_evenly, padded
from vitrail.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class Piece:
    """A sentence, or a part of one that is too long, as tokens; and where in it its words begin."""

    tokens: list[int]
    places: list[int]
    row: int  # of the sentence
    first: int  # of its words
    cut: bool = False  # whether a text was longer, and its end is left out


@dataclass(frozen=True, eq=False)
class Cutter:
    """From words to the tokens that a model takes, so many at a time."""

    words: Vocabulary
    length: int

    def pieces(self, sentences: Sequence[Sequence[str]]) -> list[Piece]:
        """All words of all sentences; a word is asked of at the first of its tokens."""
        begin, end, unknown = (self.words.needed(name) for name in ("begin", "end", "unknown"))
        room, pieces = self.length - 2, list[Piece]()
        for row, one in enumerate(self.words.pieces(list(sentences), split=True)):
            each: list[list[int]] = [[] for _ in sentences[row]]
            for token, word in zip(one.tokens, one.words, strict=True):
                if word is not None:
                    each[word].append(token)
            tokens, places, first = list[int](), list[int](), 0
            for number, some in enumerate(each):
                some = some[:room] or [unknown]  # noqa: PLW2901  # a word of nothing that the vocabulary knows
                if len(tokens) + len(some) > room:
                    pieces.append(Piece([begin, *tokens, end], places, row, first))
                    tokens, places, first = [], [], number
                places.append(len(tokens) + 1)
                tokens += some
            if places:
                pieces.append(Piece([begin, *tokens, end], places, row, first))
        return pieces

    def texts(self, texts: Sequence[str]) -> list[Piece]:
        """Whole texts, as far as there is room, which are asked of once."""
        begin, end = (self.words.needed(name) for name in ("begin", "end"))
        every, room = self.words.pieces(list(texts)), self.length - 2
        return [
            Piece([begin, *one.tokens[:room], end], [0], row, 0, len(one.tokens) > room)
            for row, one in enumerate(every)
        ]


@dataclass(eq=False)
class TaggedTokens(Examples):
    """Pieces of sentences, and the labels of their words; or texts and their labels.

    Inputs are tokens (b n), padded; targets are labels (b n), UNASKED where none is asked, or (b) of whole texts.
    """

    pieces: list[Piece]
    labels: list[list[int]]
    pad: int
    whole: bool = False

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def sizes(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Tokens of each."""
        return np.array([len(piece.tokens) for piece in self.pieces])

    @cached_property
    def asked(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Labels of each."""
        return np.array([len(some) for some in self.labels])

    def count(self, rows: Rows) -> int:
        return int(self.asked[rows].sum())

    def per_epoch(self, size: int) -> int:
        """Batches of so many tokens on average."""
        return min(len(self), -(-int(self.sizes.sum()) // size))

    def updates(self, size: int, random: np.random.Generator, least: int = 1) -> list[Rows]:
        """Of about one length each, and of about as many tokens."""
        order = np.argsort(self.sizes + random.random(len(self)))
        batches = cut_evenly(order, self.sizes, self.per_epoch(size), least)
        return [batches[number] for number in random.permutation(len(batches))]

    def batch(self, rows: Rows, device: torch.device) -> tuple[Tensor, Tensor, int]:
        tokens = padded([self.pieces[row].tokens for row in rows], self.pad)
        if self.whole:
            targets = torch.tensor([self.labels[row][0] for row in rows])
        else:
            targets = torch.full_like(tokens, UNASKED)
            for number, row in enumerate(rows):
                targets[number, self.pieces[row].places] = torch.tensor(self.labels[row])
        return tokens.to(device), targets.to(device), self.count(rows)


def tag(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """-sum over words log p(label | sentence) / count; or over texts."""
    if batch.targets.ndim == 1:
        return F.cross_entropy(model(batch.inputs), batch.targets, label_smoothing=smoothing)
    asked = batch.targets != UNASKED
    return F.cross_entropy(model(batch.inputs, rows=asked), batch.targets[asked], label_smoothing=smoothing)
