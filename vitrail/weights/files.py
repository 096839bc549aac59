"""Files of tensors, perhaps from a stranger: reading one runs no code, and takes no more memory than it has bytes."""

import json
import math
import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from vitrail.errors import AGAIN, InputError
from vitrail.files import make_folder, read_json, whole
from vitrail.weights.pickles import check_pickles, more_than_weights

TYPES = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
FLOATS = frozenset(TYPES.values())
ALL_TYPES = {**TYPES, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "I8": torch.int8, "BOOL": torch.bool}
SPREAD = 20  # how many times its own size an archive may unpack to: weights hardly shrink
HEADER = 10_000  # bytes that describe an array, at most
NESTED = ("model", "state_dict", "model_state_dict", "state_dict_ema", "model_ema", "teacher", "student", "params")
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "base_model.")


@dataclass(frozen=True)
class Lazy:
    """A tensor that is read when it is asked for."""

    name: str
    shape: tuple[int, ...]
    fetch: Callable[[], Tensor]

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> "Lazy":
        return cls(name, tuple(tensor.shape), lambda: tensor)

    def read(self) -> Tensor:
        return self.fetch()

    def numbers(self) -> Tensor:
        """As weights have to be."""
        tensor = self.fetch()
        if tensor.dtype not in FLOATS:
            raise InputError(
                f"{self.name!r} does not hold floating-point numbers, but {tensor.dtype}; is it quantized?"
            )
        return tensor


Tensors = Mapping[str, Lazy]


def read_tensors(path: Path) -> dict[str, Lazy]:
    """The tensors of a file by their names, whatever kind of file it is: its first bytes say, not its name."""
    return _shorter(_read(path))


def _read(path: Path) -> dict[str, Lazy]:
    start = _start(path)
    if _zipped(path):
        with _archive(path) as archive:
            arrays = any(name.endswith(".npy") for name in archive.namelist())
            return _npz(path, archive) if arrays else _pickled(path, archive)
    if path.suffix.lower() == ".npz":
        raise InputError(f"{str(path)!r} is damaged or not an npz archive; {AGAIN}.")
    if len(start) >= 9 and start[8:9] == b"{":  # noqa: PLR2004  # the header of safetensors, behind its length
        return _safetensors(path)
    if start[:1] == b"\x80":
        return _pickled(path, None)
    known = "safetensors, npz, or what torch.save writes"
    raise InputError(f"{str(path)!r} is damaged or no file of weights ({known}); {AGAIN}.")


def read_shards(index: Path) -> dict[str, Lazy]:
    """The tensors of several files beside an index that says which is where."""
    about = read_json(index)
    shards = about.get("weight_map") if isinstance(about, dict) else None
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise InputError(f"{str(index)!r} does not say where its tensors are (weight_map); {AGAIN}.")
    tensors: dict[str, Lazy] = {}
    for name in sorted(set(shards.values())):
        if Path(name).name != name:
            raise InputError(f"{str(index)!r} names {name!r}, a file outside its folder, which is not read.")
        tensors |= read_tensors(index.parent / name)
    missing = sorted(shards.keys() - tensors.keys())
    if missing:
        raise InputError(f"{str(index)!r} names {listed(missing)}, not in any of its files; {AGAIN}.")
    return tensors


def json_table(path: Path) -> dict[str, Any]:
    """A table from a file, empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not valid JSON: {error}; mend it, or take it away.") from None
    if not isinstance(content, dict):
        raise InputError(f"{str(path)!r} is not a table of fields; mend it, or take it away.")
    return content


def listed(names: list[str], most: int = 8) -> str:
    """Some names in a sentence; how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def _start(path: Path) -> bytes:
    if not path.is_file():
        raise InputError(f"{str(path)!r} is not there, or no file; check the path.")
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if not start:
        raise InputError(f"{str(path)!r} is empty; {AGAIN}.")
    return start


