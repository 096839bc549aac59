"""A finished model of a language: it goes on with a text, or says what stands where a word is hidden."""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor

from vitrail.config import Config
from vitrail.data.vocabulary import ROLES, Vocabulary
from vitrail.decode import Drawing, stream
from vitrail.errors import InputError
from vitrail.families.bert.model import BERT
from vitrail.families.gpt.model import GPT
from vitrail.families.token_model import TokenModel
from vitrail.machine import threads
from vitrail.recipe import Seed
from vitrail.tasks.task import Trained

TOGETHER, TOKENS = 1_024, 8_192  # lines, and tokens, that are turned into vectors together
FEW = 1_024  # numbers of a step, up to which one thread is faster than two (bench/README.md)
FEW_BEFORE = 4  # tokens that are looked at, to tell how those after them are written
BROKEN = "\ufffd"  # what stands for bytes that are not yet a letter


class Writing(Config):
    """How a text is gone on with."""

    tokens: PositiveInt = 200  # at most
    count: PositiveInt = 1  # texts, side by side
    temperature: NonNegativeFloat = 0.8  # 0: the likeliest token each time
    top_k: NonNegativeInt = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Seed = 0


@dataclass(frozen=True)
class Filled:
    """What may stand at one hidden place: tokens with a probability each, the likeliest first."""

    words: list[tuple[str, float]]


