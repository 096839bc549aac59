"""What this computer is asked to do differently."""

import ctypes
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vitrail.errors import InputError

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8  # malloc.h of glibc
LARGE = 2**20  # bytes of a block that is given back by itself
CGROUP = Path("/sys/fs/cgroup")
_PR_SET_PDEATHSIG = 1  # prctl.h of Linux


def keep_memory() -> bool:
    """Have the C library keep the memory it is given back, for the life of the process; False where it cannot.

    glibc returns large blocks to the system and gets them again, page by page, at the next step: 20,000 to 37,000 page
    faults in each training step of a small ViT on a CPU (bench/README.md).
    """
    return _mallopt({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_ARENA_MAX: 1})


def return_memory() -> bool:
    """Have the C library give large blocks back as soon as they are free, however long that takes; False where it
    cannot.

    For what has little memory: blocks that come and go leave holes between them, which took 2.4 times the memory of a
    training whose blocks are computed again, and three times with ``keep_memory`` (bench/README.md).
    """
    return _mallopt({_M_MMAP_THRESHOLD: LARGE, _M_TRIM_THRESHOLD: LARGE})


def forget_shapes() -> None:
    """Have oneDNN keep few of the programs that it makes for each shape of matrices; before the first of them is made.

    Batches of sentences have ever new shapes, of which it keeps a thousand otherwise: processes grew to 3 GB
    (bench/README.md).
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")


def wait_briefly() -> None:
    """Have OpenMP's threads wait for each other busily for a moment only, unless the environment says how; before torch
    is loaded.

    Beside another program on one of two cores, training on digits goes through 58 pictures a second where they wait as
    long as GNU's OpenMP has it, and through 1,100 so; with nothing beside it through 3,400 and 3,000 (bench/README.md).
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _mallopt(settings: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return sum(mallopt(name, value) for name, value in settings.items()) == len(settings)


def multiplies_bf16() -> bool:
    """Whether the processor has instructions that multiply bf16, without which bf16 is slower than float32 on it."""
    import torch  # noqa: PLC0415

    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads at most: where little is computed at a time, waiting for others costs more."""
    import torch  # noqa: PLC0415

    before = torch.get_num_threads()
    if count >= before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def available_memory() -> int | None:
    """Bytes that this process may still take: what the machine has free, within what its container allows (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    return max(0, min([free, *_container()]))


def check_room(what: str, needed: int, way_out: str) -> None:
    """Refuse what this machine has no memory for, before it is taken."""
    there = available_memory()
    if there is not None and needed > there:
        raise InputError(f"{what} take {needed / 2**30:,.1f} GB, and {there / 2**30:,.1f} are free here; {way_out}.")


def _container() -> list[int]:
    """What control groups leave, of version 2 and of version 1: of this process's own, and of those around it."""
    left = []
    for root, limit, used in (
        (CGROUP, "memory.max", "memory.current"),
        (CGROUP / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for group in _groups(root):
            with suppress(OSError, ValueError):  # no such group, or no limit: "max"
                most, taken = (int((group / name).read_text()) for name in (limit, used))
                left.append(most - taken + _cached(group))
    return left


def _groups(root: Path) -> list[Path]:
    """A control group and all that it is in, up to the root."""
    own = Path()
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds == "" or "memory" in kinds.split(","):
                own = Path(path.lstrip("/"))
    return [root / one for one in (own, *own.parents)]


def _cached(group: Path) -> int:
    """Bytes of files that are in memory, and leave it when it is needed."""
    with suppress(OSError, ValueError):
        lines = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        return sum(int(value) for name, value in lines if name in ("inactive_file", "active_file"))
    return 0


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """What this machine computes with, as it calls it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def die_with_parent() -> None:
    """Have the system end this process when the launcher that started it ends, in whatever way (Linux)."""
    parent = os.environ.get("VITRAIL_PARENT")
    if parent is None:
        return
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError, TypeError):
        return
    if os.getppid() != int(parent):  # it ended before it could be asked
        os._exit(1)
