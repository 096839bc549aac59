"""Labelling pictures, as a task."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from vitrail.config import checked
from vitrail.data import (
    Aside,
    Batch,
    Normalise,
    Parts,
    Pictures,
    collect,
    find,
    from_idx,
    held_out,
    idx_parts,
    labelled,
    read_idx_part,
    read_items,
    sources,
    survey,
)
from vitrail.errors import InputError
from vitrail.families import Model, ViT, check_memory, configure, known_as
from vitrail.progress import Progress, silent
from vitrail.recipe import Start
from vitrail.tasks.pictures import shown
from vitrail.tasks.pictures.augment import augmenter
from vitrail.tasks.pictures.choices import Facts, choose
from vitrail.tasks.pictures.examples import TestPictures, TrainingPictures, classify
from vitrail.tasks.pictures.head import fit_head
from vitrail.tasks.pictures.predictor import Answer, Predictor, class_names, inputs_of, normalisation
from vitrail.tasks.pictures.recipe import PictureRecipe
from vitrail.tasks.sections import Card, Section, Table
from vitrail.tasks.task import Measurement, Metric, Task, Trained, tasks
from vitrail.weights import STATED, Weights, read


@tasks.add("pictures")
@dataclass(eq=False, kw_only=True)
class PictureTask(Task):
    """Which class a picture belongs to."""

    metric = Metric("accuracy", percent=True)
    unit = "pictures"
    head_alone = "the head alone, by logistic regression on features of the frozen model"

    recipe: PictureRecipe
    parts: Parts

    @classmethod
    def prepare(cls, recipe: PictureRecipe, progress: Progress = silent) -> "PictureTask":
        """Find the pictures, choose what the recipe leaves out, then decode them at the model's size."""
        recipe = _checked(recipe)
        data, weights = recipe.data, _weights(recipe)
        path = Path(data.path) if data.path is not None else None
        if data.source != "pictures":
            return cls._decoded(recipe, sources[data.source](path, data.test, data.seed), weights)
        if path is None:
            raise InputError("the recipe names no pictures; give a folder with --data, or set data.source.")
        if path.is_dir() and "train" in idx_parts(path):
            return cls._decoded(recipe, from_idx(path, data.test, data.seed), weights)
        files = survey(find(path), progress)
        train = sum(item.part == "train" for item in files.items)
        train = train or max(1, round((1 - data.test) * len(files.items)))
        tests = len(files.items) - train
        facts = Facts(train, len(files.names), files.sizes[1], files.grey, tests, weights)
        filled, choices = choose(recipe, facts)
        config = _config(filled, facts.classes, weights)
        parts = collect(
            files,
            config.size,
            config.channels,
            test=data.test,
            seed=data.seed,
            limit=data.bad,
            memory=data.memory,
            progress=progress,
        )
        exact = replace(facts, pictures=len(parts.train), tests=len(parts.test), classes=len(parts.train.names))
        filled, choices = choose(recipe, exact)  # the size and the channels are chosen by other things than counts
        config = _config(filled, exact.classes, weights)
        return cls(recipe=filled, config=config, choices=choices, weights=weights, parts=parts).adapted()

    @classmethod
    def _decoded(cls, recipe: PictureRecipe, parts: Parts, weights: Weights | None) -> "PictureTask":
        """Of pictures that come decoded."""
        channels, *size = parts.train.store.shape[1:]
        train, test = parts.train, parts.test
        facts = Facts(len(train), len(train.names), (size[0], size[1]), channels == 1, len(test), weights)
        filled, choices = choose(recipe, facts)
        config = _config(filled, facts.classes, weights)
        train, test = (part.fitted(config.size, config.channels) for part in (train, test))
        parts = replace(parts, train=train, test=test)
        return cls(recipe=filled, config=config, choices=choices, weights=weights, parts=parts).adapted()

    def adapted(self) -> "PictureTask":
        """With weights as these pictures need them: of their size, and with a head for their classes."""
        if self.weights is None:
            return self
        start, names, weights = self.recipe.weights, self.parts.train.names, self.weights
        if start.freeze and start.head == "keep":
            raise InputError("weights.head='keep' leaves nothing to train with weights.freeze; leave one of them out.")
        keep = start.head == "keep" or (start.head == "auto" and weights.labels == names and not start.freeze)
        if start.head == "keep" and weights.config.classes != len(names):
            raise InputError(
                f"weights.head='keep' cannot be: {weights.path!r} has a head for {weights.config.classes} classes, and "
                f"the pictures have {len(names)}."
            )
        prelogits = True if keep else (start.prelogits or 0)
        head = "keep" if keep else "fresh"
        adapted = weights.adapted(head=head, classes=len(names), prelogits=prelogits, **_changes(self.recipe))
        return replace(self, weights=adapted, config=adapted.config)

    @classmethod
    def evaluation_set(cls, trained: Trained, data: str | None, progress: Progress = silent) -> TestPictures:
        weights, recipe = trained.weights, trained.recipe
        own = data is None or (recipe is not None and data in sources and data == recipe.data.source)
        pictures, part, aside = _own(trained, progress) if own else _given(str(data), weights, progress)
        trained_on = set(str(trained.record.get("trained on", "")).split())
        seen = sum(one in trained_on for one in pictures.digests) if trained_on else 0
        return TestPictures(pictures, normalisation(weights), aside, part, seen)

    @classmethod
    def predict(cls, trained: Trained, inputs: Sequence[str], **options: Any) -> list[Answer]:
        return list(Predictor.of(trained.weights).answers(inputs_of(inputs), **options))

    @cached_property
    def normalise(self) -> Normalise:
        """As the weights want it, or by the training pictures' own mean and std."""
        stated = None if self.weights is None else self.weights.normalise
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
        return classify(model, batch, self.recipe.train.smoothing)

    def fit_head(self, model: Model, progress: Progress = silent) -> None:
        if not isinstance(model, ViT):
            raise InputError(f"weights.freeze is for a ViT, and this is a {type(model).__name__}; leave it out.")
        fit_head(model, self.parts.train, self.normalise, progress)

    def keep(self, folder: Path) -> dict[str, Any]:  # noqa: ARG002
        return {"labels": self.parts.train.names, "normalise": self.normalise}

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
        return shown.plan(self.parts)

    def settings(self) -> list[tuple[str, str]]:
        changes = [f"{name} {value:g}" for name, value in self.recipe.augment.model_dump().items() if value]
        augment = [] if self.recipe.weights.freeze else [("augment", ", ".join(changes) or "nothing")]
        return [*augment, ("normalise", str(self.normalise))]

    def cards(self, measurement: Measurement) -> list[Card]:
        return shown.cards(measurement.scores)

    def sections(self, measurement: Measurement) -> list[Section]:
        return shown.sections(self.parts, measurement.scores, measurement.outputs)

    @classmethod
    def score_tables(cls, measurement: Measurement) -> list[Table]:
        return [shown.class_table(measurement.scores)]

    @classmethod
    def score_lines(cls, measurement: Measurement) -> list[str]:
        return shown.lines(measurement.scores)

    def headline(self, measurement: Measurement) -> str:
        scores = measurement.scores
        return f"{scores.part} accuracy {scores.accuracy:.2%} ({scores.correct:,} of {scores.tested:,})"


