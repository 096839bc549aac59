"""How a ViT's shape is read off its tensors."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from vitrail.core import ResNetStem, stems
from vitrail.data.normalise import Normalise
from vitrail.errors import InputError
from vitrail.families.vit.config import PREFIX
from vitrail.weights.files import Lazy, Tensors, listed
from vitrail.weights.formats.vit.hints import Hints
from vitrail.weights.formats.vit.names import TORCH, Layout, Names

HEADS = {1152: 16, 1280: 16, 1408: 16, 1664: 16}  # of widths whose heads are not 64 wide (Zhai et al. 2022, table 2)


@dataclass
class Known:
    """A file understood: its tensors under their usual names, what they say of the model, and what was set aside."""

    tensors: dict[str, Lazy]
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    normalise: Normalise | None = None  # what such weights mostly want

    def rename(self, old: str, new: str) -> None:
        """Give a tensor its usual name."""
        if old in self.tensors:
            self.tensors[new] = self.tensors.pop(old)

    def drop(self, *names: str) -> None:
        """Set aside what has no part in the answer."""
        there = [name for name in names if self.tensors.pop(name, None) is not None]
        if there:
            self.notes.append(f"not used: {listed(there)}, without a part in the answer")

    def put(self, name: str, tensor: Tensor) -> None:
        """Have a tensor under a name."""
        self.tensors[name] = Lazy.of(name, tensor)

    def change(self, name: str, change: Callable[[Tensor], Tensor]) -> None:
        """Have a tensor changed."""
        self.put(name, change(self.tensors[name].numbers()))

    def gated(self, inner: str, outer: str) -> None:
        """Say so, if the first of a feed-forward's maps gives twice what the second takes."""
        first, second = self.tensors.get(inner), self.tensors.get(outer)
        if first is not None and second is not None and first.shape[0] == 2 * second.shape[-1]:
            self.fields["activation"] = "swiglu"


