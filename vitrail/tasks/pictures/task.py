"""Labelling pictures, as a task."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from vitrail.data import (
    Batch,
    Found,
    Normalise,
    Parts,
    Pictures,
    Survey,
    Unreadable,
    View,
    collect,
    find,
    from_idx,
    idx_parts,
    in_memory,
    read_pixels,
    sources,
    survey,
)
from vitrail.errors import InputError
from vitrail.families.gaussian.config import GaussianConfig
from vitrail.machine import multiplies_bf16
from vitrail.progress import Progress, silent
from vitrail.recipe import Start
from vitrail.tasks.pictures import measured, shown
from vitrail.tasks.pictures.augment import augmenter
from vitrail.tasks.pictures.choices import CHEAP, Facts, choose, sides_for
from vitrail.tasks.pictures.examples import TestPictures, TrainingPictures, class_weights, classify, label_loss
from vitrail.tasks.pictures.gaussian import FittedGaussians, fit_gaussians
from vitrail.tasks.pictures.gaussian import sections as gaussian_sections
from vitrail.tasks.pictures.head import Fitted, Reading, features, fit_head, headed, readings, widest
from vitrail.tasks.pictures.model import (
    adapted,
    as_given,
    check_teacher,
    checked_recipe,
    config_of,
    keeps_head,
    pace_of,
    read_teacher,
    read_weights,
    taught_at,
)
from vitrail.tasks.pictures.predictor import Answer, Predictor, inputs_of
from vitrail.tasks.pictures.recipe import PictureRecipe
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.task import Choice, Measurement, Metric, Task, Trained, tasks
from vitrail.tasks.teaching import Lessons
from vitrail.weights.weights import normalisation

if TYPE_CHECKING:
    from vitrail.families import ViT
    from vitrail.families.gaussian.model import Gaussian
    from vitrail.weights import Weights

TRIED = 16  # pictures that are read, to know how long all of them take


@tasks.add("pictures")
@dataclass(eq=False, kw_only=True)
class PictureTask(Task):
    """Which class a picture belongs to."""

    metric = Metric("accuracy", percent=True)
    unit = "pictures"

    recipe: PictureRecipe
    found: Found
    files: Survey | None = None  # of pictures that are files, until they are decoded
    decoded: Parts | None = None
    head: Fitted | None = None  # what was found for weights that stay as they are
    fitted: FittedGaussians | None = None  # what a model in closed form needed

    @classmethod
    def prepare(cls, recipe: PictureRecipe, progress: Progress = silent) -> "PictureTask":
        """Find the pictures and choose what the recipe leaves out."""
        recipe = checked_recipe(recipe)
        data, weights = recipe.data, read_weights(recipe)
        path, files = Path(data.path) if data.path is not None else None, None
        parts = _decoded(recipe, path)
        if parts is None:
            if path is None:
                raise InputError("the recipe names no pictures; give a folder with --data, or set data.source.")
            files = survey(find(path), progress, data.bad)
            found = files.found(data.test, data.seed)
            found = found.using(data.use)
        else:
            parts = replace(parts, train=parts.train.some(data.use, recipe.train.seed))
            found = parts.found
        filled, choices = choose(recipe, Facts.of(found, weights, pace_of(weights), bf16=multiplies_bf16()))
        config = config_of(filled, len(found.names), weights)
        check_teacher(filled, config)
        task = cls(
            recipe=filled,
            config=config,
            choices=choices,
            given=weights,
            found=found,
            files=files,
            decoded=parts,
        )
        task = _adapted(task)
        task.taught_by  # noqa: B018  # which is read before anything is decoded
        return task

    def gathered(self, progress: Progress = silent) -> "PictureTask":
        """Decode the pictures at the model's size."""
        data, size, channels = self.recipe.data, self.config.size, self.config.channels
        if self.files is None:
            train, test = (part.fitted(size, channels) for part in (self.parts.train, self.parts.test))
            return replace(self, decoded=replace(self.parts, train=train, test=test))
        parts = collect(
            self.files,
            self.view,
            test=data.test,
            seed=data.seed,
            limit=data.bad,
            memory=data.memory,
            progress=progress,
        )
        parts = replace(parts, train=parts.train.some(data.use, self.recipe.train.seed))
        task = replace(self, decoded=parts)
        if parts.train.names == self.found.names:
            return task
        config = config_of(self.recipe, len(parts.train.names), self.given)  # no picture of a class could be read
        return _adapted(replace(task, config=config))

    def gathering(self) -> float:
        if self.files is None:
            return 0.0
        items, view = self.files.items, self.view
        some, began = items[:: max(1, len(items) // TRIED)], perf_counter()
        for item in some:
            with suppress(Unreadable):
                read_pixels(item.file, view.size, view.channels, view.fit)
        return (perf_counter() - began) * len(items) / len(some)

    def stand_in(self) -> "PictureTask":
        count, view = 2 * self.recipe.train.batch, self.view
        noise = torch.randint(0, 256, (count, view.channels, *view.size), dtype=torch.uint8)
        pictures = Pictures.of(noise, torch.arange(count) % len(self.names), self.names, "noise")
        return replace(self, files=None, decoded=Parts(pictures, pictures, "noise", count))

    @property
    def parts(self) -> Parts:
        """The pictures, decoded."""
        if self.decoded is None:
            raise RuntimeError("the pictures are not decoded yet: gathered() does that")
        return self.decoded

    @property
    def view(self) -> View:
        """How pictures are made for the model."""
        return View(self.config.size, self.config.channels, self.recipe.data.fit)

    @property
    def stored(self) -> int:
        size = sum(self.counts) * self.config.channels * self.config.size[0] * self.config.size[1]
        return size if in_memory(size, self.recipe.data.memory) else 0

    @property
    def counts(self) -> tuple[int, int]:
        if self.decoded is not None:
            return len(self.decoded.train), len(self.decoded.test)
        return sum(self.found.train), sum(self.found.held)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the classes."""
        return self.found.names if self.decoded is None else self.decoded.train.names

    @classmethod
    def evaluation_set(
        cls,
        trained: Trained,
        data: Sequence[str] = (),
        progress: Progress = silent,
        options: Mapping[str, Any] | None = None,
    ) -> TestPictures:
        weights, recipe = trained.weights, trained.recipe
        cls.no_options(options)
        if len(data) > 1:
            raise InputError(f"{len(data)} names are given, {', '.join(data)}; pictures are in one folder or CSV file.")
        own = recipe is not None and data and data[0] in sources and data[0] == recipe.data.source
        if data and not own:
            pictures, part, aside = measured.given(data[0], weights, progress)
        else:
            pictures, part, aside = measured.own(trained, progress) or cls._again(trained, progress)
        trained_on = set(str(trained.record.get("trained on", "")).split())
        seen = sum(one in trained_on for one in pictures.digests) if trained_on else 0
        return TestPictures(pictures, normalisation(weights), aside, part, seen)

    @classmethod
    def _again(cls, trained: Trained, progress: Progress) -> measured.Measured:
        """What a run that kept no list of its pictures was measured on."""
        weights, recipe = trained.weights, trained.recipe
        model = {"name": weights.family, **weights.config.model_dump(mode="json")}
        task = cls.prepare(recipe.model_copy(update={"model": model, "weights": Start()}), progress)
        parts = task.gathered(progress).parts
        return parts.test, parts.held, parts.aside

    @classmethod
    def predict(cls, trained: Trained, inputs: Sequence[str], **options: Any) -> list[Answer]:
        return list(Predictor.of(trained.weights).answers(inputs_of(inputs), **options))

    @cached_property
    def normalise(self) -> Normalise:
        """As the weights want it, or by the training pictures' own mean and std."""
        given = self.weights or self.taught_by  # a teacher is given what its student is
        stated = None if given is None else given.normalise
        return stated or self.parts.train.statistics()

    @cached_property
    def examples(self) -> TrainingPictures:
        c = self.config
        return TrainingPictures(
            self.parts.train, augmenter(self.recipe.augment, c.size, c.channels, c.classes), self.normalise
        )

    @cached_property
    def held_out(self) -> TestPictures:
        return TestPictures(self.parts.test, self.normalise, self.parts.aside, self.parts.held)

    def objective(self, model: nn.Module, batch: Batch) -> Tensor:
        smoothing, lessons = self.recipe.train.smoothing, self.lessons
        if lessons is None:
            return classify(model, batch, smoothing, self.class_weights)
        own = partial(label_loss, targets=batch.targets, smoothing=smoothing, weight=self.class_weights)
        return lessons.loss(getattr(model, "module", model), batch.inputs, own, forward=model)

    @cached_property
    def lessons(self) -> Lessons | None:
        """What a teacher teaches, if there is one."""
        teacher, weights = self.recipe.teacher, self.taught_by
        if weights is None:
            return None
        inside = bool(teacher.hidden or teacher.relations)
        size = taught_at(weights.config.size, self.config.size, inside=inside)
        model = weights.adapted(image=size).model().float()
        given = partial(as_given, size=size, ours=self.normalise, theirs=normalisation(weights))
        return Lessons(model, given=given, **teacher.model_dump(exclude={"path"}))

    @cached_property
    def taught_by(self) -> "Weights | None":
        """The teacher's weights, which say the same classes."""
        path = self.recipe.teacher.path
        return None if path is None else read_teacher(path, self.names, self.config.channels)

    @cached_property
    def class_weights(self) -> Tensor | None:
        """What a picture of each class counts, if not all alike."""
        return class_weights(self.parts.train.labels, len(self.names), self.recipe.data.balance)

    @property
    def at_once(self) -> bool:
        return self.recipe.weights.freeze or isinstance(self.config, GaussianConfig)

    @property
    def head_alone(self) -> str:  # type: ignore[override]
        """What is fitted at once."""
        if isinstance(self.config, GaussianConfig):
            return "in closed form: the fraction of each class, its mean and covariance"
        return "the head alone, on features of the frozen model; what it reads of them is chosen by cross-validation"

    def with_head(self, progress: Progress = silent) -> "PictureTask":
        """With the best linear head for what the weights give; also in what it reads, and at which size the pictures
        are seen, where that may be chosen. A model that has a closed form is fitted whole.
        """
        if isinstance(self.config, GaussianConfig):
            return self._fitted()
        if self.weights is None or self.given is None or not self._head_is_linear():
            return self
        began = perf_counter()
        task, head = self, self._fit_head(progress)
        smaller = self._smaller()
        if smaller is not None and head.accuracy is not None and perf_counter() - began <= self._cheap():
            other = self._seen_at(smaller, progress)
            tried = other._fit_head(progress)  # noqa: SLF001
            task, head = (other, tried) if tried.loss < head.loss else (task, head)
        weights = headed(cast("Weights", task.weights), head)
        recipe = task.recipe.model_copy(update={"model": {**task.recipe.model, **head.reads}})
        chosen = [Choice(f"model.{name}", value, _predicted(head)) for name, value in head.reads.items()]
        return replace(
            task, recipe=recipe, weights=weights, config=weights.config, choices=[*task.choices, *chosen], head=head
        )

    def _fitted(self) -> "PictureTask":
        fitted = fit_gaussians(self.config, self.parts.train, self.normalise, self.names)
        return replace(self, weights=fitted.weights, fitted=fitted)

    def _fit_head(self, progress: Progress) -> Fitted:
        weights = cast("Weights", self.weights)
        choices = [one for one in readings(weights.config) if self._free(one)]
        whole = weights.adapted(**widest(weights.config)) if choices else weights
        seen = features(cast("ViT", whole.model().float()), self.parts.train, self.normalise, progress)
        return fit_head(seen, self.parts.train.labels, len(self.names), choices, self.recipe.data.balance)

    def _smaller(self) -> int | None:
        """The next smaller size, if the head alone is fitted and the size was chosen."""
        chosen = any(choice.field == "model.image" for choice in self.choices)
        if not self.recipe.weights.freeze or not chosen or self.files is None:
            return None
        sides = [side for side in sides_for(cast("Weights", self.given).config) if side < min(self.config.size)]
        return sides[0] if sides else None

    def _cheap(self) -> float:
        """Seconds in which one look is so cheap that there may be another: a fifth of the time, where it is given."""
        minutes = self.recipe.train.minutes
        return CHEAP if minutes is None else min(CHEAP, 60 * minutes / 5)

    def _seen_at(self, side: int, progress: Progress) -> "PictureTask":
        """The same, of pictures at another size."""
        recipe = self.recipe.model_copy(update={"model": {**self.recipe.model, "image": side}})
        why = f"in cross-validation better than {min(self.config.size)}"
        choices = [
            Choice(choice.field, side, why) if choice.field == "model.image" else choice for choice in self.choices
        ]
        return _adapted(replace(self, recipe=recipe, choices=choices)).gathered(progress)

    def _head_is_linear(self) -> bool:
        """Whether there is a head to fit: one linear map of a vit, which is not kept as it is."""
        start, weights = self.recipe.weights, cast("Weights", self.given)
        if weights.family != "vit" and start.freeze:
            raise InputError(f"weights.freeze is for a vit, and this is a {weights.family}; leave it out.")
        return weights.family == "vit" and not start.prelogits and not keeps_head(self.recipe, weights, self.names)

    def head_found(self) -> str:
        if self.fitted is not None:
            return self.fitted.said
        if self.head is None:
            return ""
        reads = "" if self.head.reading is None else f"reads {self.head.reading.name} at {self.config.size[0]} pixels, "
        plain = self.config.last == 1 and self.config.pool in ("class", "mean")
        other = "" if plain else "; for `convert` to timm and others, choose model.pool=class"
        return f"{reads}fitted by {self.head.how}: {_predicted(self.head)}{other}"

    def _free(self, reading: Reading) -> bool:
        """Whether the recipe leaves it open; layers that all learn are read as other formats have them."""
        given, usual = self.recipe.model, reading.pool in ("class", "mean")
        fits = given.get("pool", reading.pool) == reading.pool and given.get("last", reading.last) == reading.last
        return fits and (usual or self.recipe.weights.freeze or "pool" in given)

    def usage(self) -> dict[str, Any]:
        return {"labels": self.parts.train.names, "normalise": self.normalise, "fit": self.recipe.data.fit}

    def fingerprint(self) -> str:
        pixels = blake2b(digest_size=16)
        for part in (self.parts.train, self.parts.test):
            for rows in part.rows.split(4096):
                pixels.update(part.store[rows].numpy().tobytes())
            pixels.update(part.labels.numpy().tobytes())
        return pixels.hexdigest()

    def record(self) -> dict[str, Any]:
        parts = self.parts
        record = {
            "layout": parts.layout,
            "files": parts.total,
            "train": len(parts.train),
            parts.held: len(parts.test),
            "classes": {
                name: [int((part.labels == number).sum()) for part in (parts.train, parts.test)]
                for number, name in enumerate(parts.train.names)
            },
            "sizes": parts.sizes,
            "left for later": parts.left,
            "set aside": [asdict(one) for one in parts.aside],
            "in both parts": parts.leaks,
            "trained on": " ".join(parts.train.digests),  # of each picture, so that it is known again
        }
        if self.recipe.data.source == "pictures" and parts.from_files:
            names = [parts.test.names[label] for label in parts.test.labels.tolist()]
            record["measured files"] = list(zip(parts.test.files, names, strict=True))
        return record

    def plan(self) -> list[tuple[str, str]]:
        return shown.plan(self.found, scratch=self.weights is None)

    def findings(self) -> list[tuple[str, str]]:
        return shown.findings(self.parts, self.found)

    def settings(self) -> list[tuple[str, str]]:
        changes = [f"{name} {value:g}" for name, value in self.recipe.augment.model_dump().items() if value]
        augment = [] if self.recipe.weights.freeze else [("augment", ", ".join(changes) or "nothing")]
        given = self.weights or self.taught_by
        stated = None if given is None else given.normalise
        return [*augment, ("normalise", str(stated) if stated else "by the mean and std of the pictures to train on")]

    def cards(self, measurement: Measurement) -> list[Card]:
        return shown.cards(measurement.scores)

    def sections(self, measurement: Measurement) -> list[Section]:
        predicted = None if self.head is None else self.head.predicted
        own = (
            []
            if self.fitted is None
            else gaussian_sections(cast("Gaussian", self.model()), self.normalise, self.names, self.fitted.said)
        )
        return own + shown.sections(self.parts, measurement.scores, measurement.outputs, predicted)

    def preview(self) -> list[Section]:
        return shown.preview(self.examples)

    @classmethod
    def score_tables(cls, measurement: Measurement) -> list[Table]:
        return [shown.class_table(measurement.scores)]

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        return shown.lines(measurement.scores)

    def headline(self, measurement: Measurement) -> str:
        scores = measurement.scores
        return f"{scores.part} accuracy {scores.accuracy:.2%} ({scores.correct:,} of {scores.tested:,})"


def _decoded(recipe: PictureRecipe, path: Path | None) -> Parts | None:
    """Pictures that come decoded: of a set that is known by its name, or of idx files."""
    data = recipe.data
    if data.source != "pictures":
        return sources[data.source](path, data.test, data.seed)
    return from_idx(path, data.test, data.seed) if path is not None and "train" in idx_parts(path) else None


def _adapted(task: PictureTask) -> PictureTask:
    """With weights as its pictures need them."""
    if task.given is None:
        return task
    weights = adapted(task.recipe, task.given, task.names)
    return replace(task, weights=weights, config=weights.config)


def _predicted(head: Fitted) -> str:
    return "nothing to choose by" if head.accuracy is None else f"{head.accuracy:.1%} right in cross-validation"
