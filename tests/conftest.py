"""What all tests share: one thread each, since they run side by side; fixed seeds; hypothesis without deadlines."""

import fcntl
import os
import sys
from contextlib import contextmanager

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it, and for the processes that tests start

import pytest
import torch
from browser import browser
from hypothesis import settings

settings.register_profile("vitrail", deadline=None, max_examples=25, derandomize=True, print_blob=True)
settings.load_profile("vitrail")


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """once(name, make): a folder that make(folder) filled, once for all workers; to be read, or copied, not changed."""

    def shared(name, make):
        root = tmp_path_factory.getbasetemp()
        folder = (root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root) / f"once-{name}"
        folder.mkdir(exist_ok=True)
        with (folder.parent / f"once-{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "made").exists():
                make(folder)
                (folder / "made").touch()
        return folder

    return shared


@pytest.fixture(scope="session")
def opened():
    """Opens pages in one browser, one after another, that must each end without a complaint and without a request."""
    with browser() as running:

        @contextmanager
        def open_page(path, **how):
            complaints, requests = [], []
            context = running.new_context(**{"viewport": {"width": 1440, "height": 900}, **how})
            page = context.new_page()
            page.on("console", lambda message: complaints.append(message.text))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: requests.append(request.url))
            page.goto(path.as_uri())
            yield page
            assert complaints == []
            assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
            context.close()

        yield open_page


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
