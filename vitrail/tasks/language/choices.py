"""What a recipe leaves out, chosen from the text."""

from dataclasses import dataclass

from vitrail.families import known_as
from vitrail.families.bert.config import BERTConfig
from vitrail.tasks.language.recipe import LanguageRecipe
from vitrail.tasks.task import Choice, filled


@dataclass(frozen=True)
class Facts:
    """What is known of the text."""

    tokens: int  # to train on
    bf16: bool = False  # whether the processor multiplies in it
    weights: bool = False  # whether there are some to start from
    length: int | None = None  # tokens that those take


SMALL, MEDIUM = 3_000_000, 30_000_000  # characters of a text
LENGTH, HEAD = 128, 32  # tokens at a time; width of a head
FEW, MANY = 1_024, 4_096  # tokens of an update: with few, a small text is learned in less time (bench/README.md)
SEEN = 4_000_000  # tokens in all


def choose_vocabulary(recipe: LanguageRecipe, characters: int) -> tuple[LanguageRecipe, list[Choice]]:
    """The recipe with tokens and their number, which come before all other choices."""
    why = f"{characters:,} characters"
    size = 1_000 if characters < SMALL else 8_000 if characters < MEDIUM else 16_000
    if recipe.data.tokens == "characters":
        return recipe, []
    return filled(recipe, [Choice("data.vocabulary", size, f"tokens at most, for {why}")])


def choose(recipe: LanguageRecipe, facts: Facts, characters: int) -> tuple[LanguageRecipe, list[Choice]]:
    """The recipe with nothing left out, and what was chosen for it."""
    return filled(recipe, _choices(recipe, facts, characters))


def _choices(recipe: LanguageRecipe, facts: Facts, characters: int) -> list[Choice]:
    given, why = recipe.model, f"{characters:,} characters"
    kind, preset = known_as(given.get("name", "gpt"))
    rates = (3e-3, 1e-2) if not facts.weights else (3e-4, 1e-3)
    length = given.get("length") or facts.length or preset.get("length") or LENGTH
    few = (FEW if characters < SMALL else MANY) // length
    batch = recipe.train.batch if "batch" in recipe.train.model_fields_set else max(1, few)
    epochs = max(2, min(100, round(SEEN / max(1, facts.tokens))))
    whole = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else epochs
    return [
        *([] if facts.weights or preset else _shape(recipe, characters, why, encoder=issubclass(kind, BERTConfig))),
        Choice("optim.name", "muon", "reaches a given loss in fewer steps than AdamW (bench/README.md)"),
        Choice("optim.lr", rates[0], "weights that are good already" if facts.weights else why),
        Choice("optim.muon", rates[1], "of the matrices"),
        Choice("optim.beta2", 0.98, "of a gradient that changes fast"),
        *([] if recipe.train.steps else [_epochs(epochs, facts)]),
        Choice("train.batch", batch, f"sequences, of {length} tokens each"),
        *([Choice("train.precision", "bf16", "the processor multiplies in it, faster")] if facts.bf16 else []),
        Choice("train.ema", 0.999, "the mean of the last models is better than any of them"),
        Choice("train.evaluate", max(1, round(whole / 20)), f"{whole} epochs"),
    ]


def _epochs(epochs: int, facts: Facts) -> Choice:
    why = f"{facts.tokens:,} tokens: about {SEEN / 1e6:.0f} million in all, in 2 to 100"
    return Choice("train.epochs", epochs, why)


def _shape(recipe: LanguageRecipe, characters: int, why: str, *, encoder: bool) -> list[Choice]:
    given = recipe.model
    width, depth = (192, 4) if characters < SMALL else (256, 6) if characters < MEDIUM else (512, 8)
    width = given.get("width", width)
    dropout = 0.1 if characters < SMALL else 0.0
    return [
        Choice("model.name", "gpt", "goes on with text; bert fills words in"),
        Choice("model.width", width, why),
        Choice("model.depth", depth, why),
        Choice("model.heads", max(1, width // HEAD), f"width {width}"),
        Choice("model.length", LENGTH, "tokens at a time"),
        Choice("model.dropout", dropout, why),
        Choice("model.position", "rotary", "better than learned ones at no cost (bench/README.md)"),
        *([Choice("model.order", "pre", "learns faster from scratch")] if encoder else []),
    ]
