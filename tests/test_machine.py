"""The allocator's setting, in a process of its own since it lasts."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitrail import machine

SCRIPT = """
import resource, sys, torch
from vitrail.machine import keep_memory

if "keep" in sys.argv:
    assert keep_memory() is True

def use():
    # Larger than the most that glibc ever takes from its heap (32 MiB), so that by default each is mapped anew.
    blocks = [torch.ones(10 << 20) for _ in range(3)]
    return sum(block[0].item() for block in blocks)

for _ in range(20):  # the heap grows until what is freed always holds what is asked for
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is glibc's")
def test_memory_is_kept():
    def faults(*words):
        ran = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, check=True)
        return int(ran.stdout)

    assert faults("keep") < faults() / 10


def test_memory_is_what_the_container_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    free = machine.available_memory()
    assert free > 2**28
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert machine.available_memory() > free / 2
    (tmp_path / "memory.max").write_text("123000\n")
    assert machine.available_memory() == 122_000
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 300\nactive_file 20\n")  # which can be had again
    assert machine.available_memory() == 122_320
    (tmp_path / "memory.stat").unlink()
    (tmp_path / "memory.current").write_text("124000\n")
    assert machine.available_memory() == 0
    (tmp_path / "memory.max").unlink()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("5000")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("4000")
    assert machine.available_memory() == 1_000


def test_bf16_is_multiplied_where_the_processor_says_so():
    """Linux's own list of what the processor has."""
    flags = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not flags.is_file():
        pytest.skip("no list of instructions here")
    words = set(flags.read_text().split())
    assert machine.multiplies_bf16() == bool(words & {"avx512_bf16", "amx_bf16"})


def test_threads_are_fewer_for_a_while():
    before = torch.get_num_threads()
    with machine.threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before

    def failing():
        with machine.threads(1):
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert torch.get_num_threads() == before
    with machine.threads(before + 5):
        assert torch.get_num_threads() == before


def test_shapes_are_forgotten_unless_the_user_says_how_many(monkeypatch):
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    for given, expected in ((None, "128"), ("7", "7")):
        monkeypatch.delenv(name, raising=False)
        if given is not None:
            monkeypatch.setenv(name, given)
        machine.forget_shapes()
        assert os.environ[name] == expected
    monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_wait_briefly_on_the_command_line_unless_the_environment_says_how(given, expected):
    """And before torch is loaded, which reads it once."""
    script = """
import os, sys
from vitrail.cli import main
assert "torch" not in sys.modules
sys.argv = ["vitrail", "models", "vit-ti/16"]
try:
    main()
finally:
    print(os.environ.get("GOMP_SPINCOUNT"))
"""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    ran = subprocess.run(
        [sys.executable, "-c", script], env={**environment, **given}, capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == str(expected)
