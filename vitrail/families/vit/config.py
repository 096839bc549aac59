"""The shape of a ViT."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, NonNegativeInt, PositiveInt, model_validator

from vitrail.errors import InputError
from vitrail.families.catalogue import Cost
from vitrail.families.pictures import PictureShape
from vitrail.families.shapes import TransformerShape
from vitrail.families.vit.cost import vit_cost


def _merge(value: Any) -> Any:
    each = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not each or any(type(number) is not int or number < 0 for number in each):
        raise InputError(f"merge={value!r} does not fit; it should be a number of tokens, or one for each layer.")
    return each if isinstance(value, list | tuple) and len(set(each)) > 1 else each[0]


Merge = Annotated[int | tuple[int, ...], BeforeValidator(_merge)]

# Tokens with a position before the patches, of each pooling.
PREFIX = {"class": 1, "mean": 0, "both": 1, "distilled": 2}


class ViTConfig(TransformerShape, PictureShape):
    """The shape of a ViT: the paper's numbers by their names."""

    patch: PositiveInt = 16
    pool: Literal["class", "mean", "both", "distilled"] = "class"  # distilled: class and distillation token, two heads
    last: PositiveInt = 1  # layers whose class tokens the head is given side by side, up to the last
    norm_last: bool = False  # the last norm after the pooling instead of before it
    position: str = "learned"
    stem: str = "patch"
    tokens: NonNegativeInt = 0  # visual tokens that the patches are grouped into; 0: the patches are the tokens
    registers: NonNegativeInt = 0
    merge: Merge = 0  # tokens that are merged with others in each layer (ToMe); or the number for each layer
    prelogits: NonNegativeInt = 0  # width of the tanh layer before the logits; 0: none

    @model_validator(mode="before")
    @classmethod
    def _as_wide(cls, fields: dict[str, Any]) -> dict[str, Any]:
        if isinstance(fields.get("prelogits"), bool):
            fields = {**fields, "prelogits": fields.get("width") if fields["prelogits"] else 0}
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> "ViTConfig":
        from vitrail.core import positions, stems  # noqa: PLC0415
        from vitrail.core.embeddings import check_size  # noqa: PLC0415

        if isinstance(self.heads, tuple) and self.position == "relative":
            raise InputError(f"position='relative' has as many biases as heads, which differ by layer: {self.heads}.")
        if self.tokens and self.position == "relative":
            raise InputError("position='relative' is between patches, which tokens=... groups; choose another of them.")
        if self.pool == "distilled" and self.prelogits:
            raise InputError("pool='distilled' has two heads and no prelogits; leave prelogits out.")
        if self.pool == "both" and self.norm_last:
            raise InputError("pool='both' is of tokens that are normalised already; leave norm_last out.")
        if self.last > 1 and (self.pool not in ("class", "both") or self.norm_last or self.last > self.depth):
            raise InputError(
                f"last={self.last} is of class tokens, normalised before they are pooled, of at most "
                f"depth={self.depth} layers; choose pool='class' or 'both', or leave it out."
            )
        if isinstance(self.merge, tuple) and len(self.merge) != self.depth:
            raise InputError(
                f"merge={list(self.merge)} has {len(self.merge)} numbers for depth={self.depth} layers; give one each."
            )
        if self.merge and (self.kernel != "softmax" or self.position in ("relative", "rotary") or self.tokens):
            raise InputError(
                "merge is of patches in softmax attention, whose position is added to them; leave it out, or choose "
                "kernel='softmax', another position, and no tokens."
            )
        check_size("image", self.size, self.patch)
        for registry in (positions, stems):
            registry[getattr(self, registry.noun)]  # a name it does not know is an error
        return self

    def cost(self) -> Cost | None:
        return None if self.merge else vit_cost(self)

    def answering(self) -> int:
        tokens = self.prefix + self.registers + (self.tokens or self.patches)
        widest = max(hidden for _, hidden in self.layers)
        return 8 * tokens * (2 * widest + 4 * self.width)  # twice what a block has, as was seen (bench/README.md)

    def parameters(self) -> int:
        cost = self.cost() or self.model_copy(update={"stem": "patch", "merge": 0, "factors": {}}).cost()
        return 0 if cost is None else cost.parameters

    @property
    def grid(self) -> tuple[int, int]:
        """Patches down and across."""
        return self.size[0] // self.patch, self.size[1] // self.patch

    @property
    def prefix(self) -> int:
        """Tokens before the patches that have a position: class and distillation token."""
        return PREFIX[self.pool]

    @property
    def merges(self) -> tuple[int, ...]:
        """Tokens that are merged in each layer."""
        return self.merge if isinstance(self.merge, tuple) else (self.merge,) * self.depth

    @property
    def normed(self) -> bool:
        """Whether a norm comes after the last block, or after the pooling."""
        return self.order == "pre" or self.norm_last

    @property
    def pooled(self) -> int:
        """Numbers that the head is given."""
        return self.width * (self.last + (self.pool == "both"))

    @property
    def patches(self) -> int:
        """How many there are in an image of its size."""
        return self.grid[0] * self.grid[1]

    @property
    def step(self) -> int:
        return self.patch