def _safetensors(path: Path) -> dict[str, Lazy]:
    """Checked by the library; the tensors are then read straight into memory of their own, not through a mapping of the
    whole file, which would count twice.
    """
    try:
        with safe_open(path, framework="pt"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is damaged or not safetensors ({_first(error)}); {AGAIN}.") from None
    header.pop("__metadata__", None)
    return {
        name: Lazy(
            name,
            tuple(entry["shape"]),
            partial(_stored, path, 8 + length + entry["data_offsets"][0], tuple(entry["shape"]), entry["dtype"]),
        )
        for name, entry in header.items()
    }


def _stored(path: Path, offset: int, shape: tuple[int, ...], kind: str) -> Tensor:
    dtype = ALL_TYPES.get(kind)
    if dtype is None:
        raise InputError(f"{str(path)!r} holds numbers of type {kind}, which are not read here.")
    tensor = torch.empty(shape, dtype=dtype)
    with path.open("rb", buffering=0) as file:
        file.seek(offset)
        room = memoryview(tensor.view(-1).view(torch.uint8).numpy().data) if tensor.numel() else memoryview(b"")
        done = 0
        while done < len(room):
            count = file.readinto(room[done:])
            if not count:
                raise InputError(f"{str(path)!r} ended while it was read; {AGAIN}.")
            done += count
    return tensor


def _zipped(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile as error:
        raise InputError(f"{str(path)!r} is a damaged archive ({_first(error)}); {AGAIN}.") from None


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        archive = zipfile.ZipFile(path)
        size, unpacked = path.stat().st_size, sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{str(path)!r} is a damaged archive ({_first(error)}); {AGAIN}.") from None
    if unpacked > SPREAD * size:
        raise InputError(
            f"{str(path)!r} unpacks to {unpacked / size:,.0f} times its size, as no weights do; it is not opened."
        )
    return archive


def _npz(path: Path, archive: zipfile.ZipFile) -> dict[str, Lazy]:
    tensors = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        try:
            with archive.open(entry) as file:
                shape, dtype, header = _array_header(file)
        except Exception as error:  # noqa: BLE001  # a damaged archive may fail in any way, and so may its headers
            raise InputError(f"{str(path)!r}: {name!r} is damaged ({_first(error)}); {AGAIN}.") from None
        if dtype.hasobject:
            raise InputError(
                f"{str(path)!r}: {name!r} holds pickled Python objects, which could run code; it is not opened."
            )
        if math.prod(shape) * dtype.itemsize + header != entry.file_size:
            raise InputError(f"{str(path)!r}: {name!r} does not hold as many numbers as it says; {AGAIN}.")
        tensors[name] = Lazy(name, shape, partial(_array, path, entry.filename))
    return tensors


def _array_header(file: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}.get(version[0])
    if read is None:
        raise ValueError(f"version {version[0]} of the format")
    shape, _, dtype = read(file, max_header_size=HEADER)
    if any(side < 0 for side in shape):
        raise ValueError("a side is negative")
    return shape, dtype, file.tell()


def _array(path: Path, entry: str) -> Tensor:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as file:
            array = np.lib.format.read_array(file, allow_pickle=False, max_header_size=HEADER)
    except Exception as error:  # noqa: BLE001
        raise InputError(f"{str(path)!r}: {entry!r} is damaged ({_first(error)}); {AGAIN}.") from None
    if array.dtype == np.dtype("V2"):  # which is how numpy writes bfloat16
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{str(path)!r}: {entry!r} does not hold floating-point numbers, but {array.dtype}.")
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)))


def _pickled(path: Path, archive: zipfile.ZipFile | None) -> dict[str, Lazy]:
    """What torch.save wrote, which is a pickle: read by torch's own reader that knows tensors and nothing else."""
    size = path.stat().st_size
    if archive is not None and any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
        raise InputError(f"{str(path)!r} is a compressed archive, as torch.save never writes; it is not opened.")
    try:
        check_pickles(path, archive, size)
        with warnings.catch_warnings(), torch.serialization.safe_globals([Namespace]):
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=archive is not None)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001  # a stranger's pickle may fail in any way
        if "GLOBAL" in str(error) or "WeightsUnpickler" in str(error):
            named = re.search(r"GLOBAL ([\w.]+)", str(error))
            raise more_than_weights(path, named[1] if named else "more than tensors") from None
        raise InputError(f"{str(path)!r} is damaged or no file of weights ({_first(error)}); {AGAIN}.") from None
    tensors = dict(_tensors(content))
    _check_tensors(path, tensors, size)
    return {name: Lazy(name, tuple(tensor.shape), tensor.detach) for name, tensor in tensors.items()}


def _check_tensors(path: Path, tensors: dict[str, Tensor], size: int) -> None:
    """Tensors are what their file holds, and no more."""
    if not tensors:
        raise InputError(f"{str(path)!r} holds no tensors by name; save the model's state_dict().")
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise InputError(f"{str(path)!r}: {name!r} is not an array of numbers in memory; save the weights as such.")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise InputError(f"{str(path)!r}: {name!r} claims more numbers than the file holds for it; {AGAIN}.")
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) > 2 * size:  # some may be shared
        raise InputError(f"{str(path)!r} claims more numbers than it has bytes for; {AGAIN}.")


def _tensors(content: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a checkpoint, which may keep them under a name such as 'model'."""
    while isinstance(content, Mapping):
        inner = next((content[name] for name in NESTED if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            break
        content = inner
    if isinstance(content, Mapping):
        yield from (
            (name, value) for name, value in content.items() if isinstance(value, Tensor) and isinstance(name, str)
        )


def _shorter(tensors: dict[str, Lazy]) -> dict[str, Lazy]:
    """Without what a wrapper (of several devices, of a compiler, of a framework) put before every name."""
    for prefix in PREFIXES:
        if tensors and all(name.startswith(prefix) for name in tensors):
            return _shorter({name.removeprefix(prefix): lazy for name, lazy in tensors.items()})
    return tensors


def _first(error: Exception) -> str:
    """The first sentence of what another library says."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip() or type(error).__name__
    return re.split(r"(?<=\w)[.\n]\s", text.splitlines()[0])[0].strip().rstrip(".")[:160]


def write_tensors(path: Path, tensors: Mapping[str, Tensor], name: str, kinds: tuple[str, ...]) -> None:
    """Write a file of tensors, of the kind that its name says."""
    if path.suffix not in kinds:
        raise InputError(f"{str(path)!r} should end with {' or '.join(kinds)} for format={name!r}.")
    make_folder(path.parent)
    with whole(path) as aside:
        if path.suffix == ".npz":
            with aside.open("wb") as file:
                np.savez(file, **{key: _numpy(tensor) for key, tensor in tensors.items()})
        elif path.suffix == ".safetensors":
            save_file(dict(tensors), aside, metadata={"format": "pt"})
        else:
            torch.save(dict(tensors), aside)


def _numpy(tensor: Tensor) -> Any:
    """An array; bfloat16, which numpy does not know, as its two bytes."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view("V2")
    return tensor.numpy()
