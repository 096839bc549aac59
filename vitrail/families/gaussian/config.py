"""The shape of a Gaussian classifier."""

from math import prod
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from vitrail.errors import InputError
from vitrail.families.catalogue import Cost
from vitrail.families.pictures import PictureShape, Size


class GaussianConfig(PictureShape):
    """A Gaussian for each class, over the numbers of a picture."""

    image: Size = 28
    channels: PositiveInt = 1
    classes: PositiveInt = 10
    # One for all classes (linear discriminant analysis); one each (quadratic); variances alone, each (naive Bayes).
    covariance: Literal["shared", "own", "diagonal"] = "shared"
    # Towards as much variance in all directions; None: none, or what singular ones need (Ledoit and Wolf 2004).
    shrinkage: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "GaussianConfig":
        if self.covariance == "diagonal" and self.shrinkage is not None:
            raise InputError("shrinkage is of whole covariances; leave it out where covariance='diagonal'.")
        return self

    @property
    def numbers(self) -> int:
        """Of a picture."""
        return self.channels * prod(self.size)

    @property
    def pooled(self) -> int:
        """Numbers of a picture as a vector: how far it is from each class."""
        return self.classes

    def cost(self) -> Cost:
        k, d = self.classes, self.numbers
        spread = {"shared": d * d, "own": k * d * d, "diagonal": k * d}[self.covariance]
        adds = {"shared": d * d + k * d, "own": k * d * d, "diagonal": 2 * k * d}[self.covariance]
        return Cost(k + k * d + spread, adds)

    def parameters(self) -> int:
        return self.cost().parameters

    def answering(self) -> int:
        return 8 * self.numbers * (3 if self.covariance == "shared" else 3 * self.classes)