@dataclass(frozen=True, eq=False)
class Reader:
    """A model of tokens, and its vocabulary."""

    kind: ClassVar[Any] = TokenModel
    not_so: ClassVar[str] = "is no model of one text, as a gpt and a bert are"

    model: TokenModel
    words: Vocabulary
    apart: bool = True  # whether it learned several documents, with an END between them

    @classmethod
    def of(cls, trained: Trained) -> Self:
        """That of a run, or of weights with a tokenizer beside them."""
        weights = trained.weights
        model = weights.model().float()
        if not isinstance(model, cls.kind):
            raise InputError(f"{weights.path!r} is a {weights.family}, which {cls.not_so}.")
        if (trained.folder / "palette.json").is_file():
            raise InputError(f"{weights.path!r} is a model of pixels, which {cls.not_so}.")
        words = Vocabulary.beside(trained.folder)
        if len(words) > model.config.tokens:
            raise InputError(
                f"the tokenizer in {str(trained.folder)!r} has {len(words):,} tokens, and the model "
                f"{model.config.tokens:,}; take both from one run."
            )
        return cls(model, words, apart=trained.record.get("documents", {}).get("train") != 1)

    @cached_property
    def names(self) -> list[str]:
        """What all tokens are called; some of a model's may stand for nothing."""
        names = self.words.names()
        return [*names, *[""] * (self.model.config.tokens - len(names))]

    def between(self, tokens: Sequence[int]) -> list[int]:
        """Tokens as the model is given a whole text: a BERT's between BEGIN and END."""
        if not isinstance(self.model, BERT):
            return list(tokens)
        return [self.words.needed("begin"), *tokens, self.words.needed("end")]

    @torch.inference_mode()
    def vectors(self, lines: Sequence[str], *, first: bool = False) -> Iterator[tuple[Tensor, bool]]:
        """Lines as vectors (w), in order: the mean of their tokens as the last layer leaves them, or the first of them;
        and whether a line was too long, and was cut.
        """
        length = self.model.config.length
        room = length - len(self.between([]))
        for begin in range(0, len(lines), TOGETHER):
            pieces = [one.tokens for one in self.words.pieces(lines[begin : begin + TOGETHER])]
            some = [self.between(tokens[:room] or [self.words.role("unknown") or 0]) for tokens in pieces]
            vectors: dict[int, Tensor] = {}
            sizes: dict[int, list[int]] = {}
            for row, tokens in enumerate(some):
                sizes.setdefault(len(tokens), []).append(row)
            for size, rows in sizes.items():  # those of one length together: nothing is padded
                most = max(1, TOKENS // size)
                for start in range(0, len(rows), most):
                    group = rows[start : start + most]
                    given = torch.tensor([some[row] for row in group], device=next(self.model.parameters()).device)
                    x = self.model.norm(self.model.stream(given)).float().cpu()
                    vectors |= dict(zip(group, x[:, 0] if first else x.mean(1), strict=True))
            for row, tokens in enumerate(pieces):
                yield vectors[row], len(tokens) > room

    def unknown(self, text: str) -> list[str]:
        """What is to be said of a text that has parts which the vocabulary has no token for."""
        parts = self.words.unknown([text])
        return [f"never seen in training: {', '.join(map(repr, parts[:10]))}"] if parts else []


class Writer(Reader):
    """A GPT that goes on with texts."""

    kind = GPT
    not_so = "goes on with no text"

    def start(self, prompt: str) -> tuple[list[int], list[str]]:
        """The tokens that a text begins with, and what is to be said of them."""
        tokens, notes = self.words.running(prompt).tolist(), self.unknown(prompt)
        room = self.model.config.length - 1
        if len(tokens) > room:
            notes.append(f"the prompt has {len(tokens):,} tokens, and the last {room:,} are gone on from")
        if not tokens:
            first = self.words.role("end") if self.apart else None
            tokens = [first] if first is not None else self.words.running("\n").tolist()
        return tokens[-room:], notes

    @torch.inference_mode()
    def tokens(self, prompt: Sequence[int], how: Writing) -> Iterator[list[int]]:
        """What follows a prompt, of each text one token after another; END is the last that is of use."""
        model = self.model
        if not isinstance(model, GPT):
            raise TypeError(f"a {type(model).__name__} goes on with no text")
        device = next(model.parameters()).device
        start = torch.tensor([list(prompt)] * how.count, device=device)
        draw = Drawing(how.temperature, how.top_k, how.top_p, torch.Generator().manual_seed(how.seed))
        never = [token for name in ("pad", "begin", "unknown", "mask") if (token := self.words.role(name)) is not None]
        never += range(len(self.words), model.config.tokens)
        few = how.count * model.config.width <= FEW
        with threads(1) if few else nullcontext():
            for new in stream(model.steps, start, draw, room=model.config.length, most=how.tokens, never=never):
                yield new.tolist()

    def written(self, prompt: Sequence[int], how: Writing) -> Iterator[str]:
        """What follows a prompt as text, letter by letter as it comes; of one text."""
        end, before, new = self.words.role("end"), list(prompt), list[int]()
        for (token,) in self.tokens(prompt, how.model_copy(update={"count": 1})):
            if token == end:
                break
            new.append(token)
            text = self._after(before, new)
            if not text.endswith(BROKEN):  # a letter may be of several tokens
                yield text
                before, new = [*before[-FEW_BEFORE:], *new], []
        if new:
            yield self._after(before, new)

    def texts(self, prompt: Sequence[int], how: Writing) -> list[str]:
        """What follows a prompt, in several texts, each up to its END."""
        end, rows = self.words.role("end"), [list[int]() for _ in range(how.count)]
        ended = set[int]()
        for new in self.tokens(prompt, how):
            for row, token in enumerate(new):
                ended |= {row} if token == end else set()
                if row not in ended:
                    rows[row].append(token)
            if len(ended) == how.count:
                break
        return [self._after(prompt, row) for row in rows]

    def _after(self, prompt: Sequence[int], tokens: Sequence[int]) -> str:
        """The text of tokens that follow others, of which a few tell whether a space stands between."""
        before = list(prompt[-FEW_BEFORE:])
        return self.words.text([*before, *tokens])[len(self.words.text(before)) :]


class Filler(Reader):
    """A BERT that says what stands where a word is hidden."""

    kind = BERT
    not_so = "has no hidden words to fill in"

    def hidden(self, text: str) -> list[int]:
        """The tokens of a text, with that of the mask where it says [MASK]."""
        parts = re.split("|".join(map(re.escape, ROLES["mask"])), text, flags=re.IGNORECASE)
        if self.words.in_pieces:  # a word's space is a part of it, and so hidden with it
            parts = [*(part.rstrip() for part in parts[:-1]), parts[-1]]
        mask = [self.words.needed("mask")]
        every = enumerate(self.words.pieces(parts))
        return [token for number, one in every for token in (mask * (number > 0) + one.tokens)]

    @torch.inference_mode()
    def fill(self, text: str, top: int = 5) -> list[Filled]:
        """What may stand at each [MASK] of a text."""
        model = self.model
        if not isinstance(model, BERT) or model.words is None:
            raise InputError("the model says no words; take one that was trained to fill them in.")
        mask, tokens = self.words.needed("mask"), self.hidden(text)
        if mask not in tokens:
            raise InputError(f"{text!r} hides no word; write [MASK] where one should be said.")
        whole = self.between(tokens)
        if len(whole) > model.config.length:
            raise InputError(f"the text has {len(whole):,} tokens, and the model takes {model.config.length:,}.")
        given = torch.tensor([whole], device=next(model.parameters()).device)
        logits: Tensor = model(given, rows=given == mask) if model.pairs is None else model(given)[given == mask]
        special = [token for name in ROLES if (token := self.words.role(name)) is not None]
        top_words = logits.float().softmax(-1).index_fill(-1, torch.tensor(special), 0).topk(min(top, len(self.words)))
        return [
            Filled([(self.names[token].strip(), p) for token, p in zip(row, some, strict=True)])
            for row, some in zip(top_words.indices.tolist(), top_words.values.tolist(), strict=True)
        ]
