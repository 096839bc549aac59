"""The shape of a linear classifier."""

from math import prod

from vitrail.families.catalogue import Cost
from vitrail.families.pictures import PictureShape


class LinearConfig(PictureShape):
    """x W + b of the numbers of a picture."""

    @property
    def numbers(self) -> int:
        """Of a picture."""
        return self.channels * prod(self.size)

    @property
    def pooled(self) -> int:
        """Numbers that the head is given."""
        return self.numbers

    def cost(self) -> Cost:
        return Cost(self.classes * (self.numbers + 1), self.classes * self.numbers)

    def parameters(self) -> int:
        return self.cost().parameters

    def answering(self) -> int:
        return 8 * self.numbers
