"""A finished model that translates: lines of text in, lines of text out, in their order."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from vitrail.config import Config
from vitrail.data.batches import padded
from vitrail.data.text import Undecodable, clean
from vitrail.data.vocabulary import BEGIN, END, MASK, PAD, UNKNOWN, Vocabulary
from vitrail.decode import Hypothesis, Limits, beam_search, greedy, mask_predict, sample
from vitrail.errors import InputError
from vitrail.families.seq2seq.config import Seq2SeqConfig
from vitrail.families.seq2seq.model import Seq2Seq
from vitrail.machine import threads
from vitrail.tasks.task import Trained

TOKENS, SHORT = 2_048, 16  # of sources that are translated together, each taken for so many at least
FEW = 1_024  # numbers of a step, all rows together, up to which one thread is faster than two (bench/README.md)
WINDOW = 512  # sentences that are put in order of their lengths, and given when all before them are there
NO_WORDS = (PAD, BEGIN, UNKNOWN, MASK)  # which are never said


Method = Literal["beam", "greedy", "sample", "parallel"]
USED: dict[Method, set[str]] = {  # options, besides how many are given
    "beam": {"beam", "penalty"},
    "greedy": {"penalty"},
    "sample": {"penalty", "temperature", "top_k", "top_p", "seed"},
    "parallel": {"passes", "candidates", "length"},
}
OTHERS = {"beam": "method='beam' or 'sample'", "parallel": "a model that predicts lengths"}  # which give several


class Decoding(Config):
    """How sentences are made from what a model says."""

    method: Method | None = None  # beam, or parallel of a parallel model
    beam: PositiveInt = 5  # or as many as are asked for
    nbest: PositiveInt = 1
    penalty: Annotated[float, Field(ge=-10, le=10)] = 1.0  # power of the length that scores are divided by
    passes: PositiveInt = 4  # of a parallel model
    candidates: PositiveInt = 5  # lengths that it tries side by side, or as many as are asked for
    length: PositiveFloat = 1.0  # times the length that it predicts
    temperature: PositiveFloat = 1.0  # of sampling
    top_k: NonNegativeInt = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: NonNegativeInt = 0

    def checked(self, config: Seq2SeqConfig) -> "Decoding":
        """With a method that the model has; what is given should be for that method."""
        own: Method = "parallel" if config.parallel else "beam"
        method = self.method or own
        if (method == "parallel") != config.parallel:
            kind = "all tokens at once" if config.parallel else "one token after another"
            raise InputError(f"method={method!r} is not for a model that says {kind}; leave it out: {own}.")
        used = USED[method] if config.lengths or not config.parallel else {"length"}
        for name, one in type(self).model_fields.items():
            value = getattr(self, name)
            if value != one.default and name not in used | {"method", "nbest"}:
                raise InputError(f"{name}={value} is not for method={method!r} of this model; leave it out.")
        several = {"beam": "beam", "parallel": "candidates"}.get(method, "")  # the field of which the best are given
        most = self.nbest if method == "sample" else getattr(self, several) if several in used else 1
        if self.nbest <= most:
            return self.model_copy(update={"method": method})
        if several in used - self.model_fields_set:
            return self.model_copy(update={"method": method, several: self.nbest})
        way = f"choose {several}={self.nbest} or more" if several in used else f"leave it out, or choose {OTHERS[own]}"
        raise InputError(f"nbest={self.nbest} is more than there are with method={method!r}; {way}.")


@dataclass(frozen=True)
class Translation:
    """A sentence, the best that was found for it with a score each, the best first; or why there is nothing."""

    source: str
    hypotheses: list[tuple[str, float]]
    error: str = ""
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The best; nothing, where there is none."""
        return self.hypotheses[0][0] if self.hypotheses else ""


@dataclass(frozen=True, eq=False)
class Vocabularies:
    """Those of the sources and of the targets, which may be one."""

    source: Vocabulary
    target: Vocabulary

    @classmethod
    def read(cls, folder: Path) -> "Vocabularies":
        """What ``write`` wrote."""
        both = folder / "tokenizer.json"
        if both.is_file():
            one = Vocabulary.read(both)
            return cls(one, one)
        files = [folder / name for name in ("source.tokenizer.json", "target.tokenizer.json")]
        if not all(file.is_file() for file in files):
            raise InputError(
                f"{str(folder)!r} holds no tokenizer, without which no text can be read; take the whole run."
            )
        return cls(*map(Vocabulary.read, files))

    def write(self, folder: Path) -> None:
        if self.source is self.target:
            self.source.write(folder / "tokenizer.json")
        else:
            self.source.write(folder / "source.tokenizer.json")
            self.target.write(folder / "target.tokenizer.json")


