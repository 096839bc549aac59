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


# The words on a page that go over the end of a line.
BROKEN_WORDS = """
  [...document.querySelectorAll("td, th, h1, h2, p, span, b")].filter((one) => !one.children.length && one.firstChild)
    .flatMap((one) => [...one.firstChild.textContent.matchAll(/[a-z]{3,14}/g)].filter((word) => {
      const range = document.createRange();
      range.setStart(one.firstChild, word.index);
      range.setEnd(one.firstChild, word.index + word[0].length);
      return range.getClientRects().length > 1;
    }).map((word) => word[0]))
"""
