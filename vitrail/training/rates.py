"""Which learning rate: the loss of some steps in which it rises from far too low to far too high (Smith 2017)."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vitrail.training.job import Job
from vitrail.training.loop import NotFinite, fit

STEPS = 60
LOWEST, HIGHEST = 1e-3, 30.0  # times the recipe's rate
SMOOTH = 0.7  # of the mean loss is what came before
RISEN = 1.5  # times the least loss, where it is known that the rate is too high
SAFE = 5.0  # by which the rate of the least loss is divided, at which it is about to rise


@dataclass(frozen=True)
class Rates:
    """What was seen: rates, and the mean loss at each."""

    points: list[tuple[float, float]]
    own: float  # the recipe's
    muon: float | None = None  # and that of Muon, which rose with it

    @property
    def least(self) -> float:
        """The rate at which the loss was least."""
        return min(self.points, key=lambda point: point[1])[0]

    @property
    def suggested(self) -> float:
        """A rate to try, of one digit: some way below that."""
        return _round(self.least / SAFE)

    @property
    def fields(self) -> dict[str, float]:
        """The same as fields of a recipe: what rose together goes together."""
        muon = {} if self.muon is None else {"optim.muon": _round(self.muon * self.suggested / self.own)}
        return {"optim.lr": self.suggested, **muon}


def _round(rate: float) -> float:
    """To one digit."""
    digit = 10.0 ** math.floor(math.log10(rate))
    return round(rate / digit) * digit


def try_rates(job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Rates]:
    """Train for some steps with a rate that rises, and give what was seen after each; the job is spent by that."""
    optim, steps = job.recipe.optim, STEPS
    own, muon = optim.lr, optim.muon if optim.name == "muon" else None
    batches = replace(job.batches, epochs=-(-steps // job.batches.per_epoch))
    growth = (HIGHEST / LOWEST) ** (1 / (steps - 1))
    updates = fit(
        job.model,
        job.task.objective,
        batches.starting(0),
        job.optimizer,
        lambda step: LOWEST * growth**step,
        clip=optim.clip,
        precision=job.precision,
    )
    points, mean = list[tuple[float, float]](), 0.0
    try:
        for number, step in enumerate(updates):
            mean = SMOOTH * mean + (1 - SMOOTH) * step.loss
            points.append((own * LOWEST * growth**number, mean / (1 - SMOOTH ** (number + 1))))
            yield Rates(points, own, muon)
            if number + 1 == steps or points[-1][1] > RISEN * min(loss for _, loss in points) or stop():
                return
    except NotFinite:
        if not points:
            raise
