"""The model that labels pictures: as a recipe describes it, or as weights have it."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from vitrail.config import checked
from vitrail.data import Normalise
from vitrail.errors import InputError
from vitrail.families import ViTConfig, check_memory, configure, known_as, speed
from vitrail.families.gaussian.config import GaussianConfig
from vitrail.tasks.pictures.choices import WIDE, sides_for
from vitrail.tasks.pictures.recipe import PictureRecipe
from vitrail.weights import STATED, Weights, read


def checked_recipe(recipe: PictureRecipe) -> PictureRecipe:
    """With the fields of its model as the model will have them, before anything is chosen by them."""
    fields = dict(recipe.model)
    name = fields.pop("name", "vit")
    kind, _ = known_as(name)
    given = {"name": name} if "name" in recipe.model else {}
    return recipe.model_copy(update={"model": {**given, **checked(kind, fields, "model")}})


def read_weights(recipe: PictureRecipe) -> Weights | None:
    """The weights that it starts from, as they are."""
    start = recipe.weights
    if start.path is None:
        for name in ("freeze", "layers"):
            if getattr(start, name):
                raise InputError(f"weights.{name} is of weights that are given; give some with --weights.")
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
    if start.freeze and start.head == "keep":
        raise InputError("weights.head='keep' leaves nothing to train with weights.freeze; leave one of them out.")
    if start.freeze and start.prelogits:
        raise InputError("weights.prelogits cannot be kept with weights.freeze, whose head is one linear map.")
    if start.freeze and start.layers:
        raise InputError(
            "weights.layers are learned, and weights.freeze has none of them learn; leave one of them out."
        )
    stated = {name: recipe.model[name] for name in STATED if name in recipe.model}
    image, channels = recipe.model.get("image"), recipe.model.get("channels")
    how: dict[str, Any] = {"strict": start.strict, "normalise": start.normalise, "names": start.names}
    return read(start.path, image=image, channels=channels, **how, **stated)


def check_teacher(recipe: PictureRecipe, config: Any) -> None:
    """What is asked of a teacher can be."""
    teacher = recipe.teacher
    teacher.check()
    if teacher.path is None:
        return
    if recipe.weights.freeze:
        raise InputError("a head alone is fitted to the labels, and learns from no teacher; leave --teacher out.")
    if isinstance(config, GaussianConfig):
        raise InputError("Gaussians are fitted to the labels, and learn from no teacher; leave --teacher out.")
    if (teacher.hidden or teacher.relations) and not isinstance(config, ViTConfig):
        raise InputError("teacher.hidden and teacher.relations are of tokens, which the model has none of.")
    if teacher.hard and getattr(config, "pool", None) != "distilled":
        raise InputError("teacher.hard is for a distillation token; set model.pool=distilled, or leave it out.")


def read_teacher(path: str, names: tuple[str, ...], channels: int) -> Weights:
    """The weights of a run to learn from, which answers with the same classes."""
    weights = read(path)
    if not weights.pictures:
        raise InputError(f"the teacher {path!r} is a {weights.family}, which labels no pictures; give a run that does.")
    if weights.labels != names:
        some = ", ".join(weights.labels[:5]) if weights.labels else "none"
        raise InputError(
            f"the teacher {path!r} answers with other classes ({some}) than the pictures have "
            f"({', '.join(names[:5])}); train it on them first."
        )
    return weights.adapted(channels=channels)


def taught_at(own: tuple[int, int], student: tuple[int, int], *, inside: bool) -> tuple[int, int]:
    """The size at which a teacher looks at its student's pictures: its own, unless both have to have the same tokens,
    or pictures of another shape. At another size than it learned at it knows less (bench/README.md).
    """
    alike = own[0] * student[1] == own[1] * student[0]
    return own if alike and not inside else student


def as_given(images: Tensor, *, size: tuple[int, int], ours: Normalise, theirs: Normalise) -> Tensor:
    """What a teacher is given of its student's pictures (b c H W)."""
    if ours != theirs:
        images = theirs(ours.undone(images))
    if images.shape[-2:] != size:
        images = F.interpolate(images, size, mode="bicubic", antialias=True)
    return images


def keeps_head(recipe: PictureRecipe, weights: Weights, names: tuple[str, ...]) -> bool:
    """Whether weights answer with the classes of the pictures already, and go on from there."""
    start = recipe.weights
    if start.head == "keep" and weights.config.classes != len(names):
        raise InputError(
            f"weights.head='keep' cannot be: {weights.path!r} has a head for {weights.config.classes} classes, and "
            f"the pictures have {len(names)}."
        )
    return start.head == "keep" or (start.head == "auto" and weights.labels == names and not start.freeze)


def adapted(recipe: PictureRecipe, weights: Weights, names: tuple[str, ...]) -> Weights:
    """Weights as the pictures need them: of their size, and with a head for their classes."""
    keep = keeps_head(recipe, weights, names)
    own = {"prelogits": True if keep else (recipe.weights.prelogits or 0)} if weights.family == "vit" else {}
    head = "keep" if keep else "fresh"
    return weights.adapted(head=head, classes=len(names), **own, **_changes(recipe))


def config_of(recipe: PictureRecipe, classes: int, weights: Weights | None) -> Any:
    """The configuration of the model."""
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


def pace_of(weights: Weights | None) -> float | None:
    """Multiply-adds a second that the model of weights does here, on pictures of the size they are used at; None of
    weights so small that it does not matter, or whose multiply-adds no formula tells.
    """
    if weights is None or getattr(weights.config, "width", 0) < WIDE or weights.config.cost() is None:
        return None
    look = weights.adapted(image=sides_for(weights.config)[0])
    return speed(look.model().float()) * look.config.cost().multiply_adds


def _changes(recipe: PictureRecipe) -> dict[str, Any]:
    """The fields of the model that the weights are adapted to."""
    return {name: value for name, value in recipe.model.items() if name not in STATED}
