"""What all tests share: one thread each, since they run side by side; fixed seeds; hypothesis without deadlines."""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it, and for the processes that tests start

import pytest
import torch
from hypothesis import settings

settings.register_profile("vitrail", deadline=None, max_examples=25, derandomize=True, print_blob=True)
settings.load_profile("vitrail")


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def invoke(monkeypatch, capsys):
    """Exit status, stdout and stderr of ``vitrail WORDS`` in this process: for what ends before any work is done."""

    def run(*words):
        from vitrail.cli import main

        monkeypatch.setattr(sys, "argv", ["vitrail", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as done:
            status = done.code or 0
        return status, *capsys.readouterr()

    return run
