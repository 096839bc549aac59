"""What is tried next, where no ways are named: the greatest gains first."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from vitrail.errors import InputError
from vitrail.families import cost_of
from vitrail.shrink.answers import runs_as_bytes
from vitrail.shrink.cutting import Heads, Image, Neurons
from vitrail.shrink.steps import Goals, History, Step
from vitrail.shrink.way import Together, Way, ways
from vitrail.weights import Weights

ORDER = ("neurons", "heads", "layers", "image", "merge")  # what costs least first (ViT-S/14, bench/README.md)
AGAIN = ("neurons", "layers", "heads")  # round by round, as long as goals are not reached
LEAST = 8  # patches down and across, at least, of pictures that are made smaller
ROUNDS = 3
# What goes in one step at most, where there are goals, and in which parts of that. By all of it photos of chess pieces
# lost nothing on one split and six points on another, where half of it is tried next (ViT-S/14, bench/README.md).
TOGETHER, PARTS = {"image": 0.44, "heads": 0.33, "neurons": 0.5}, (0.25, 0.5, 0.75, 1.0)
SURELY = 1.15  # times what a goal needs, by multiply-adds and parameters
# What is done at the end, and how many times as fast and as small a model is again by it, at least (ViT-S/14, and a
# translator of 4 + 4 layers of width 128, which has its table of tokens in several places; bench/README.md).
LAST = {"vit": ("quantize=int8", 1.5, 3.5), "cnn": ("quantize=int8", 1.0, 3.5), "seq2seq": ("quantize=int8", 2.0, 1.5)}
PACKED = ("quantize=8", 1.0, 3.5)  # of models that do not run as int8, or are to be small alone


def chosen(history: History, goals: Goals, weights: Weights, *, data: bool, hurry: bool = False) -> Way | None:
    """The next way; None where there is none left. In a hurry it is one that needs no training."""
    if goals.met(history.original, history.now):
        return None
    small = weights.family == "seq2seq" and goals.speedup is None and goals.compression is not None
    last, *ahead = LAST[weights.family] if runs_as_bytes(weights) and not small else PACKED
    tried = [split(step)[0] for step in history.steps] + [name for name, _ in history.skipped]
    if not tried and data and not hurry and (way := together(goals, weights, (ahead[0], ahead[1]))) is not None:
        return way
    left = [name for name in _left(history, goals, weights) if data and not (hurry and ways[name].trains)]
    ended = "quantize" in tried
    if left and (ended or not goals.met(history.original, history.now, ahead=(ahead[0], ahead[1]))):
        return ways[left[0]]()
    return None if ended else parse(last)


def together(goals: Goals, weights: Weights, ahead: tuple[float, float]) -> Way | None:
    """Several ways in one step, after which what is left learns once: as mild as goals allow. None where there are no
    goals, and of models that are no ViTs of some patches.
    """
    config = weights.config
    if goals.speedup is None and goals.compression is None:
        return None
    if weights.family != "vit" or min(config.grid) < LEAST:
        return None
    whole, candidates = cost_of(config), list[tuple[Way, Any]]()
    for part in PARTS:
        image, heads, neurons = (round(part * most, 3) for most in TOGETHER.values())
        several = Together([Image(image), Heads(heads), Neurons(neurons)])
        with suppress(InputError):  # one of them does not fit, or would change nothing
            several.check(weights)
            candidates.append((several, cost_of(_less(config, Image(image).grid(weights), heads, neurons))))
    for way, less in candidates:
        fast, small = (getattr(whole, one) / getattr(less, one) for one in ("multiply_adds", "parameters"))
        if fast * ahead[0] >= SURELY * (goals.speedup or 0) and small * ahead[1] >= SURELY * (goals.compression or 0):
            return way
    return candidates[-1][0] if candidates else None


def _less(config: Any, grid: tuple[int, int], heads: float, neurons: float) -> Any:
    """About the shape that is left, as many patches down and across, without some heads and neurons of each layer."""
    fields = {
        **config.model_dump(),
        "image": tuple(config.step * count for count in grid),
        "heads": [max(1, round(count * (1 - heads))) for count, _ in config.layers],
        "hidden": [max(1, round(count * (1 - neurons))) for _, count in config.layers],
        "head": config.head or config.width // config.most_heads,
    }
    return type(config)(**fields)


def split(step: Step) -> tuple[str, str]:
    """The way of a step, and its amount; of several in one step, all of it and none."""
    if "+" in step.name:
        return step.name, ""
    name, _, amount = step.name.partition("=")
    return name, amount


def parse(text: str) -> Way:
    """A way as someone types it: heads, heads=0.5; or several in one step, layers=2+neurons=0.5."""
    if "+" in text:
        return Together([parse(one) for one in text.split("+")])
    name, _, amount = text.partition("=")
    kind = ways[name.strip().lower()]
    if "=" in text and not amount.strip():
        raise InputError(f"{text!r} has no amount behind the =; give one, such as {name}={kind.usual}.")
    return kind(amount.strip() or None)


def _left(history: History, goals: Goals, weights: Weights) -> list[str]:
    """The ways that are still to be tried, by their order, in this round."""
    small = weights.family != "vit" or min(weights.config.grid) < LEAST
    counts = {name: 0 for name in ORDER if not (small and name == "image")}
    for step in history.steps:
        name, _ = split(step)
        if name in counts and not step.again:
            counts[name] += 1
    for name, _ in history.skipped:
        counts[name] = ROUNDS
    first = [name for name in ORDER if not counts.get(name, ROUNDS)]
    if first or (goals.speedup is None and goals.compression is None):
        return first
    return sorted(
        (name for name in AGAIN if counts[name] < ROUNDS and _kept(history.steps, name)), key=counts.__getitem__
    )


def _kept(steps: Sequence[Step], name: str) -> bool:
    """Whether a way worked the last time it was tried."""
    own = [step for step in steps if split(step)[0] == name]
    return bool(own) and own[-1].kept