def _own(trained: Trained, progress: Progress) -> tuple[Pictures, str, list[Aside]]:
    """The run's own test pictures, else those that it was measured on, and which part they are.

    No others are decoded, but where both parts come from one file.
    """
    weights, recipe = trained.weights, trained.recipe
    if recipe is None:
        raise InputError(f"{weights.path!r} does not say what it was trained on; name the pictures.")
    config, data, names = weights.config, recipe.data, class_names(weights)
    path = None if data.path is None else Path(data.path)
    files, part = trained.record.get("measured files") or trained.record.get("test files"), _part(trained.record)
    if trained.record.get("left for later") and path is not None and not (path.is_dir() and idx_parts(path)):
        return _later(path, weights, progress)
    if files:
        if not isinstance(files, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, str) for one in pair)  # noqa: PLR2004
            for pair in files
        ):
            raise InputError(f"the list of pictures in {str(trained.folder / 'data.json')!r} is damaged.")
        pictures, bad = read_items(files, names, config.size, config.channels, progress)
        if len(bad) > data.bad * len(files):
            raise InputError(
                f"{len(bad)} of the {len(files)} pictures that {weights.path!r} was measured on cannot be read, such "
                f"as {bad[0].what!r} ({bad[0].why}); bring them back, or name others: vitrail evaluate RUN DATA."
            )
        return pictures, part, bad
    if data.source == "pictures" and not (path is not None and path.is_dir() and idx_parts(path)):
        model = {"name": weights.family, **config.model_dump(mode="json")}  # of a run that kept no list
        parts = PictureTask.prepare(recipe.model_copy(update={"model": model, "weights": Start()}), progress).parts
        return parts.test, parts.held, parts.aside
    pictures, part = held_out(data.source, path, data.test, data.seed)
    known = pictures.among(names)
    if not len(known):
        raise InputError(
            f"the classes of the pictures are no longer those that {weights.path!r} learned; name the pictures."
        )
    return known.fitted(config.size, config.channels), part, []


