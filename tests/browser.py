"""Headless Chromium, Debian's own, driven by Playwright."""

import os
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)


@contextmanager
def browser():
    """A browser; without one the test is skipped, but where one is required (VITRAIL_BROWSER=required) it fails."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        missing = "there is no Chromium; `make test` installs Debian's where it may"
        pytest.fail(missing) if os.environ.get("VITRAIL_BROWSER") == "required" else pytest.skip(missing)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()