@dataclass(frozen=True, eq=False)
class Translator:
    """A model, and the vocabularies of its two languages."""

    model: Seq2Seq
    words: Vocabularies
    longest: int  # tokens of a source

    @classmethod
    def of(cls, trained: Trained) -> "Translator":
        """The translator of a run."""
        weights = trained.weights
        model = weights.model().float()
        if not isinstance(model, Seq2Seq):
            raise InputError(f"{weights.path!r} is a {weights.family}, and translates nothing.")
        words = Vocabularies.read(trained.folder)
        if (len(words.source), len(words.target)) != (model.config.source, model.config.target):
            raise InputError(
                f"the tokenizer in {str(trained.folder)!r} is not that of the model; take both from one run."
            )
        return cls(model, words, model.config.length)

    def translations(self, lines: Iterable[str], how: Decoding) -> Iterator[Translation]:
        """A translation of each line, in order; of some that follow one another, those of about one length together."""
        how = how.checked(self.model.config)
        generator = torch.Generator().manual_seed(how.seed)
        waiting = iter(lines)
        while window := list(islice(waiting, WINDOW)):
            yield from self._window(window, how, generator)

    def _window(self, lines: Sequence[str], how: Decoding, generator: torch.Generator) -> Iterator[Translation]:
        """As soon as all before it are translated, each."""
        tokens = self.words.source.encode([clean(line) for line in lines])
        translations: dict[int, Translation] = {}
        for row, (line, one) in enumerate(zip(lines, tokens, strict=True)):
            error = self.error(line, one)
            if error:
                translations[row] = Translation(line, [], error)
        order = sorted((row for row in range(len(lines)) if row not in translations), key=lambda row: -len(tokens[row]))
        given = 0
        while given < len(lines):
            if given in translations:
                yield translations.pop(given)
                given += 1
                continue
            rows = how.candidates if how.method == "parallel" else 1
            count = max(1, TOKENS // max(SHORT, len(tokens[order[0]])) // rows)
            group, order = order[:count], order[count:]
            every = self.hypotheses([tokens[row] for row in group], how, generator)
            texts = iter(self.words.target.decode([one.tokens for some in every for one in some]))
            for row, some in zip(group, every, strict=True):
                both = [(next(texts), one.score) for one in some]
                translations[row] = Translation(lines[row], both, notes=self._notes(lines[row]))

    @torch.inference_mode()
    def hypotheses(
        self, tokens: Sequence[Sequence[int]], how: Decoding, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """What is found for sources that are tokens, as many as asked for."""
        model = self.model
        how = how.checked(model.config)
        source = padded(tokens, PAD).to(next(model.parameters()).device)
        if how.method == "parallel":
            never = (*NO_WORDS, END)
            hypotheses = mask_predict(
                model, source, passes=how.passes, candidates=how.candidates, factor=how.length, never=never
            )
            return [every[: how.nbest] for every in hypotheses]
        limits = Limits(model.config.begin, model.config.end, model.config.length, NO_WORDS)
        few = len(tokens) * (how.beam if how.method == "beam" else 1) * model.config.width <= FEW
        with threads(1) if few else nullcontext():
            return self._token_by_token(source, limits, how, generator)

    def _token_by_token(
        self, source: torch.Tensor, limits: Limits, how: Decoding, generator: torch.Generator | None
    ) -> list[list[Hypothesis]]:
        model = self.model
        if how.method == "beam":
            every = beam_search(model.steps(source), len(source), limits, beam=how.beam, penalty=how.penalty)
            return [some[: how.nbest] for some in every]
        if how.method == "greedy":
            return [[one] for one in greedy(model.steps(source), len(source), limits, penalty=how.penalty)]
        return self._sampled(source, limits, how, generator or torch.Generator().manual_seed(how.seed))

    def _sampled(
        self, source: torch.Tensor, limits: Limits, how: Decoding, generator: torch.Generator
    ) -> list[list[Hypothesis]]:
        draws = [
            sample(
                self.model.steps(source),
                len(source),
                limits,
                temperature=how.temperature,
                top_k=how.top_k,
                top_p=how.top_p,
                generator=generator,
                penalty=how.penalty,
            )
            for _ in range(how.nbest)
        ]
        return [sorted(some, key=lambda one: -one.score) for some in zip(*draws, strict=True)]

    def error(self, line: str, tokens: Sequence[int]) -> str:
        """Why a line cannot be translated, if so."""
        if isinstance(line, Undecodable):
            return "not UTF-8"
        if not line.strip():
            return "empty"
        if len(tokens) > self.longest:
            return f"{len(tokens):,} tokens, and the model takes {self.longest:,}"
        return ""

    def _notes(self, line: str) -> tuple[str, ...]:
        unknown_ones = self.words.source.unknown([line])
        return (f"never seen in training: {', '.join(map(repr, unknown_ones[:10]))}",) if unknown_ones else ()
