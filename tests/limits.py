"""A process that may take so much more memory than it has, and no more: what asks for more fails, at any moment."""

import resource
from functools import partial
from pathlib import Path

MB = 2**20


def limited(megabytes):
    """For ``Command(before=...)``: what it is given runs in the process before the command does."""
    return partial(_limit, megabytes)


def _limit(megabytes):
    mapped = next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmSize" in line
    )
    resource.setrlimit(resource.RLIMIT_AS, (mapped * 1024 + megabytes * MB,) * 2)
