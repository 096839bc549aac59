"""What a training says of itself: its measurements, the best of its models, and what it came to."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vitrail.tasks.task import Measurement


@dataclass(frozen=True)
class Measured:
    """What the model is worth after so many steps and epochs, on which part of the data."""

    step: int
    epoch: int
    part: str
    values: dict[str, float]

    def line(self) -> dict[str, float | str]:
        """What is logged of it."""
        return {"step": self.step, "epoch": self.epoch, "part": self.part, **self.values}


@dataclass(frozen=True, eq=False)
class Result:
    """What a run came to."""

    measurement: Measurement
    parameters: int
    epochs: float
    steps: int
    seconds: float
    waited: float  # fraction of the seconds that the model waited for data
    run: str
    kept: int = 0  # the steps after which the model that is kept stood: the last, or those of the best

    def line(self) -> dict[str, Any]:
        """All of it by name, what was measured first."""
        rest = {name: value for name, value in vars(self).items() if name != "measurement"}
        return {**self.measurement.summary, **rest}


@dataclass(frozen=True, eq=False)
class Best:
    """The model that was worth most on validation, and when."""

    step: int
    value: float
    state: dict[str, Tensor]
