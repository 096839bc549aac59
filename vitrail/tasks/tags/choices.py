"""What a recipe leaves out, chosen from the words and their labels."""

from dataclasses import dataclass

from vitrail.tasks.tags.recipe import TagRecipe
from vitrail.tasks.task import Choice, filled


@dataclass(frozen=True)
class Facts:
    """What is known of what has labels."""

    tokens: int  # to train on
    longest: int  # tokens of a sentence at most, as it is given to a model
    whole: bool = False  # whether texts have one label
    bf16: bool = False  # whether the processor multiplies in it
    weights: bool = False  # whether there are some to start from


LARGE = 3_000_000  # tokens
SEEN, AGAIN = 4_000_000, 1_000_000  # tokens in all, from scratch and from weights


def choose_vocabulary(recipe: TagRecipe, characters: int) -> tuple[TagRecipe, list[Choice]]:
    """The recipe with the size of the vocabulary, which comes before all other choices."""
    if recipe.data.tokens == "characters":
        return recipe, []
    size = 4_000 if characters < LARGE else 8_000
    return filled(recipe, [Choice("data.vocabulary", size, f"tokens at most, for {characters:,} characters")])


def choose(recipe: TagRecipe, facts: Facts) -> tuple[TagRecipe, list[Choice]]:
    """The recipe with nothing left out, and what was chosen for it."""
    return filled(recipe, _choices(recipe, facts))


def _choices(recipe: TagRecipe, facts: Facts) -> list[Choice]:
    why = f"{facts.tokens:,} tokens to train on"
    seen = AGAIN if facts.weights else SEEN
    epochs = max(2, min(60, round(seen / max(1, facts.tokens))))
    whole = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else epochs
    good = "weights that are good already"
    steps = [] if recipe.train.steps else [Choice("train.epochs", epochs, f"{why}: {seen / 1e6:g} million in all")]
    return [
        *([Choice("model.dropout", 0.1, good)] if facts.weights else _shape(recipe, facts, why)),
        Choice("optim.name", "adamw" if facts.weights else "muon", good if facts.weights else "learns in fewer steps"),
        Choice("optim.lr", 3e-4 if facts.weights else 3e-3, good if facts.weights else why),
        *([] if facts.weights else [Choice("optim.muon", 1e-2, "of the matrices")]),
        Choice("optim.beta2", 0.98, "of a gradient that changes fast"),
        *steps,
        Choice("train.batch", 2048, "tokens"),
        *([Choice("train.precision", "bf16", "the processor multiplies in it, faster")] if facts.bf16 else []),
        Choice("train.smoothing", 0.1, "labels are not all right"),
        Choice("train.ema", 0.99 if facts.weights else 0.999, "the mean of the last models is better than any of them"),
        Choice("train.evaluate", max(1, round(whole / 20)), f"{whole} epochs"),
    ]


def _shape(recipe: TagRecipe, facts: Facts, why: str) -> list[Choice]:
    given = recipe.model
    if given.get("name", "bert") != "bert":
        return []
    width = given.get("width", 128 if facts.tokens < LARGE else 256)
    return [
        Choice("model.name", "bert", "the family"),
        Choice("model.width", width, why),
        Choice("model.depth", 3, why),
        Choice("model.heads", 4, f"width {width}"),
        Choice("model.length", min(512, max(64, facts.longest)), "tokens of the longest sentence, 512 at most"),
        Choice("model.position", "rotary", "what is near counts most"),
        Choice("model.order", "pre", "learns faster from scratch"),
        Choice("model.dropout", 0.3 if facts.tokens < LARGE else 0.1, why),
    ]
