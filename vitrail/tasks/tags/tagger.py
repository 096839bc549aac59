"""A finished model that labels words, or texts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from vitrail.data.batches import padded
from vitrail.data.text import Undecodable
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.families import at_once
from vitrail.families.bert.model import BERT
from vitrail.tasks.tags.examples import Cutter, Piece
from vitrail.tasks.task import Trained

TOKENS = 8_192  # that are looked at together
WINDOW = 256  # sentences that are put in order of their lengths
# Words and signs; what English joins with an apostrophe is apart, as in its treebanks: do n't, it 's.
QUOTE = "['\u2019]"
WORD = re.compile(rf"\w+(?=n{QUOTE}t\b)|n{QUOTE}t\b|{QUOTE}\w{{1,2}}\b|\w+(?:[-.]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Tags:
    """A text, its words with a label and a probability each; or what is wrong with it."""

    text: str
    words: list[tuple[str, str, float]]
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Tagger:
    """A model, its vocabulary, and the names of its labels."""

    model: BERT
    words: Vocabulary
    labels: tuple[str, ...]

    @classmethod
    def of(cls, trained: Trained) -> "Tagger":
        """The tagger of a run, or of weights that have labels."""
        weights = trained.weights
        model = weights.model().float()
        if not isinstance(model, BERT) or not model.config.classes:
            raise InputError(f"{weights.path!r} is a {weights.family} that gives no labels to words; train one.")
        labels = weights.labels or tuple(str(number) for number in range(model.config.classes))
        return cls(model, Vocabulary.beside(trained.folder), labels)

    @property
    def whole(self) -> bool:
        """Whether a text has one label."""
        return self.model.config.says == "label"

    @property
    def characters(self) -> bool:
        """Whether each character has a label."""
        return not self.whole and not self.words.in_pieces and len(self.words.pieces(["ab"])[0].tokens) == 2  # noqa: PLR2004

    @property
    def cutter(self) -> Cutter:
        """From words to tokens."""
        return Cutter(self.words, self.model.config.length)

    def split(self, text: str, *, spaces: bool = False) -> list[str]:
        """A text in what has a label each: characters, words and signs, or what stands between spaces."""
        if self.characters:
            return list(text)
        return text.split() if spaces else WORD.findall(text)

    def tagged(self, texts: Iterable[str], *, spaces: bool = False) -> Iterator[Tags]:
        """The labels of each text, in order."""
        waiting = iter(texts)
        while window := list(islice(waiting, WINDOW)):
            yield from self._window(window, spaces=spaces)

    def _window(self, texts: Sequence[str], *, spaces: bool) -> Iterator[Tags]:
        sentences = [[text] if self.whole else self.split(text, spaces=spaces) for text in texts]
        errors = [_error(text) for text in texts]
        there = [row for row, some in enumerate(sentences) if some and not errors[row]]
        probabilities = dict(zip(there, self.probabilities([sentences[row] for row in there]), strict=True))
        for row, text in enumerate(texts):
            if row not in probabilities:
                yield Tags(text, [], errors[row] or "nothing that a label could be given to")
                continue
            values, numbers = probabilities[row].max(-1)
            named = zip(sentences[row], numbers.tolist(), values.tolist(), strict=True)
            labelled = [(word, self.labels[number], value) for word, number, value in named]
            yield Tags(text, labelled, notes=self._notes(text))

    def _notes(self, text: str) -> tuple[str, ...]:
        unknown = self.words.unknown([text])
        notes = [f"never seen in training: {', '.join(map(repr, unknown[:10]))}"] if unknown else []
        if self.whole and self.cutter.texts([text])[0].cut:
            notes.append(
                f"longer than the {self.model.config.length:,} tokens that the model takes: its end is not read"
            )
        return tuple(notes)

    @torch.inference_mode()
    def probabilities(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Of each label, of each word of each sentence (n classes)."""
        logits = label_logits(self.model, self.pieces(sentences), self.whole, [len(one) for one in sentences])
        return [one.softmax(-1) for one in logits]

    def pieces(self, sentences: Sequence[Sequence[str]]) -> list[Piece]:
        """Sentences as tokens."""
        return self.cutter.texts([one[0] for one in sentences]) if self.whole else self.cutter.pieces(sentences)


@torch.no_grad()
def label_logits(model: BERT, pieces: Sequence[Piece], whole: bool, counts: Sequence[int]) -> list[Tensor]:
    """The logits of each label, of each of so many words of each sentence (n classes)."""
    by_sentence = [torch.zeros(count, model.config.classes) for count in counts]
    pad, device = model.config.pad or 0, next(model.parameters()).device
    order = sorted(range(len(pieces)), key=lambda number: -len(pieces[number].tokens))
    while order:
        most = min(max(1, TOKENS // len(pieces[order[0]].tokens)), at_once(model.config, 256))
        group, order = [pieces[number] for number in order[:most]], order[most:]
        logits = model(padded([one.tokens for one in group], pad).to(device)).float().cpu()
        for row, one in zip(logits, group, strict=True):
            if whole:
                by_sentence[one.row][0] = row
            else:
                by_sentence[one.row][one.first : one.first + len(one.places)] = row[one.places]
    return by_sentence


def _error(text: str) -> str:
    return "not UTF-8" if isinstance(text, Undecodable) else "" if text.strip() else "empty"
