"""What a recipe leaves out, chosen from the pictures: shown before the training, and any of it can be set."""

from dataclasses import dataclass
from typing import Any

from vitrail.recipe import Recipe


@dataclass(frozen=True)
class Facts:
    """What is known of the pictures before they are decoded."""

    pictures: int  # to train on
    classes: int
    size: tuple[int, int]  # down and across, of the middle one
    grey: bool


@dataclass(frozen=True)
class Choice:
    """A field that the recipe left out, its value, and why."""

    field: str
    value: Any
    why: str


SMALL, MEDIUM = 3_000, 30_000  # pictures


def choose(recipe: Recipe, facts: Facts) -> tuple[Recipe, list[Choice]]:
    """The recipe with nothing left out, and what was chosen for it."""
    sections = recipe.model_dump()
    made = []
    for choice in _choices(recipe, facts):
        section, field = choice.field.split(".")
        given = recipe.model if section == "model" else getattr(recipe, section).model_fields_set
        if field not in given:
            sections[section][field] = choice.value
            made.append(choice)
    return Recipe(**sections), made


def _choices(recipe: Recipe, facts: Facts) -> list[Choice]:
    m, side = facts.pictures, min(facts.size)
    shape = [] if recipe.model.get("name", "vit") != "vit" else _shape(facts)
    few = f"{m:,} pictures to train on"
    enough = max(15, min(150, round(300_000 / m)))
    epochs = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else enough
    return [
        *shape,
        Choice("optim.name", "muon", "it learns in fewer steps than AdamW alone"),
        Choice("optim.lr", 2e-3, "of AdamW, beside Muon"),
        Choice("train.epochs", enough, f"{few}: about 300,000 in all, within 15 to 150"),
        Choice("train.batch", 64 if m < 10 * SMALL else 128, few),
        Choice("train.evaluate", max(1, round(epochs / 40)), f"{epochs} epochs"),
        Choice("train.smoothing", 0.1, "a model trained from scratch grows too sure of itself"),
        Choice("train.ema", 0.99 if m < SMALL else 0.999, few),
        Choice("augment.flip", 0.0 if facts.grey else 0.5, _flip(facts)),
        Choice("augment.shift", 0.1 if side > 12 else 0.0, f"pictures of {side} pixels"),  # noqa: PLR2004
    ]


def _flip(facts: Facts) -> str:
    if facts.grey:
        return "grey pictures, which may be of writing"
    return "colour pictures, where left and right seldom matter"


def _shape(facts: Facts) -> list[Choice]:
    m, side = facts.pictures, min(facts.size)
    patch = 2 if side <= 12 else 4 if side <= 40 else 8  # noqa: PLR2004
    image = max(patch, side // patch * patch) if side <= 40 else 64  # noqa: PLR2004
    width, depth, heads = (64, 4, 4) if m < SMALL else (96, 6, 3) if m < MEDIUM else (128, 6, 4)
    small, few = f"pictures of {facts.size[0]} x {facts.size[1]} pixels", f"{m:,} pictures to train on"
    return [
        Choice("model.name", "vit", ""),
        Choice("model.image", image, small),
        Choice("model.patch", patch, small),
        Choice("model.channels", 1 if facts.grey else 3, "grey" if facts.grey else "colour"),
        Choice("model.stem", "early" if patch > 2 else "patch", small),  # noqa: PLR2004
        Choice("model.width", width, few),
        Choice("model.depth", depth, few),
        Choice("model.heads", heads, few),
        Choice("model.hidden", 2 * width, few),
        Choice("model.drop_path", 0.1 if depth > 4 else 0.0, few),  # noqa: PLR2004
    ]
