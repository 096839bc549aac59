"""Learning a language from text, as a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from vitrail.config import Config
from vitrail.data import Batch
from vitrail.data.corpus import (
    TextParts,
    Texts,
    listing,
    part_beside,
    read_texts,
    split_texts,
    text_sources,
    train_part,
)
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.families import Model, configure, family_of, known_as
from vitrail.families.bert.config import BERTConfig
from vitrail.families.gpt.config import GPTConfig
from vitrail.families.token_shape import TokenShape
from vitrail.lens.words import Reading
from vitrail.machine import multiplies_bf16
from vitrail.progress import Progress, first_of, silent
from vitrail.tasks.language import shown
from vitrail.tasks.language.choices import Facts, choose, choose_vocabulary
from vitrail.tasks.language.examples import HiddenWindows, Marks, Tokens, Windows, continue_text, fill_text
from vitrail.tasks.language.measured import HiddenText, TestText, as_tokens
from vitrail.tasks.language.reading import as_read, seen_through
from vitrail.tasks.language.recipe import Corpus, Hidden, LanguageRecipe
from vitrail.tasks.language.writer import Filler, Reader, Writer, Writing
from vitrail.tasks.sections import Card, Section
from vitrail.tasks.task import EvaluationSet, Measurement, Metric, Read, Task, Trained, still_there, tasks
from vitrail.tasks.teaching import Lessons, learned_from, lessons_of
from vitrail.weights import Weights, read

if TYPE_CHECKING:
    from vitrail.families.token_model import TokenModel

NATS, LOSS = Metric("nats", higher=False), Metric("loss", higher=False)
MOST = 2_000  # windows that are measured on while a model is trained


class Asking(Config):
    """How a text is measured on."""

    stride: int = 0  # tokens from one window to the next; fewer than it has give each token more to go by


@tasks.add("language")
@dataclass(eq=False, kw_only=True)
class LanguageTask(Task):
    """What comes next in a text (GPT), or what stands where a word is hidden (BERT)."""

    unit = "tokens"
    sampled = True
    batched = "sequences"

    recipe: LanguageRecipe
    config: TokenShape
    parts: TextParts
    words: Vocabulary
    train: Tokens
    held: Tokens

    @property
    def metric(self) -> Metric:  # type: ignore[override]
        """Nats a character; of a BERT nats a hidden token."""
        return LOSS if isinstance(self.config, BERTConfig) else NATS

    @classmethod
    def prepare(cls, recipe: LanguageRecipe, progress: Progress = silent) -> "LanguageTask":
        """Read the text, learn the vocabulary, and choose what the recipe leaves out."""
        del progress
        parts = read_parts(recipe.data)
        _check(parts.train, recipe.data)
        start = _start(recipe)
        characters = parts.train.characters
        recipe, first = (recipe, []) if start else choose_vocabulary(recipe, characters)
        words = start[1] if start else learned_from(recipe.teacher) or learned(parts.train, recipe.data)
        train = as_tokens(parts.train.documents, words)
        length = None if start is None else start[0].config.length
        facts = Facts(len(train), bf16=multiplies_bf16(), weights=start is not None, length=length)
        filled, choices = choose(recipe, facts, characters)
        given = {name: value for name, value in filled.model.items() if name != "name"}
        if start is None:
            weights, config = None, _config(filled, words, given)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(recipe.train.seed)
                weights = start[0].adapted(**_says(start[0].config, filled.hidden), **given)
            config = weights.config
        task = cls(
            recipe=filled,
            config=config,
            choices=[*first, *choices],
            given=None if start is None else start[0],
            weights=weights,
            parts=parts,
            words=words,
            train=train,
            held=as_tokens(parts.held.documents, words),
        )
        task.check()
        return task

    def check(self) -> None:
        """There has to be a window to learn from, and something to measure on."""
        self.recipe.teacher.check()
        if len(self.train) < self.examples.reach:
            raise InputError(
                f"{self.parts.origin} has {len(self.train):,} tokens to train on, and one window takes "
                f"{self.examples.reach:,}; give more text, or a smaller model.length."
            )
        if len(self.held) < 2 or (isinstance(self.config, BERTConfig) and len(self.held) < self.examples.reach):  # noqa: PLR2004
            raise InputError(f"{self.parts.origin} has too little text to measure on; raise data.fraction.")

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.examples), len(self.held_out)

    @property
    def per_update(self) -> int:
        return max(1, self.recipe.train.batch * self.config.length // self.config.shown)

    @property
    def stored(self) -> int:
        return self.train.nbytes + self.held.nbytes

    @cached_property
    def examples(self) -> Windows:
        if isinstance(self.config, BERTConfig):
            return _hidden(self.train, self.config, self.words, self.recipe.hidden)
        return Windows(self.train, self.config.length)

    @cached_property
    def held_out(self) -> EvaluationSet:
        documents, part = self.parts.held.documents, self.parts.part
        aside = self.parts.held.aside
        if isinstance(self.config, BERTConfig):
            windows = _hidden(self.held, self.config, self.words, self.recipe.hidden)
            return HiddenText(documents, self.words, windows, part, aside, most=MOST)
        return TestText(documents, self.words, self.held, self.config.length, part, aside, most=MOST)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        own = fill_text if isinstance(self.config, BERTConfig) else continue_text
        lose = partial(own, smoothing=self.recipe.train.smoothing)
        return lose(model, batch) if self.lessons is None else self.lessons.beside(model, batch, lose)

    @cached_property
    def lessons(self) -> Lessons | None:
        """What a teacher teaches, if there is one."""
        return lessons_of(self.recipe.teacher, self.words, family=family_of(self.config))

    @classmethod
    def evaluation_set(
        cls,
        trained: Trained,
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> EvaluationSet:
        del progress
        asked = Asking(**options or {})
        words, config = Vocabulary.beside(trained.folder), trained.weights.config
        recipe = trained.recipe
        parts = None if recipe is None else still_there(partial(read_parts, recipe.data), needed=not data)
        if data:
            texts, part = read_texts(data), "test"
        elif parts is None:
            raise InputError(f"{trained.weights.path!r} does not say what it was trained on; name a text.")
        else:
            texts, part = (parts.held, parts.part) if parts.later is None else (parts.later, "test")
        known = set() if parts is None else {hash(one) for one in parts.train.documents}
        seen = sum(hash(one) in known for one in texts.documents)
        tokens = as_tokens(texts.documents, words)
        if isinstance(config, BERTConfig):
            if config.says != "words":
                raise InputError(f"{trained.weights.path!r} says no words, so that no text can be measured on.")
            hidden = Hidden() if trained.recipe is None else trained.recipe.hidden
            windows = _hidden(tokens, config, words, hidden)
            if len(tokens) < windows.reach:
                raise InputError(f"{len(tokens):,} tokens are too few to measure on; one window has {windows.reach:,}.")
            return HiddenText(texts.documents, words, windows, part, texts.aside, seen)
        return TestText(texts.documents, words, tokens, config.length, part, texts.aside, seen, _stride(asked, config))

    @classmethod
    def predict(cls, trained: Trained, inputs: Sequence[str], **options: Any) -> list[Any]:
        """What follows each text; or what stands at each [MASK] of it."""
        if isinstance(trained.weights.config, BERTConfig):
            filler = Filler.of(trained)
            return [filler.fill(one, **options) for one in inputs]
        writer, how = Writer.of(trained), Writing(**options)
        return [writer.texts(writer.start(one)[0], how)[0] for one in inputs]

    @classmethod
    def reading(cls, trained: Trained) -> Callable[[str, str | None], tuple[Reading, str]]:
        return partial(seen_through, Reader.of(trained))

    @classmethod
    def read(cls, trained: Trained, text: str) -> Read:
        return as_read(Reader.of(trained), text)

    def keep(self, folder: Path) -> None:
        self.words.write(folder / "tokenizer.json")

    def fingerprint(self) -> str:
        digest = blake2b(digest_size=16)
        for tokens in (self.train, self.held):
            digest.update(np.array([len(tokens)]).tobytes() + tokens.tobytes())
        return digest.hexdigest()

    def record(self) -> dict[str, Any]:
        return {
            "origin": self.parts.origin,
            "documents": {"train": len(self.parts.train), self.parts.part: len(self.parts.held)},
            "characters": {"train": self.parts.train.characters, self.parts.part: self.parts.held.characters},
            "tokens": {"train": len(self.train), self.parts.part: len(self.held)},
            "set aside": [asdict(one) for one in self.parts.train.aside],
        }

    def plan(self) -> list[tuple[str, str]]:
        train, held = self.parts.train, self.parts.held
        each = train.characters / max(1, len(self.train))
        later = "" if self.parts.later is None else f", {self.parts.later.characters:,} for `vitrail evaluate`"
        documents = f" in {len(train):,} documents" if len(train) > 1 else ""
        kind = "characters" if self.recipe.data.tokens == "characters" and not self.given else "tokens"
        what = "validate" if self.parts.part == "validation" else "test"
        lines = [
            ("data", f"{self.parts.origin}: {train.characters:,} characters{documents} to train on"),
            ("", f"{held.characters:,} to {what} on{later}"),
            ("tokens", f"{len(self.words):,} {kind}, {each:.2f} characters to each"),
        ]
        return [
            *lines,
            *(("", line) for line in first_of([f"set aside: {one.what}, {one.why}" for one in train.aside])),
        ]

    def cards(self, measurement: Measurement) -> list[Card]:
        return shown.cards(measurement.scores)

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        return shown.lines(measurement.scores)

    def headline(self, measurement: Measurement) -> str:
        return shown.headline(measurement.scores)

    def samples(self, model: Model) -> list[Section]:
        if isinstance(self.held_out, HiddenText):
            return [shown.filled(model, self.held_out)]
        return [shown.continued(Writer(cast("TokenModel", model), self.words), self.held, self.parts.part)]


def _stride(asked: Asking, config: TokenShape) -> int:
    if not 0 <= asked.stride <= config.length:
        raise InputError(f"stride={asked.stride} does not fit; it should be from 1 to {config.length}, or 0 for that.")
    return asked.stride


def _hidden(tokens: Tokens, config: BERTConfig, words: Vocabulary, hidden: Hidden) -> HiddenWindows:
    return HiddenWindows(tokens, config.length, hidden, Marks.of(words))


def _config(recipe: LanguageRecipe, words: Vocabulary, given: dict[str, Any]) -> Any:
    name = recipe.model["name"]
    sizes: dict[str, Any] = {"tokens": len(words)}
    kind = known_as(name)[0]
    if not issubclass(kind, GPTConfig | BERTConfig):
        raise InputError(f"a {name} is no model of a language; choose gpt or bert.")
    if issubclass(kind, BERTConfig):
        sizes |= {"pad": words.needed("pad"), "pairs": recipe.hidden.next}
    return configure(name, **{**sizes, **given})


def _says(config: Any, hidden: Hidden) -> dict[str, Any]:
    """What weights have to answer, to be trained on."""
    return {"says": "words", "classes": 0, "pairs": hidden.next} if isinstance(config, BERTConfig) else {}


def _start(recipe: LanguageRecipe) -> tuple[Weights, Vocabulary] | None:
    path = recipe.weights.path
    if path is None:
        return None
    weights = read(path)
    if not isinstance(weights.config, GPTConfig | BERTConfig):
        raise InputError(f"{path!r} is a {weights.family}, which is no model of a language; leave weights.path out.")
    return weights, Vocabulary.beside(Path(weights.path))


def learned(texts: Texts, data: Corpus) -> Vocabulary:
    """The vocabulary of the text to train on."""
    lines = (line for document in texts.documents for line in document.splitlines(keepends=True))
    return Vocabulary.learned(lines, data.tokens, data.vocabulary, words=False)


def read_parts(data: Corpus) -> TextParts:
    """The text, in its parts."""
    if data.source != "files":
        texts = Texts(text_sources[data.source]())
        train, held = split_texts(texts, data.fraction, data.seed)
        return TextParts(train, held, origin=data.source)
    if not data.files:
        raise InputError("the recipe names no text; give a file, or a folder of files.")
    first = data.files[0]
    alone = len(data.files) == 1
    held_files = list(data.validation) or (part_beside(first, "validation") if alone else [])
    later_files = list(data.test) or (part_beside(first, "test") if alone else [])
    files = [train_part(first)] if alone and (held_files or later_files) else list(data.files)
    part = "validation"
    if not held_files and later_files:
        held_files, later_files, part = later_files, [], "test"
    texts, origin = read_texts(files), listing(data.files)
    if not held_files:
        train, held = split_texts(texts, data.fraction, data.seed)
        return TextParts(train, held, part, origin=origin)
    later = read_texts(later_files) if later_files else None
    return TextParts(texts, read_texts(held_files), part, later, origin)


def _check(texts: Texts, data: Corpus) -> None:
    for wrong, total, what in ((texts.wrong, texts.lines, "lines"), (texts.unread, texts.files, "files")):
        if wrong > data.bad * total:
            raise InputError(
                f"{wrong:,} of {total:,} {what} cannot be used, such as {texts.aside[0].what}: {texts.aside[0].why}; "
                f"mend them, or raise data.bad above {data.bad:g}."
            )
