"""Several processes as one training: PyTorch's launcher and DistributedDataParallel, and what they tell each other."""

import logging
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from io import BytesIO
from math import prod
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitrail.errors import InputError
from vitrail.files import scratch

T = TypeVar("T")
RANKS = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}  # as torchrun sets them, and of a process alone
PREFIX = ".vitrail-shared-"  # of a folder with what processes share, which ends with a process's number
LARGE = 2**20  # bytes of a tensor that processes share
PATIENCE = timedelta(hours=12)  # while one of them decodes the data; one that ends is known at once, by the launcher


@dataclass(frozen=True)
class World:
    """The process among all of the training: its rank, how many there are, and the device it computes on."""

    rank: int
    size: int
    device: torch.device
    local: int = 0  # its rank among those of this machine

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def once(self, make: Callable[[], T]) -> T:
        """What ``make`` gives, made by one process of each machine, whose large tensors the others map into memory."""
        if self.size == 1:
            return make()
        patient = dist.new_group(backend="gloo", timeout=PATIENCE)
        _clean()
        with TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=scratch()) as folder:
            mine: T | None = None
            parcel = None
            if not self.local:
                mine = make()
                parcel = _packed(mine, Path(folder))
            parcels: list[Any] = [None] * self.size
            dist.all_gather_object(parcels, parcel, group=patient)
            theirs = parcels[self.rank - self.local]
            if theirs is not None:  # also the maker's own, whose copy in memory is then free
                mine = _Unpickler(BytesIO(theirs)).load()
            dist.barrier(group=patient)  # before the files lose their names
        return make() if mine is None else mine

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as it is trained: gradients averaged over the processes, if there are several."""
        if self.size == 1:
            return model
        config = getattr(model, "config", None)
        # A convolution's gradient may lie in memory otherwise than its weights: a copy, where PyTorch sees a mistake.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        skipped = bool(getattr(config, "layer_drop", 0))  # each process drops layers of its own
        return DistributedDataParallel(model, forward_sync_buffers=False, find_unused_parameters=skipped)

    def sums(self, *values: float) -> list[float]:
        """The sum of each number over the processes."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, device=self.device, dtype=torch.float32)
        dist.all_reduce(tensor)
        return tensor.tolist()

    def average(self, buffers: Iterable[Tensor]) -> None:
        """Average what the processes gather beside the gradients, such as the statistics of batch norm."""
        floats = [buffer for buffer in buffers if buffer.is_floating_point()] if self.size > 1 else []
        if floats:
            flat = torch.cat([buffer.flatten() for buffer in floats])
            dist.all_reduce(flat)
            for buffer, part in zip(floats, (flat / self.size).split([b.numel() for b in floats]), strict=True):
                buffer.copy_(part.view_as(buffer))

    def same(self, value: Any) -> Any:
        """What the first process has, in all."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, device=self.device)
        return box[0]

    def every(self, value: T) -> list[T]:
        """What each process has, in all."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def gathered(self, part: Tensor, total: int) -> Tensor:
        """Rows r, r + size, r + 2 size, ... of each process r, put together again: (total, ...)."""
        if self.size == 1:
            return part
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, part.cpu())
        whole = parts[0].new_empty((total, *parts[0].shape[1:]))
        for rank, rows in enumerate(parts):
            if len(rows):  # none, with fewer rows than processes
                whole[rank :: self.size] = rows
        return whole


class _Pickler(pickle.Pickler):
    """Tensors go into files of a folder, for other processes to map."""

    def __init__(self, file: BytesIO, folder: Path) -> None:
        super().__init__(file)
        self.folder = folder
        self.written: dict[int, tuple[Tensor, Any]] = {}  # by id, of tensors that are kept alive by being here

    def persistent_id(self, thing: Any) -> tuple[str, tuple[int, ...], torch.dtype] | None:
        if not isinstance(thing, Tensor) or thing.numel() * thing.element_size() < LARGE:
            return None
        if id(thing) in self.written:  # two parts of one store
            return self.written[id(thing)][1]
        path = self.folder / str(len(self.written))
        with path.open("wb") as file:
            for rows in thing.detach().split(max(1, LARGE * len(thing) // (thing.numel() * thing.element_size()))):
                file.write(rows.contiguous().view(-1).view(torch.uint8).numpy().data)
        self.written[id(thing)] = (thing, (str(path), tuple(thing.shape), thing.dtype))
        return self.written[id(thing)][1]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self.mapped: dict[str, Tensor] = {}

    def persistent_load(self, place: Any) -> Tensor:
        path, shape, dtype = place
        if path not in self.mapped:
            data = np.memmap(path, np.uint8, "c", shape=(prod(shape) * dtype.itemsize,))  # changes stay in this process
            self.mapped[path] = torch.from_numpy(data).view(dtype).view(shape)
        return self.mapped[path]


def _clean() -> None:
    """Remove what a process left that was killed while it wrote for others."""
    for folder in scratch().glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        with suppress(OSError):
            if pid.isdecimal() and not _alive(int(pid)):
                rmtree(folder)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)  # one of another user's is alive
    return True


def _packed(thing: Any, folder: Path) -> bytes | None:
    """A thing as bytes, its large tensors as files of a folder; None where it cannot be packed."""
    buffer = BytesIO()
    try:
        _Pickler(buffer, folder).dump(thing)
    except (pickle.PicklingError, AttributeError, TypeError):  # as of a class that only this process knows
        return None
    return buffer.getvalue()


ALONE = World(0, 1, torch.device("cpu"))


@contextmanager
def world(device: str = "auto") -> Iterator[World]:
    """The processes of this training, which a launcher such as torchrun started; or this one alone."""
    rank, size, local = (int(os.environ.get(name, default)) for name, default in RANKS.items())
    here = _device(device, local, alone=size == 1)
    if size == 1:
        yield World(0, 1, here)
        return
    if here.type == "cuda":
        torch.cuda.set_device(here)
    dist.init_process_group("nccl" if here.type == "cuda" else "gloo")
    try:
        yield World(rank, size, here, local)
    finally:
        dist.destroy_process_group()


def launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def launch(processes: int, arguments: Sequence[str], command: str) -> int:
    """Run ``python -m vitrail`` with these arguments in several processes, for a command; its exit status.

    Each gets a part of the cores: with more threads than cores, two processes are several times slower than one.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException  # noqa: PLC0415
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError  # noqa: PLC0415
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch  # noqa: PLC0415

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes speak for themselves
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    os.environ["VITRAIL_PARENT"], os.environ["VITRAIL_COMMAND"] = str(os.getpid()), command
    config = LaunchConfig(
        1, 1, processes, run_id="vitrail", rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0
    )
    try:
        elastic_launch(config, sys.executable)("-m", "vitrail", *arguments)
    except ChildFailedError as error:
        return max(1, *(failure.exitcode for failure in error.failures.values()))
    except SignalException:  # which the processes got as well
        return 130
    return 0


def _device(name: str, local: int, *, alone: bool) -> torch.device:
    has = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next(device for device in ("cuda", "mps", "cpu") if has[device] and (alone or device != "mps"))
    if not has[name]:
        raise InputError(f"train.device={name!r} is not on this machine; choose {', '.join(d for d in has if has[d])}.")
    if name == "mps" and not alone:
        raise InputError("train.device='mps' is for one process alone; leave out --processes.")
    if name == "cuda" and local >= torch.cuda.device_count():
        raise InputError(f"there are {torch.cuda.device_count()} GPUs, one for a process; choose fewer --processes.")
    return torch.device(name, local) if name == "cuda" else torch.device(name)
