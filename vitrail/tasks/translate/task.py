"""Translating, as a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.data import Aside, Batch
from vitrail.data.pairs import PairParts, Pairs, beside, pair_sources, read_pairs, set_aside, split_pairs
from vitrail.data.text import clean
from vitrail.data.vocabulary import BEGIN, END, MASK, PAD, Vocabulary
from vitrail.errors import InputError
from vitrail.families import configure
from vitrail.families.seq2seq.config import SENTENCE
from vitrail.lens.words import Reading
from vitrail.machine import multiplies_bf16
from vitrail.progress import Progress, silent
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.task import Measurement, Metric, Read, Task, Trained, still_there, tasks
from vitrail.tasks.translate import shown
from vitrail.tasks.translate.choices import Facts, choose, choose_vocabulary
from vitrail.tasks.translate.examples import MaskedPairs, OpenPairs, TokenPairs, fill, translate
from vitrail.tasks.translate.measured import TestPairs
from vitrail.tasks.translate.reading import seen_through
from vitrail.tasks.translate.recipe import Sentences, TranslateRecipe
from vitrail.tasks.translate.teacher import taught
from vitrail.tasks.translate.translator import Decoding, Translation, Translator, Vocabularies
from vitrail.weights import Weights, read

BLEU, EXACT = Metric("bleu"), Metric("exact", percent=True)


@tasks.add("translate")
@dataclass(eq=False, kw_only=True)
class TranslateTask(Task):
    """What a sentence is in another language."""

    unit = "tokens"
    batched = "tokens"
    varied = True

    recipe: TranslateRecipe
    parts: PairParts
    words: Vocabularies
    tokens: TokenPairs
    aside: list[Aside] = field(default_factory=list)
    distilled: bool = False  # whether the targets are the teacher's

    @property
    def metric(self) -> Metric:  # type: ignore[override]
        """BLEU, or how many are right as a whole."""
        return EXACT if self.recipe.data.measure == "exact" else BLEU

    @classmethod
    def prepare(cls, recipe: TranslateRecipe, progress: Progress = silent) -> "TranslateTask":
        """Read the sentences, learn the vocabulary, and choose what the recipe leaves out."""
        parts = read_parts(recipe.data)
        start = _start(recipe)
        recipe, first = (recipe, []) if start else choose_vocabulary(recipe, parts.train)
        words = start.words if start else learn(recipe.data, parts.train)
        tokens, long = tokenise(parts.train, words, recipe.data.longest)
        aside = [*parts.aside, *long]
        _check(parts.wrong + len(parts.train) - len(tokens), parts.total, aside, recipe.data)
        facts = Facts(
            len(tokens),
            int(tokens.lengths[:, 1].sum()),
            stretch=round(float((tokens.lengths[:, 1] / tokens.lengths[:, 0]).max()), 2),
            bf16=multiplies_bf16(),
            weights=start is not None,
        )
        filled, choices = choose(recipe, facts)
        given = {name: value for name, value in filled.model.items() if name != "name"}
        weights = None if start is None else start.weights.adapted(**{"length": recipe.data.longest, **given})
        if weights is None:
            sizes = {"source": len(words.source), "target": len(words.target), "length": recipe.data.longest}
            special = {"pad": PAD, "begin": BEGIN, "end": END, "mask": MASK, "shared": words.source is words.target}
            config = configure(filled.model["name"], **{**sizes, **special, **given})
        else:
            config = weights.config
        del progress
        return cls(
            recipe=filled,
            config=config,
            choices=[*first, *choices],
            given=None if start is None else start.weights,
            weights=weights,
            parts=parts,
            words=words,
            tokens=tokens,
            aside=aside,
        )

    def gathered(self, progress: Progress = silent) -> "TranslateTask":
        """With the teacher's translations for the given ones, if there is a teacher."""
        if self.recipe.teacher.path is None or self.distilled:
            return self
        translations = taught(self.parts.train.sources, self.recipe.teacher, progress)
        there = [row for row, text in enumerate(translations) if text]
        train = replace(self.parts.train.at(there), targets=[translations[row] for row in there])
        tokens, long = tokenise(train, self.words, self.recipe.data.longest)
        silent_on = [self.parts.train.lines[row] for row, text in enumerate(translations) if not text]
        empty = [set_aside(train.name, silent_on, "the teacher says nothing")] if silent_on else []
        return replace(self, tokens=tokens, distilled=True, aside=[*self.parts.aside, *empty, *long])

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.tokens), len(self.parts.held)

    @property
    def per_epoch(self) -> int:
        return self.tokens.per_epoch(self.recipe.train.batch)

    @property
    def per_update(self) -> int:
        return max(1, self.recipe.train.batch // SENTENCE)

    @cached_property
    def examples(self) -> TokenPairs:
        if self.config.parallel and not self.config.lengths:
            return OpenPairs(self.tokens.sources, self.tokens.targets, self.config)
        kind = MaskedPairs if self.config.parallel else TokenPairs
        return kind(self.tokens.sources, self.tokens.targets)

    @cached_property
    def held_out(self) -> TestPairs:
        longest = self.recipe.data.longest
        part, aside, exact = self.parts.part, self.parts.held_aside, self.recipe.data.measure == "exact"
        return TestPairs(self.parts.held, self.words, longest, part, aside, exact=exact)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        smoothing = self.recipe.train.smoothing
        if self.config.parallel and self.config.lengths:
            return fill(model, batch, self.config.lengths, smoothing)
        return translate(model, batch, smoothing)

    @classmethod
    def evaluation_set(
        cls,
        trained: Trained,
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> TestPairs:
        del progress
        how = Decoding(**options or {}).checked(trained.weights.config)
        words, longest = Vocabularies.read(trained.folder), trained.weights.config.length
        if data:
            pairs, aside = read_pairs(data)
            parts, part = None, "test"
            if trained.recipe is not None:
                parts = still_there(partial(read_parts, trained.recipe.data))
        elif trained.recipe is None:
            raise InputError(f"{trained.weights.path!r} does not say what it was trained on; name the sentences.")
        else:
            parts = read_parts(trained.recipe.data)
            pairs, aside, part = parts.held, parts.held_aside, parts.part
            if parts.later is not None:
                pairs, aside, part = parts.later, parts.later_aside, "test"
        learned = set() if parts is None else set(zip(parts.train.sources, parts.train.targets, strict=True))
        seen = sum(pair in learned for pair in zip(pairs.sources, pairs.targets, strict=True))
        return TestPairs(pairs, words, longest, part, aside, seen, how=how, full=True)

    @classmethod
    def predict(cls, trained: Trained, inputs: Sequence[str], **options: Any) -> list[Translation]:
        return list(Translator.of(trained).translations(inputs, Decoding(**options)))

    @classmethod
    def reading(cls, trained: Trained) -> Callable[[str, str | None], tuple[Reading, str]]:
        return partial(seen_through, Translator.of(trained))

    @classmethod
    def read(cls, trained: Trained, text: str) -> Read:
        translator = Translator.of(trained)
        (source,) = translator.words.source.encode([clean(text)])
        error = translator.error(text, source)
        if error:
            raise InputError(f"{text!r} cannot be read: {error}.")
        names = translator.words.source.names()
        begin = torch.tensor([[translator.model.config.begin]])
        inputs = torch.tensor([source]), begin
        return Read(translator.model, inputs, tuple(names[token] for token in source))

    def keep(self, folder: Path) -> None:
        self.words.write(folder)

    def fingerprint(self) -> str:
        """Of the tokens that are learned, be they the teacher's, and of what is measured on."""
        digest = blake2b("\n".join([*self.parts.held.sources, *self.parts.held.targets]).encode(), digest_size=16)
        for side in (self.tokens.sources, self.tokens.targets):
            for tokens in side:
                digest.update(np.array(tokens).tobytes())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        train, held = self.counts
        return {
            "origin": self.parts.origin,
            "train": train,
            self.parts.part: held,
            "tokens": self.tokens.lengths.sum(0).tolist(),
            "set aside": [asdict(one) for one in self.aside],
        }

    def plan(self) -> list[tuple[str, str]]:
        source, target = self.tokens.lengths.mean(0)
        later = "" if self.parts.later is None else f", {len(self.parts.later):,} for `vitrail evaluate`"
        train, held = self.counts
        what = "validate" if self.parts.part == "validation" else "test"
        lines = [
            ("data", f"{self.parts.origin}: {train:,} pairs to train on, {held:,} to {what} on{later}"),
            ("", f"{source:.1f} tokens to a source, {target:.1f} to a target"),
        ]
        if self.recipe.teacher.path is not None:
            lines.append(("teacher", f"{self.recipe.teacher.path}, whose translations are learned"))
        return [*lines, *(("", f"set aside: {one.what}, {one.why}") for one in self.aside)]

    def cards(self, measurement: Measurement) -> list[Card]:
        return shown.cards(measurement.scores)

    def sections(self, measurement: Measurement) -> list[Section]:
        return shown.sections(self.parts.held, measurement.outputs, measurement.scores)

    @classmethod
    def score_tables(cls, measurement: Measurement) -> list[Table]:
        return [shown.length_table(measurement.scores)]

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        return shown.lines(measurement.scores)

    def headline(self, measurement: Measurement) -> str:
        scores = measurement.scores
        return (
            f"{scores.part} BLEU {scores.bleu}, chrF {scores.chrf}, exact match {scores.exact:.2%} "
            f"({scores.tested:,} sentences, {scores.method})"
        )


@dataclass(frozen=True, eq=False)
class _Start:
    """A model to start from, and its vocabularies."""

    weights: Weights
    words: Vocabularies


def _start(recipe: TranslateRecipe) -> _Start | None:
    path = recipe.weights.path
    if path is None:
        return None
    weights = read(path)
    if weights.family != "seq2seq":
        raise InputError(f"{path!r} is a {weights.family}, which translates nothing; leave weights.path out.")
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return _Start(weights, Vocabularies.read(folder))


def read_parts(data: Sentences) -> PairParts:
    """The sentences, in their parts."""
    if data.source != "files":
        parts = pair_sources[data.source](data.seed)
    elif not data.files:
        raise InputError("the recipe names no sentences; give two files that go together line by line, or a table.")
    else:
        parts = _from_files(data)
    return _reversed(parts) if data.reverse else parts


def _from_files(data: Sentences) -> PairParts:
    train, aside = read_pairs(data.files)
    total = train.total
    held_files = data.validation or beside(data.files, "validation")
    later_files = data.test or beside(data.files, "test")
    origin = " and ".join(Path(file).name for file in data.files)
    if not held_files and later_files:
        held_files, later_files, part = later_files, None, "test"
    else:
        part = "validation" if held_files and later_files else "test"
    if not held_files:
        train, held = split_pairs(train, data.fraction, data.seed)
        return PairParts(train, held, "test", aside=aside, origin=origin, total=total, cut=True)
    held, held_aside = read_pairs(held_files)
    later, later_aside = read_pairs(later_files) if later_files else (None, [])
    return PairParts(train, held, part, later, aside, held_aside, later_aside, origin=origin, total=total)


def _reversed(parts: PairParts) -> PairParts:
    def turned(pairs: Pairs) -> Pairs:
        return replace(pairs, sources=pairs.targets, targets=pairs.sources)

    later = None if parts.later is None else turned(parts.later)
    return replace(parts, train=turned(parts.train), held=turned(parts.held), later=later)


def learn(data: Sentences, train: Pairs) -> Vocabularies:
    """The vocabularies of the sentences to train on."""
    if data.shared:
        both = Vocabulary.learned([*train.sources, *train.targets], data.tokens, data.vocabulary)
        return Vocabularies(both, both)
    sides = (train.sources, train.targets)
    return Vocabularies(*(Vocabulary.learned(side, data.tokens, data.vocabulary) for side in sides))


def tokenise(pairs: Pairs, words: Vocabularies, longest: int) -> tuple[TokenPairs, list[Aside]]:
    """Pairs as tokens, without those that are too long."""
    sources, targets = words.source.encode(pairs.sources), words.target.encode(pairs.targets)
    fit = [max(map(len, both)) <= longest for both in zip(sources, targets, strict=True)]
    long = [line for line, fits in zip(pairs.lines, fit, strict=True) if not fits]
    kept = [row for row, fits in enumerate(fit) if fits]
    if not kept:
        raise InputError(f"no sentence of {pairs.name} has {longest} tokens or fewer; choose a larger data.longest.")
    aside = [set_aside(pairs.name, long, f"longer than {longest} tokens (data.longest)")] if long else []
    return TokenPairs([sources[row] for row in kept], [targets[row] for row in kept]), aside


def _check(wrong: int, total: int, aside: Sequence[Aside], data: Sentences) -> None:
    if wrong > data.bad * total:
        raise InputError(
            f"{wrong:,} of {total:,} lines cannot be used, such as {aside[0].what}: {aside[0].why}; mend them, "
            f"or raise data.bad above {data.bad:g}."
        )
