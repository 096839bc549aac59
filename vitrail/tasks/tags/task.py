"""Labelling words, or texts, as a task."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data import Aside, Batch
from vitrail.data.tagged import Tagged, TaggedParts
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.families import configure
from vitrail.families.bert.config import BERTConfig
from vitrail.lens.words import Reading
from vitrail.machine import multiplies_bf16
from vitrail.progress import Progress, first_of, silent
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.tags import shown
from vitrail.tasks.tags.choices import Facts, choose, choose_vocabulary
from vitrail.tasks.tags.examples import Cutter, Piece, TaggedTokens, tag
from vitrail.tasks.tags.measured import TestTags
from vitrail.tasks.tags.parts import read_files, read_parts
from vitrail.tasks.tags.reading import as_read, seen_through
from vitrail.tasks.tags.recipe import Labelled, TagRecipe, layout_of
from vitrail.tasks.tags.tagger import Tagger, Tags
from vitrail.tasks.task import Measurement, Metric, Read, Task, Trained, still_there, tasks
from vitrail.tasks.teaching import Lessons, learned_from, lessons_of
from vitrail.weights import Weights
from vitrail.weights import read as read_weights

RARE = 2  # times that a label is seen, below which it is said


@tasks.add("tags")
@dataclass(eq=False, kw_only=True)
class TagTask(Task):
    """What each word of a sentence is, or what a text is."""

    metric = Metric("accuracy", percent=True)
    batched = "tokens"
    varied = True

    recipe: TagRecipe
    config: BERTConfig
    parts: TaggedParts
    words: Vocabulary
    labels: tuple[str, ...]
    pieces: list[Piece]
    aside: list[Aside]

    @property
    def unit(self) -> str:  # type: ignore[override]
        """What has a label."""
        return _unit(self.parts.train, self.recipe.data)

    @classmethod
    def prepare(cls, recipe: TagRecipe, progress: Progress = silent) -> "TagTask":
        """Read what has labels, learn the vocabulary, and choose what the recipe leaves out."""
        del progress
        parts, data = read_parts(recipe.data)
        recipe = recipe.model_copy(update={"data": data})  # which says how it was read, for who reads more
        train = parts.train
        _check(train, recipe.data)
        counts = Counter(label for some in train.labels for label in some)
        labels = tuple(sorted(counts))
        if len(labels) < 2:  # noqa: PLR2004
            raise InputError(f"all {train.count:,} labels of {train.name} are {labels[0]!r}; there is nothing to tell.")
        start = _start(recipe)
        characters = sum(len(word) for some in train.sentences for word in some)
        recipe, first = (recipe, []) if start else choose_vocabulary(recipe, characters)
        words = start[1] if start else learned_from(recipe.teacher) or _learned(train, recipe.data)
        most = start[0].config.length if start else 512
        pieces = _cut(train, Cutter(words, recipe.model.get("length", most)))
        facts = Facts(
            sum(len(one.tokens) for one in pieces),
            max(len(one.tokens) for one in pieces),
            whole=train.whole,
            bf16=multiplies_bf16(),
            weights=start is not None,
        )
        filled, choices = choose(recipe, facts)
        says = {"says": "label" if train.whole else "tags", "classes": len(labels)}
        given = {name: value for name, value in filled.model.items() if name != "name"}
        if start is None:
            pad = words.needed("pad")
            weights, config = (
                None,
                configure(filled.model["name"], **{"tokens": len(words), "pad": pad, **says, **given}),
            )
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(recipe.train.seed)
                head = "keep" if start[0].labels == labels else "new"
                weights = start[0].adapted(head=head, **{**says, "pooler": train.whole, "pairs": False, **given})
            config = weights.config
        if not isinstance(config, BERTConfig):
            raise InputError(f"a {filled.model.get('name')} labels no words; choose bert.")
        recipe.teacher.check()
        rare = [name for name, count in counts.items() if count < RARE]
        pieces = _cut(train, Cutter(words, config.length))
        long = sum(one.cut for one in pieces)
        return cls(
            recipe=filled,
            config=config,
            choices=[*first, *choices],
            given=None if start is None else start[0],
            weights=weights,
            parts=parts,
            words=words,
            labels=labels,
            pieces=pieces,
            aside=[*train.aside, *([_rare(rare)] if rare else []), *([_long(long, config.length)] if long else [])],
        )

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.pieces), len(self.parts.held)

    @property
    def per_epoch(self) -> int:
        return self.examples.per_epoch(self.recipe.train.batch)

    @property
    def per_update(self) -> int:
        return max(1, self.recipe.train.batch // self.config.shown)

    @property
    def smallest(self) -> int:
        return max(1, len(self.pieces) // self.per_epoch)

    @cached_property
    def examples(self) -> TaggedTokens:
        numbers = {name: number for number, name in enumerate(self.labels)}
        each = [[numbers[label] for label in some] for some in self.parts.train.labels]
        asked = [each[one.row][one.first : one.first + len(one.places)] for one in self.pieces]
        return TaggedTokens(self.pieces, asked, self.config.pad or 0, whole=self.parts.train.whole)

    @cached_property
    def held_out(self) -> TestTags:
        return _test(self.parts.held, self.words, self.config, self.labels, unit=self.unit, part=self.parts.part)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        lose = partial(tag, smoothing=self.recipe.train.smoothing)
        return lose(model, batch) if self.lessons is None else self.lessons.beside(model, batch, lose)

    @cached_property
    def lessons(self) -> Lessons | None:
        """What a teacher teaches, if there is one."""
        return lessons_of(self.recipe.teacher, self.words, self.labels)

    @classmethod
    def evaluation_set(
        cls,
        trained: Trained,
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> TestTags:
        del progress
        cls.no_options(options)
        weights = trained.weights
        labels = weights.labels or ()
        asked = Labelled() if trained.recipe is None else trained.recipe.data
        again = None if trained.recipe is None else still_there(partial(read_parts, asked), needed=not data)
        parts = None if again is None else again[0]
        if data:
            layout = layout_of(Path(data[0]))
            if layout != "conllu" and asked.layout not in (None, "conllu"):
                layout = asked.layout  # a short file may look like another
            column = asked.column if layout == asked.layout else ""
            tagged, part = read_files(data, asked.model_copy(update={"layout": layout, "column": column})), "test"
        elif parts is None:
            raise InputError(f"{weights.path!r} does not say what it was trained on; name the data.")
        else:
            tagged, part = (parts.held, parts.part) if parts.later is None else (parts.later, "test")
        known = set() if parts is None else set(parts.train.sentences)
        seen = sum(one in known for one in tagged.sentences)
        words, unit = Vocabulary.beside(trained.folder), _unit(tagged, asked)
        test = _test(tagged, words, weights.config, labels, unit=unit, part=part)
        return replace(test, seen=seen)

    @classmethod
    def predict(cls, trained: Trained, inputs: Sequence[str], **options: Any) -> list[Tags]:
        return list(Tagger.of(trained).tagged(inputs, **options))

    @classmethod
    def reading(cls, trained: Trained) -> Callable[[str, str | None], tuple[Reading, str]]:
        return partial(seen_through, Tagger.of(trained))

    @classmethod
    def read(cls, trained: Trained, text: str) -> Read:
        return as_read(Tagger.of(trained), text)

    def usage(self) -> dict[str, Any]:
        return {"labels": self.labels}

    def keep(self, folder: Path) -> None:
        self.words.write(folder / "tokenizer.json")

    def fingerprint(self) -> str:
        digest = blake2b(digest_size=16)
        for part in (self.parts.train, self.parts.held):
            digest.update(repr((part.sentences, part.labels)).encode())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        train, held = self.parts.train, self.parts.held
        return {
            "origin": self.parts.origin,
            "train": len(train),
            self.parts.part: len(held),
            "labels": {"train": train.count, self.parts.part: held.count},
            "set aside": [asdict(one) for one in self.aside],
        }

    def plan(self) -> list[tuple[str, str]]:
        train, held, unit = self.parts.train, self.parts.held, self.unit
        what = "validate" if self.parts.part == "validation" else "test"
        later = "" if self.parts.later is None else f", {self.parts.later.count:,} for `vitrail evaluate`"
        tokens = sum(len(one.tokens) for one in self.pieces)
        data = f"{self.parts.origin}: {train.count:,} {unit} to train on, {held.count:,} to {what} on{later}"
        lines = [("data", data), ("", f"{len(self.labels)} labels; {tokens / max(1, train.count):.2f} tokens to each")]
        return [*lines, *(("", line) for line in first_of([f"set aside: {one.what}, {one.why}" for one in self.aside]))]

    def cards(self, measurement: Measurement) -> list[Card]:
        return shown.cards(measurement.scores)

    def sections(self, measurement: Measurement) -> list[Section]:
        return shown.sections(self.parts.held, measurement.outputs, measurement.scores)

    @classmethod
    def score_tables(cls, measurement: Measurement) -> list[Table]:
        return [shown.class_table(measurement.scores)]

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        return shown.lines(measurement.scores)

    def headline(self, measurement: Measurement) -> str:
        scores = measurement.scores
        spans = "" if scores.spans is None else f", F1 of spans {scores.spans:.2%}"
        return (
            f"{scores.part} accuracy {scores.accuracy:.2%}, mean F1 {scores.macro:.2%}{spans} "
            f"({scores.tested:,} {scores.unit})"
        )


def _unit(tagged: Tagged, data: Labelled) -> str:
    return "texts" if tagged.whole else "characters" if data.tokens == "characters" else "words"


def _test(
    tagged: Tagged, words: Vocabulary, config: BERTConfig, labels: tuple[str, ...], *, unit: str, part: str
) -> TestTags:
    if tagged.whole != (config.says == "label"):
        kinds = ("a label for each word", "one for a whole text")
        raise InputError(f"{tagged.name} has {kinds[tagged.whole]}, and the model gives {kinds[not tagged.whole]}.")
    there = {label for some in tagged.labels for label in some}
    strange = sorted(there - set(labels))
    if len(strange) == len(there):
        raise InputError(
            f"{tagged.name} has labels such as {strange[0]!r}, none of which the model knows: {', '.join(labels[:5])}, "
            f"...; give others, or say another data.column."
        )
    aside = [*tagged.aside]
    if strange:
        aside.append(Aside(f"labels {', '.join(strange[:5])}", "never seen in training: counted as wrong"))
    return TestTags(tagged, Cutter(words, config.length), labels, unit, part, aside)


def _rare(names: Sequence[str]) -> Aside:
    some = ", ".join(map(repr, names[:5])) + ", ..." * (len(names) > 5)  # noqa: PLR2004
    return Aside(f"nothing, but {some}", "seen once in training: not to be learned from that")


def _long(count: int, length: int) -> Aside:
    return Aside(f"the ends of {count:,} texts", f"longer than the {length:,} tokens that the model takes")


def _start(recipe: TagRecipe) -> tuple[Weights, Vocabulary] | None:
    path = recipe.weights.path
    if path is None:
        return None
    weights = read_weights(path)
    if weights.family != "bert":
        raise InputError(f"{path!r} is a {weights.family}, which labels no words; take a bert, or leave it out.")
    return weights, Vocabulary.beside(Path(weights.path))


def _learned(train: Tagged, data: Labelled) -> Vocabulary:
    if train.whole:
        return Vocabulary.learned((text for (text,) in train.sentences), data.tokens, data.vocabulary)
    if data.tokens == "characters":
        return Vocabulary.learned(("".join(some) for some in train.sentences), data.tokens, data.vocabulary)
    return Vocabulary.learned((word for some in train.sentences for word in some), data.tokens, data.vocabulary)


def _cut(tagged: Tagged, cutter: Cutter) -> list[Piece]:
    return cutter.texts([text for (text,) in tagged.sentences]) if tagged.whole else cutter.pieces(tagged.sentences)


def _check(tagged: Tagged, data: Labelled) -> None:
    wrong = tagged.total - len(tagged)
    if tagged.aside and wrong > data.bad * tagged.total:
        raise InputError(
            f"{wrong:,} of {tagged.total:,} sentences cannot be used, such as {tagged.aside[0].what}: "
            f"{tagged.aside[0].why}; mend them, or raise data.bad above {data.bad:g}."
        )
