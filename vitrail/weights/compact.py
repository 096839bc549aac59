"""Matrices in few bits: each number is one of a few, found by k-means, and the rare far ones stay as they are.

As GOBO has it (Zadeh et al. 2020): a file of 4 bits is an eighth of one of 32. Of a matrix that is mostly zeros, such
as a lottery ticket's, the others alone are written, and a bit for each number says which they are. What is read back
are floating-point numbers again, those that were meant, so that a model is the same before and after it is saved.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import AGAIN, InputError
from vitrail.weights.files import Lazy

MARK = "#"  # between a tensor's name and that of a part of it
PARTS = ("codes", "values", "shape", "far", "places")
SPARSE = ("there", "rest", "whole")
LEAST = 512  # numbers of a matrix that is worth it
FAR = 4.0  # standard deviations from the mean, beyond which a number stays as it is
PASSES = 30  # of k-means


def packs(name: str, tensor: Tensor) -> bool:
    """Whether a tensor is one of those that are made few bits: a matrix, of some size."""
    return tensor.ndim >= 2 and tensor.numel() >= LEAST and tensor.is_floating_point() and MARK not in name  # noqa: PLR2004


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """The tensor as it is when it has been packed and read again."""
    return unpack(pack(tensor, bits))


def pack(tensor: Tensor, bits: int) -> dict[str, Tensor]:
    """A tensor as the numbers that its entries are near (values), which of them each is (codes, so many bits each), and
    what is far from all.
    """
    if not 1 <= bits <= 8:  # noqa: PLR2004
        raise InputError(f"bits={bits} does not fit; it should be from 1 to 8.")
    x = tensor.detach().float().flatten()
    away = (x - x.mean()).abs() > FAR * x.std().clamp(min=1e-30)
    values = _means(x[~away] if bool((~away).any()) else x, 2**bits).to(tensor.dtype)
    codes = _nearest(x, values.float())
    places = away.nonzero()[:, 0]
    return {
        "codes": torch.from_numpy(_packed(codes.numpy().astype(np.uint8), bits)),
        "values": values,
        "shape": torch.tensor([*tensor.shape, bits]),
        "far": tensor.detach().flatten()[away],
        "places": places.int(),
    }


def unpack(parts: Mapping[str, Tensor]) -> Tensor:
    """The tensor that was packed, each entry as near as it was kept."""
    *shape, bits = parts["shape"].tolist()
    count = prod(shape)
    codes = torch.from_numpy(_unpacked(parts["codes"].numpy(), bits, count).astype(np.int64))
    x = parts["values"][codes]
    x[parts["places"].long()] = parts["far"]
    return x.view(shape)


def packed(state: Mapping[str, Tensor], bits: int | None) -> dict[str, Tensor]:
    """All tensors of a file, those that are worth it in few bits, or without their zeros."""
    small: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if packs(name, tensor) and 2 * int((tensor != 0).sum()) <= tensor.numel():
            sparse = without_zeros(tensor)
            rest = sparse.pop("rest")
            few = {"rest": rest} if bits is None or len(rest) < LEAST else pack(rest, bits)
            small |= {f"{name}{MARK}{part}": one for part, one in {**sparse, **few}.items()}
        elif bits is not None and packs(name, tensor):
            small |= {f"{name}{MARK}{part}": one for part, one in pack(tensor, bits).items()}
        else:
            small[name] = tensor
    return small


def without_zeros(tensor: Tensor) -> dict[str, Tensor]:
    """A tensor as what it holds beside zeros (rest), and where that is (there, a bit for each number)."""
    there = tensor.detach().flatten() != 0
    return {
        "there": torch.from_numpy(np.packbits(there.numpy())),
        "rest": tensor.detach().flatten()[there],
        "whole": torch.tensor(tensor.shape),
    }


def with_zeros(there: Tensor, rest: Tensor, whole: Tensor) -> Tensor:
    """The tensor that was written without them."""
    shape = whole.tolist()
    x = rest.new_zeros(prod(shape))
    x[torch.from_numpy(np.unpackbits(there.numpy())[: len(x)].astype(bool))] = rest
    return x.view(shape)


def unpacked(tensors: Mapping[str, Lazy], path: str) -> dict[str, Lazy]:
    """The tensors of a file as they were before, whether they were packed or not."""
    plain = {name: lazy for name, lazy in tensors.items() if MARK not in name}
    for name in dict.fromkeys(name.split(MARK)[0] for name in tensors if MARK in name):
        parts = {part: tensors[f"{name}{MARK}{part}"] for part in PARTS + SPARSE if f"{name}{MARK}{part}" in tensors}
        sparse = "there" in parts
        needed = {*(SPARSE if sparse else ()), *(PARTS if "codes" in parts else () if sparse else PARTS)}
        if needed - parts.keys() - ({"rest"} if "codes" in parts else set()):
            raise InputError(f"{path!r} lacks parts of {name!r}; {AGAIN}.")
        shape = _dense(parts, path) if sparse else _shape(parts, path)
        plain[name] = Lazy(name, tuple(shape), lambda parts=parts, name=name: _read(parts, name, path))  # type: ignore[misc]
    return plain


def _read(parts: Mapping[str, Lazy], name: str, path: str) -> Tensor:
    try:
        read = {part: lazy.read() for part, lazy in parts.items()}
        few = unpack(read) if "codes" in read else None
        return few if few is not None and "there" not in read else _sparse(read, few)
    except (RuntimeError, IndexError, ValueError, TypeError):
        raise InputError(f"{path!r} has parts of {name!r} that do not fit together; {AGAIN}.") from None


def _sparse(read: Mapping[str, Tensor], few: Tensor | None) -> Tensor:
    return with_zeros(read["there"], read["rest"] if few is None else few, read["whole"])


def _dense(parts: Mapping[str, Lazy], path: str) -> list[int]:
    shape: Any = parts["whole"].read().tolist()
    whole = isinstance(shape, list) and shape and all(isinstance(one, int) and one > 0 for one in shape)
    if not whole or prod(shape) > 8 * prod(parts["there"].shape):
        raise InputError(f"{path!r} has a packed tensor of a shape that cannot be; {AGAIN}.")
    return shape


def _shape(parts: Mapping[str, Lazy], path: str) -> list[int]:
    shape: Any = parts["shape"].read().tolist()
    whole = isinstance(shape, list) and len(shape) > 1 and all(isinstance(one, int) and one > 0 for one in shape)
    room = prod(parts["codes"].shape) * 8
    if not whole or shape[-1] > 8 or prod(shape) > room:  # noqa: PLR2004
        raise InputError(f"{path!r} has a packed tensor of a shape that cannot be; {AGAIN}.")
    return shape[:-1]


def _means(x: Tensor, count: int) -> Tensor:
    """So many numbers that those given are near, in order: k-means along a line (Lloyd), from even parts of them."""
    ordered = x.sort().values
    distinct = ordered.unique_consecutive()
    if len(distinct) <= count:  # as of a tensor that was packed before
        return torch.cat([distinct, distinct[-1:].expand(count - len(distinct))])
    places = ((torch.arange(count) + 0.5) / count * len(ordered)).long().clamp(max=len(ordered) - 1)
    values = ordered[places].clone()
    for _ in range(PASSES):
        ends = torch.searchsorted(ordered, (values[1:] + values[:-1]) / 2)
        starts = torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), len(ordered))])
        totals = torch.cat([ordered.new_zeros(1).double(), ordered.double().cumsum(0)])
        sums, counts = totals[starts[1:]] - totals[starts[:-1]], starts.diff()
        moved = torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), values)
        if torch.equal(moved, values):
            break
        values = moved
    return values.sort().values


def _nearest(x: Tensor, values: Tensor) -> Tensor:
    """Which of some numbers, in order, each is nearest to."""
    return torch.bucketize(x, (values[1:] + values[:-1]) / 2)


def _packed(codes: Any, bits: int) -> Any:
    """Numbers below 2^bits, side by side in bytes."""
    each = (codes[:, None] >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(each.reshape(-1).astype(np.uint8))


def _unpacked(data: Any, bits: int, count: int) -> Any:
    each = np.unpackbits(data)[: count * bits].reshape(count, bits)
    return (each << np.arange(bits, dtype=np.uint8)).sum(1)
