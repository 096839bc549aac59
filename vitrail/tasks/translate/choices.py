"""What a recipe leaves out, chosen from the sentences."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from vitrail.data.pairs import Pairs
from vitrail.tasks.task import Choice, filled
from vitrail.tasks.translate.recipe import TranslateRecipe


@dataclass(frozen=True)
class Facts:
    """What is known of the sentences."""

    pairs: int  # to train on
    tokens: int  # of their targets
    stretch: float = 1.0  # how many times as long as its source a target is at most
    bf16: bool = False  # whether the processor multiplies in it
    weights: bool = False  # whether there are some to start from


SMALL, MEDIUM = 50_000, 500_000  # pairs
ALIKE, LETTERS = 0.3, 1_000  # of the letters in common, for one vocabulary; of an alphabet, for a larger one
SEEN = 25_000_000  # tokens of targets in all


def choose_vocabulary(recipe: TranslateRecipe, pairs: Pairs) -> tuple[TranslateRecipe, list[Choice]]:
    """The recipe with a vocabulary, or two, and their size, which come before all other choices."""
    sides = [Counter(one for one in "".join(side) if one.isalpha()) for side in (pairs.sources, pairs.targets)]
    alike = _overlap(*sides)
    choices = [Choice("data.shared", alike >= ALIKE, f"{alike:.0%} of the letters of both sides are the same")]
    if recipe.data.tokens == "bpe":
        size, why = 4_000 if len(pairs) < SMALL else 8_000 if len(pairs) < MEDIUM else 32_000, f"{len(pairs):,} pairs"
        if max(map(len, sides)) > LETTERS:
            size, why = max(8_000, size), f"{why}, {max(map(len, sides)):,} letters"
        choices.append(Choice("data.vocabulary", size, f"tokens at most, for {why}"))
    return filled(recipe, choices)


def _overlap(one: Counter[str], other: Counter[str]) -> float:
    """How much two alphabets have in common, by how often each letter is used: from 0 to 1."""
    totals = max(1, one.total()), max(1, other.total())
    return sum(min(one[letter] / totals[0], other[letter] / totals[1]) for letter in one.keys() & other.keys())


def choose(recipe: TranslateRecipe, facts: Facts) -> tuple[TranslateRecipe, list[Choice]]:
    """The recipe with nothing left out, and what was chosen for it."""
    return filled(recipe, _choices(recipe, facts))


def _choices(recipe: TranslateRecipe, facts: Facts) -> list[Choice]:
    m = facts.pairs
    few = f"{m:,} pairs to train on"
    rates = (5e-3 if m < SMALL else 2e-3, 1e-2) if not facts.weights else (1e-3, 3e-3)
    batch = recipe.train.batch if "batch" in recipe.train.model_fields_set else 4096
    epochs = max(5, min(100, round(SEEN / max(1, facts.tokens))))
    whole = recipe.train.epochs if "epochs" in recipe.train.model_fields_set else epochs
    parallel = bool(recipe.model.get("parallel"))
    return [
        *([] if facts.weights else _shape(recipe.model, m)),
        *(_lengths(recipe.model, facts) if parallel else []),
        Choice("optim.name", "muon", "22.9 BLEU after three epochs where AdamW had 14.5 (bench/README.md)"),
        Choice("optim.lr", rates[0], "weights that are good already" if facts.weights else few),
        Choice("optim.muon", rates[1], "of the matrices"),
        Choice("optim.beta2", 0.98, "as in Vaswani et al. 2017"),
        Choice("train.epochs", epochs, f"{facts.tokens:,} tokens: about 25 million in all, within 5 to 100 epochs"),
        Choice("train.batch", batch, "tokens of targets"),
        *([Choice("train.precision", "bf16", "the processor multiplies in it, faster")] if facts.bf16 else []),
        Choice("train.smoothing", 0.1, "as in Vaswani et al. 2017"),
        Choice("train.ema", 0.999, "the mean of the last models translates better than any of them"),
        Choice("train.evaluate", max(1, round(whole / 20)), f"{whole} epochs"),
    ]


def _lengths(given: dict[str, Any], facts: Facts) -> list[Choice]:
    if given.get("lengths") == 0:
        return [Choice("model.room", facts.stretch, "the longest target beside its source")]
    return [Choice("model.lengths", 64, "a parallel model predicts the length")]


def _shape(given: dict[str, Any], m: int) -> list[Choice]:
    few = f"{m:,} pairs to train on"
    if given.get("name", "seq2seq") != "seq2seq":
        return []
    masked = bool(given.get("parallel"))
    width, depth, heads = (128, 4, 4) if m < SMALL else (256, 4, 4) if m < MEDIUM else (512, 6, 8)
    width = given.get("width", width)
    return [
        Choice("model.name", "seq2seq", "the family"),
        Choice("model.width", width, few),
        Choice("model.depth", depth, few),
        Choice("model.heads", heads, f"width {width}"),
        Choice("model.hidden", 2 * width, f"width {width}"),
        Choice("model.dropout", *((0.1, "masks are noise enough") if masked else (0.3 if m < SMALL else 0.1, few))),
        Choice("model.position", "sincos", "as in Vaswani et al. 2017, laid out as HF's models are"),
    ]
