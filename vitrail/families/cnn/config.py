"""The shape of a convolutional network."""

from collections.abc import Iterator
from math import ceil, prod
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from vitrail.families.catalogue import Cost
from vitrail.families.pictures import PictureShape

Units = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1000)], ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    Field(min_length=1, max_length=8),
]
WIDER = 4  # times as many channels come out of a bottleneck as are inside


class Convolution(NamedTuple):
    """One of them: where it is, and its sides."""

    path: str
    before: int
    after: int
    side: int  # of its kernels
    stride: int


class CNNConfig(PictureShape):
    """A residual network (He et al. 2016), or the same without its shortcuts: the paper's numbers by their names."""

    root: Literal["large", "small"] = "large"  # 7 x 7 and a pooling, a quarter of the sides; 3 x 3, which loses nothing
    width: PositiveInt = 64  # channels of the first stage; each stage has twice those of the one before it
    units: Units = (2, 2, 2, 2)  # in each stage; all stages but the first halve the sides
    unit: Literal["basic", "bottleneck"] = "basic"  # two convolutions 3 x 3; or 1 x 1, 3 x 3 and 1 x 1
    residual: bool = True  # whether what comes in is added to what goes out of a unit
    eps: PositiveFloat = 1e-5

    @property
    def grown(self) -> int:
        """How many times as many channels a unit gives as it has inside."""
        return WIDER if self.unit == "bottleneck" else 1

    @property
    def pooled(self) -> int:
        """Numbers that the head is given."""
        return self.grown * self.width * 2 ** (len(self.units) - 1)

    def convolutions(self) -> Iterator[Convolution]:
        """All of them, in order."""
        side, stride = (7, 2) if self.root == "large" else (3, 1)
        yield Convolution("root.conv", self.channels, self.width, side, stride)
        before = self.width
        for stage, count in enumerate(self.units):
            inner = self.width * 2**stage
            after = self.grown * inner
            for number in range(count):
                path, step = f"stages.{stage}.{number}", 2 if stage and not number else 1
                for one in unit_convolutions(self.unit, before, inner, step):
                    yield one._replace(path=f"{path}.{one.path}")
                if self.residual and (before != after or step > 1):
                    yield Convolution(f"{path}.shortcut.conv", before, after, 1, step)
                before = after

    def cost(self) -> Cost:
        """Parameters, those of the norms among them, and multiply-adds."""
        parameters = adds = 0
        sizes: dict[str, tuple[int, ...]] = {}
        size: tuple[int, ...] = self.size
        for one in self.convolutions():
            came = sizes.setdefault(".".join(one.path.split(".")[:3]), size)  # into the unit
            given = came if one.path.endswith("shortcut.conv") else size
            size = tuple(ceil(side / one.stride) for side in given)
            weights = one.before * one.after * one.side**2
            parameters, adds = parameters + weights + 2 * one.after, adds + weights * prod(size)
            if one.path == "root.conv" and self.root == "large":
                size = tuple(ceil(side / 2) for side in size)
        head = Cost(self.classes * (self.pooled + 1), self.classes * self.pooled)
        return Cost(parameters, adds) + (head if self.classes else Cost(0, 0))

    def answering(self) -> int:
        pixels = prod(self.size) / (16 if self.root == "large" else 1)
        return int(4 * 4 * self.grown * self.width * pixels)

    def parameters(self) -> int:
        return self.cost().parameters


def unit_convolutions(kind: str, before: int, inner: int, stride: int) -> list[Convolution]:
    """Those that a unit is made of, one after the other, by their places in it."""
    if kind == "basic":
        sides = [(before, inner, 3, stride), (inner, inner, 3, 1)]
    else:
        sides = [(before, inner, 1, 1), (inner, inner, 3, stride), (inner, WIDER * inner, 1, 1)]
    return [Convolution(f"convs.{number}.conv", *one) for number, one in enumerate(sides)]