def _part(record: Mapping[str, Any]) -> str:
    """Which part a run was measured on."""
    return "validation" if "validation" in record else "test"


def _later(path: Path, weights: Weights, progress: Progress) -> tuple[Pictures, str, list[Aside]]:
    """The test part, which was left for the end."""
    listing = find(path)
    if not listing.later:
        raise InputError(
            f"the test pictures of {weights.path!r} are no longer in {str(path)!r}; name some to measure on."
        )
    config = weights.config
    pictures, aside = labelled(listing, class_names(weights), config.size, config.channels, progress)
    return pictures, "test", aside


def _given(data: str, weights: Weights, progress: Progress) -> tuple[Pictures, str, list[Aside]]:
    """Pictures that the user names, of the classes that the model has."""
    config, path, names = weights.config, Path(data), class_names(weights)
    if data not in sources and not (path.is_dir() and idx_parts(path)):
        listing = find(path)
        pictures, aside = labelled(listing, names, config.size, config.channels, progress)
        return pictures, "test" if listing.later else listing.held or "all", aside
    pictures, part = (sources[data](None, 0.2, 0).test, "test") if data in sources else read_idx_part(path)
    known = pictures.among(names)
    if not len(known):
        raise InputError(f"{data!r} holds no class that the model knows: {', '.join(pictures.present().names)}.")
    others = len(pictures) - len(known)
    aside = [Aside(f"{others} pictures", "of classes that the model does not know")] if others else []
    return known.fitted(config.size, config.channels), part if part != "train" else "all", aside


def _checked(recipe: PictureRecipe) -> PictureRecipe:
    """With the fields of its model as the model will have them, before anything is chosen by them."""
    fields = dict(recipe.model)
    name = fields.pop("name", "vit")
    kind, _ = known_as(name)
    given = {"name": name} if "name" in recipe.model else {}
    return recipe.model_copy(update={"model": {**given, **checked(kind, fields, "model")}})


def _weights(recipe: PictureRecipe) -> Weights | None:
    start = recipe.weights
    if start.path is None:
        if start.freeze:
            raise InputError("weights.freeze trains the head of weights that are given; give some with --weights.")
        return None
    if "name" in recipe.model:
        raise InputError(
            f"the weights in {start.path!r} say what the model is; leave model.name={recipe.model['name']!r} out."
        )
    for name in ("classes", "prelogits"):
        if name in recipe.model:
            raise InputError(
                f"model.{name}={recipe.model[name]!r} is for the head, which the classes decide; leave it out, "
                f"or see weights.head and weights.prelogits."
            )
    stated = {name: recipe.model[name] for name in STATED if name in recipe.model}
    image, channels = recipe.model.get("image"), recipe.model.get("channels")
    return read(start.path, strict=start.strict, image=image, channels=channels, normalise=start.normalise, **stated)


def _changes(recipe: PictureRecipe) -> dict[str, Any]:
    """The fields of the model that the weights are adapted to."""
    return {name: value for name, value in recipe.model.items() if name not in STATED}


def _config(recipe: PictureRecipe, classes: int, weights: Weights | None) -> Any:
    if weights is not None:  # whose head is seen to when the classes are known
        config: Any = type(weights.config)(**{**weights.config.model_dump(), **_changes(recipe)})
    else:
        fields = {"classes": classes, **recipe.model}
        config = configure(fields.pop("name"), **fields)
        if config.classes < classes:
            raise InputError(f"model.classes={fields['classes']} is too few for {classes} classes; leave it out.")
    if config.channels not in (1, 3):
        raise InputError(f"model.channels={config.channels} is not what pictures have; choose 1 (grey) or 3 (colour).")
    check_memory(config)
    return config
