"""How large and how quick the page of ``vitrail explain`` is: 37 x 37 patches, 12 layers of 12 heads.

.venv/bin/python bench/pages.py

A ViT-B/14 at 518 pixels with random weights, its queries made so much longer that its heads look at few patches, at
some, or nearly everywhere; noise for a picture, which no compression makes smaller. In headless Chromium: until the
page has opened, and for drawing all 144 heads anew when another patch is pointed at.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import vitrail as vt
from vitrail.lens import explain
from vitrail.report.explain import write_explanation

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

DRAW = """(() => {
    const times = [];
    for (let patch = 0; patch < 60; patch++) {
        const began = performance.now();
        state.query = 1 + 22 * patch;
        draw();
        times.push(performance.now() - began);
    }
    return times;
})()"""


def main() -> None:
    """Print a table."""
    from browser import browser  # type: ignore[import-not-found]

    print("| queries times | page, MB | shown elsewhere, mean / most | opens in, s | draws in, ms |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for times in (2, 6, 18):
        torch.manual_seed(0)
        model = vt.build("vit-b/16", patch=14, image=518, classes=10).eval()
        with torch.no_grad():
            for block in model.encoder:
                block.attention.f.query.weight.mul_(times)
        pixels = torch.randint(0, 256, (3, 518, 518), dtype=torch.uint8)
        found = explain(model, pixels[None].float() / 127.5 - 1, names=["attention"], steps=0)
        with tempfile.TemporaryDirectory() as folder, browser() as running:
            write_explanation(Path(folder), "large", pixels, found, labels=list("0123456789"), model="ViT-B/14")
            path = Path(folder) / "large.html"
            page = running.new_page(viewport={"width": 1440, "height": 900})
            began = time.perf_counter()
            page.goto(path.as_uri())
            page.wait_for_selector("body[data-ready=yes]")
            opened = time.perf_counter() - began
            draws = statistics.median(page.evaluate(DRAW))
            note = page.locator("#note").inner_text() if page.locator("#note").count() else "exact"
            fractions = " / ".join(word for word in note.split() if word.endswith("%"))
            print(
                f"| {times} | {path.stat().st_size / 1e6:.1f} | {fractions} | {opened:.1f} | {draws:.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