class Shape:
    """The configuration of a ViT, as its tensors tell it under the names and in the layout of a library."""

    names: Names
    layout: ClassVar[Layout] = TORCH
    eps: ClassVar[float] = 1e-6

    @property
    def patch_weight(self) -> str:
        return f"{self.names.patch}{self.layout.dot}{self.layout.weight}"

    def fields(self, known: Known, hints: Hints) -> dict[str, Any]:
        """The configuration, read off the tensors; what they do not say, from the hints, or by default."""
        names, tensors, dot = self.names, known.tensors, self.layout.dot
        width = self._shape(tensors, f"{names.norm1.format(0)}{dot}{self.layout.gain}", 1)[0]
        depth = self._depth(tensors)
        for what, there, stated in (("width", width, hints.width), ("depth", depth, hints.depth)):
            if stated not in (None, there):
                raise InputError(
                    f"config.json says {what} {stated}, and the tensors {there}; take both from one model."
                )
        heads, head = self.heads(tensors, width, hints)
        patch, channels = self.patch(tensors, hints)
        fields: dict[str, Any] = {
            "width": width,
            "depth": depth,
            "heads": heads,
            "hidden": self._shape(tensors, f"{names.inner.format(0)}{dot}bias", 1)[0],
            "patch": patch,
            "channels": channels,
            "classes": self._rows(tensors, names.logits),
            "prelogits": self._rows(tensors, names.prelogits),
            "pool": "class" if names.class_token in tensors else "mean",
            "eps": self.eps if hints.eps is None else hints.eps,
            "bias": f"{names.attention[0].format(0)}{dot}bias" in tensors,
            "activation": hints.activation or "gelu",
            **known.fields,
        }
        if heads * head != width:
            fields["head"] = head
        if names.registers and names.registers in tensors:
            fields["registers"] = self._shape(tensors, names.registers)[-2]
        if hints.registers not in (None, fields.get("registers", 0)):
            raise InputError(
                f"config.json says {hints.registers} registers, and there are {fields.get('registers', 0)}."
            )
        if names.scale1 and names.scale1.format(0) in tensors:
            fields["layer_scale"] = 1e-5
        if fields["activation"] == "swiglu":
            fields["hidden"] //= 2
        return fields | self._positions(tensors, fields, hints)

    def heads(self, tensors: Tensors, width: int, hints: Hints) -> tuple[int, int]:
        """How many heads, which no shape says, and how wide each is."""
        names = [f"{name.format(0)}.{self.layout.weight}" for name in self.names.attention]
        queries = sum(self._shape(tensors, name, 2)[0] for name in names) // 3
        heads = hints.heads or HEADS.get(width) or max(1, queries // 64)
        if queries % heads:
            raise InputError(f"heads={heads} does not divide the {queries} queries of {names[0]!r}; give heads=...")
        return heads, queries // heads

    def patch(self, tensors: Tensors, hints: Hints) -> tuple[int, int]:  # noqa: ARG002
        """Pixels of a patch across, and channels."""
        _, channels, patch, _ = self._shape(tensors, self.patch_weight, 4)
        return patch, channels

    def before(self, known: Known, hints: Hints, choices: tuple[int, ...]) -> int:
        """How many of the positions are not of patches: as many as leave those of the picture's size, or a square."""
        count = self._shape(known.tensors, self.names.position)[-2]
        patch, _ = self.patch(known.tensors, hints)
        stated, asked = (
            None if size is None else (size[0] // patch) * (size[1] // patch) for size in (hints.image, hints.asked)
        )
        if stated is not None and count - stated in choices:
            return count - stated
        square = [choice for choice in choices if math.isqrt(max(0, count - choice)) ** 2 == count - choice]
        if choices[0] not in square and asked is not None and count - asked in choices:
            return count - asked
        return square[0] if square else choices[0]

    def _positions(self, tensors: Tensors, fields: dict[str, Any], hints: Hints) -> dict[str, Any]:
        patch, image, name = fields["patch"], hints.image, self.names.position
        if name not in tensors:
            return self._unstored(hints)
        if hints.position not in (None, "learned"):
            raise InputError(f"position={hints.position!r} cannot be: {name!r} holds learned ones; leave it out.")
        count = self._shape(tensors, name)[-2] - PREFIX[fields["pool"]]
        side = math.isqrt(max(0, count))
        for size in (image, None if side * side == count else hints.asked):
            if size is not None and (size[0] // patch) * (size[1] // patch) == count:
                return {"image": tuple(size)}
        if side * side != count or not count:
            raise InputError(
                f"{name!r} has {count} positions, which are no square; give the picture's size that they are for, "
                f"such as image=(224, 384)."
            )
        return {"image": (side * patch, side * patch)}

    def _unstored(self, hints: Hints) -> dict[str, Any]:
        size = hints.image or hints.asked
        if hints.position in (None, "learned") or size is None:
            raise InputError(
                f"{self.names.position!r} is missing; if the model has no positions, or computes them, say so and give "
                f"the picture's size: position='none' or 'sincos2d', image=224."
            )
        return {"position": hints.position, "image": tuple(size)}

    def _depth(self, tensors: Tensors) -> int:
        before, after = self.names.norm1.split("{}")
        pattern = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
        return 1 + max(int(match[1]) for name in tensors if (match := pattern.match(name)))

    def _rows(self, tensors: Tensors, name: str) -> int:
        bias = f"{name}{self.layout.dot}{self.layout.bias}"
        return self._shape(tensors, bias, 1)[0] if name and bias in tensors else 0

    def _shape(self, tensors: Tensors, name: str, axes: int = 0) -> tuple[int, ...]:
        """Of a tensor that should have so many axes; at least two, unless that is said."""
        if name not in tensors:
            raise InputError(f"{name!r} is missing, without which the model is not known.")
        shape = tensors[name].shape
        if (len(shape) != axes if axes else len(shape) < 2) or 0 in shape:  # noqa: PLR2004
            raise InputError(
                f"{name!r} has shape {shape}, where {axes or 'more'} axes were expected; is it what it seems?"
            )
        return shape


def resnet_stem(units: tuple[int, ...]) -> str:
    """The stem with so many units in each stage."""
    for name, stem in stems.items():
        if issubclass(stem, ResNetStem) and tuple(stem.units) == units and name != "resnet-small":
            return name
    raise InputError(f"a ResNet with {units} units in its stages is not known here; those known are in vt.core.stems.")


def count_units(pattern: str, tensors: Tensors) -> tuple[int, ...]:
    """How many units each stage has, where a pattern finds stage and unit in a name."""
    units = {(int(m[1]), int(m[2])) for name in tensors if (m := re.match(pattern, name))}
    stages = sorted({stage for stage, _ in units})
    return tuple(sum(stage == one for stage, _ in units) for one in stages)


def hybrid_patch(units: tuple[int, ...], kernel: int) -> int:
    """Pixels that a patch of so many of a ResNet's pixels covers."""
    return kernel * 4 * 2 ** max(0, len(units) - 1)
