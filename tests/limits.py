"""A process that may take so much more memory than it has, and no more: what asks for more fails, at any moment."""

import resource
from contextlib import contextmanager
from functools import partial
from pathlib import Path

MB = 2**20


def limited(megabytes):
    """For ``Command(before=...)``: what it is given runs in the process before the command does."""
    return partial(_limit, megabytes)


@contextmanager
def limited_here(megabytes):
    """The same of this process, for a while."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + megabytes * MB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _mapped():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if "VmSize" in line)


def _limit(megabytes):
    resource.setrlimit(resource.RLIMIT_AS, (_mapped() + megabytes * MB,) * 2)
