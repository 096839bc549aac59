"""What this computer is asked to do differently for the sake of speed."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # malloc.h of glibc


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
