"""Names and layouts of other libraries as data: each line moves tensors there and back.

A layout is one einops pattern, read from left to right to write a file, and from right to left to read one.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from einops import rearrange
from torch import Tensor

from vitrail.errors import InputError
from vitrail.weights.files import Tensors, listed
from vitrail.weights.weights import owned

Parts = tuple[tuple[str, int], ...]  # names, and how many parts of the whole each holds


@dataclass(frozen=True)
class Move:
    """Some of our tensors, joined along their first axis, are some of theirs, joined likewise, in another layout."""

    ours: Parts
    theirs: Parts
    pattern: str = ""  # ours -> theirs
    sizes: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def one(cls, ours: str, theirs: str, pattern: str = "", **sizes: int) -> "Move":
        return cls(((ours, 1),), ((theirs, 1),), pattern, sizes)

    def read(self, tensors: Tensors) -> dict[str, Tensor]:
        """Theirs -> ours."""
        back = " -> ".join(reversed(self.pattern.split(" -> ")))
        return _cut(self.ours, [self._laid(tensors[name].numbers(), back, name) for name, _ in self.theirs])

    def write(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Ours -> theirs."""
        cut = _cut(self.theirs, [tensors[name] for name, _ in self.ours])
        return {name: self._laid(tensor, self.pattern, name) for name, tensor in cut.items()}

    def _laid(self, tensor: Tensor, pattern: str, name: str) -> Tensor:
        if not self.pattern:
            return tensor
        try:
            return rearrange(tensor, pattern, **self.sizes)
        except Exception:  # noqa: BLE001  # einops says much; the name and the shape are what helps
            shape = tuple(tensor.shape)
            raise InputError(f"{name!r} has shape {shape}, which does not fit the other tensors of the file.") from None


def both(ours: str, theirs: str, pattern: str = "") -> Iterator[Move]:
    """The weight and the bias of a linear map, or of a norm; the pattern is the weight's."""
    yield Move.one(f"{ours}.weight", f"{theirs}.weight", pattern)
    yield Move.one(f"{ours}.bias", f"{theirs}.bias")


def moved(
    path: str, form: str, moves: Iterable[Move], tensors: Tensors, *, strict: bool
) -> tuple[dict[str, Tensor], list[str]]:
    """Our tensors, and the names of theirs that have no place among them."""
    moves = list(moves)
    used = [theirs for move in moves for theirs, _ in move.theirs]
    missing, over = [name for name in used if name not in tensors], sorted(tensors.keys() - set(used))
    if missing:
        rest = f", and has {listed(over)} with no place in the model" if over else ""
        raise InputError(f"{path!r} is of {form} and lacks {listed(missing)}{rest}; it is another model, or damaged.")
    if over and strict:
        raise InputError(
            f"{path!r} has {listed(over)}, with no place in the model, whose answers would then be others; "
            f"leave them out with strict=False (--partial)."
        )
    state: dict[str, Tensor] = {}
    for move in moves:
        state |= owned(move.read(tensors))
    return state, over


def _cut(names: Parts, tensors: list[Tensor]) -> dict[str, Tensor]:
    if len(names) == len(tensors) == 1:
        return {names[0][0]: tensors[0]}
    joined = torch.cat(tensors) if len(tensors) > 1 else tensors[0]
    counts = [parts for _, parts in names]
    each, rest = divmod(len(joined), sum(counts))
    if rest:
        raise InputError(f"{names[0][0]!r} cannot be cut evenly from tensors of {len(joined)} rows.")
    cut = joined.split([each * parts for parts in counts])
    return {name: part for (name, _), part in zip(names, cut, strict=True)}
