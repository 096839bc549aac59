"""The allocator's setting, in a process of its own since it lasts."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from vitrail.machine import keep_memory

if "keep" in sys.argv:
    assert keep_memory() is True

def use():
    # Several blocks alive at once, all freed: what glibc trims from the top of its heap by default.
    blocks = [torch.ones(1 << 21) for _ in range(24)]
    return sum(block[0].item() for block in blocks)

for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_memory_is_kept():
    def faults(*words):
        ran = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
        return int(ran.stdout)

    assert faults("keep") < faults() / 10
