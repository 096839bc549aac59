"""What models of pictures have in common: a shape of what comes in, and of what goes out."""

from typing import Annotated, Any

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt

from vitrail.config import parse_sides
from vitrail.errors import InputError
from vitrail.families.catalogue import Shape


def _size(value: Any) -> Any:
    if isinstance(value, str):
        value = parse_sides(value) or value
    sides = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(sides) != 2 or any(type(side) is not int or side < 1 for side in sides):  # noqa: PLR2004
        raise InputError(f"image={value!r} does not fit; it should be a number of pixels, or two: 224x384.")
    return value if isinstance(value, int) else sides


Size = Annotated[int | tuple[int, int], BeforeValidator(_size)]


class PictureShape(Shape):
    """The shape of a model that labels pictures."""

    image: Size = 224  # pixels, or (down, across)
    channels: PositiveInt = 3
    classes: NonNegativeInt = 1000  # 0: no head, the pooled features are the output

    @property
    def size(self) -> tuple[int, int]:
        """The image it was made for, (down, across)."""
        return self.image if isinstance(self.image, tuple) else (self.image, self.image)

    @property
    def step(self) -> int:
        """Of what the sides of a picture are multiples."""
        return 1
