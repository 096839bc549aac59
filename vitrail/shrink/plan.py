"""What is tried next, where no ways are named: the greatest gains first, and again by half where they cost too much."""

from collections.abc import Sequence

from vitrail.errors import InputError
from vitrail.shrink.steps import Goals, History, Step
from vitrail.shrink.ways import Way, ways

ONCE = ("patches", "merge")
AGAIN = ("layers", "neurons", "heads")  # round by round, as long as goals are not reached
ORDER = ("patches", "layers", "neurons", "heads", "merge")
LAST = "quantize"
ROUNDS = 3
AHEAD = (1.5, 3.5)  # times as fast and as small as a model is again as int8, about (bench/README.md)


def chosen(history: History, goals: Goals, *, data: bool, hurry: bool = False) -> Way | None:
    """The next way; None where there is none left. In a hurry it is one that needs no training."""
    steps = history.steps
    if goals.met(history.original, history.now):
        return None
    tried = [split(step)[0] for step in steps] + list(history.skipped)
    if not data:
        return None if tried else ways[LAST]()
    half = _half(steps)
    if half is not None and not hurry:
        return half
    if LAST in tried:
        return None
    if not hurry and not goals.met(history.original, history.now, ahead=AHEAD):
        for name in _left(history, goals):
            return ways[name]()
    return ways[LAST]()


def split(step: Step) -> tuple[str, str]:
    """The way of a step, and its amount."""
    name, _, amount = step.name.partition("=")
    return name, amount


def parse(text: str) -> Way:
    """A way as someone types it: heads, heads=0.5."""
    name, _, amount = text.partition("=")
    kind = ways[name.strip().lower()]
    if "=" in text and not amount.strip():
        raise InputError(f"{text!r} has no amount behind the =; give one, such as {name}={kind.usual}.")
    return kind(amount.strip() or None)


def _half(steps: Sequence[Step]) -> Way | None:
    """The last way by half, if it was undone because it cost too much, for the first time."""
    if not steps or not steps[-1].costly or steps[-1].again:
        return None
    name, amount = split(steps[-1])
    return ways[name](amount).milder()


def _left(history: History, goals: Goals) -> list[str]:
    """The ways that are still to be tried, by their order, in this round."""
    counts = dict.fromkeys(ORDER, 0)
    for step in history.steps:
        name, _ = split(step)
        if name in counts and not step.again:
            counts[name] += 1
    for name in history.skipped:
        counts[name] = ROUNDS
    first = [name for name in ORDER if not counts[name]]
    if first or (goals.speedup is None and goals.compression is None):
        return first
    return sorted(
        (name for name in AGAIN if counts[name] < ROUNDS and _kept(history.steps, name)), key=counts.__getitem__
    )


def _kept(steps: Sequence[Step], name: str) -> bool:
    """Whether a way worked the last time it was tried."""
    own = [step for step in steps if split(step)[0] == name]
    return bool(own) and own[-1].kept
