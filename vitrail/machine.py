"""What this computer is asked to do differently."""

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # malloc.h of glibc
CGROUP = Path("/sys/fs/cgroup")
_PR_SET_PDEATHSIG = 1  # prctl.h of Linux


def keep_memory() -> bool:
    """Have the C library keep the memory it is given back, for the life of the process; False where it cannot.

    glibc returns large blocks to the system and gets them again, page by page, at the next step: 20,000 to 37,000 page
    faults in each training step of a small ViT on a CPU (bench/README.md).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    settings = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: 2**31 - 1, _M_ARENA_MAX: 1}
    return sum(mallopt(name, value) for name, value in settings.items()) == len(settings)


def available_memory() -> int | None:
    """Bytes that this process may still take: what the machine has free, within what its container allows (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return None
    return max(0, min([free, *_container()]))


def _container() -> list[int]:
    """What control groups leave, of version 2 and of version 1."""
    left = []
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):  # no such group, or no limit: "max"
            left.append(int((CGROUP / limit).read_text()) - int((CGROUP / used).read_text()))
    return left


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
