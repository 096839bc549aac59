"""The report as a browser shows it."""

import json
import re

import pytest
import torch
from browser import BROKEN_WORDS
from corpus import write_bad, write_classes
from processes import vitrail

from vitrail.report.charts import nice, smoothed, thinned


@pytest.fixture(scope="module")
def run(once):
    """A run on a folder with everything in it: bad files, a leak, an odd name, a class too small."""
    return once("report", make_run) / "run"


def make_run(folder):
    counts = {"ant": 14, "bee <script>alert(1)</script>".replace("/", "|"): 14, "coral & sea": 14, "single": 1}
    write_classes(folder / "all", counts)
    same = folder / "all" / "ant"
    for number in range(6):
        (same / f"copy {number}.png").write_bytes((same / f"{number:03}.png").read_bytes())
    write_bad(folder / "all" / "ant")
    words = ["--epochs", "2", "--set", "data.bad=0.9", "--set", "data.test=0.5"]
    ran = vitrail("train", folder / "all", "--out", folder / "run", *words)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1440, "light"), (1440, "dark")])
def test_it_opens_without_a_complaint(opened, run, width, scheme):
    """No console message, no request, every picture drawn, nothing wider than the screen."""
    with opened(run / "report.html", viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        pictures = page.evaluate("[...document.images].map(i => [i.complete, i.naturalWidth])")
        assert pictures
        assert all(complete and size > 0 for complete, size in pictures)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (min(map(int, re.findall(r"\d+", light)[:3])) > 200) == (scheme == "light")
        hidden = "[...document.querySelectorAll('.whole, pre')].map(e => [e.scrollHeight - e.clientHeight, "
        hidden += "e.scrollWidth - e.clientWidth])"
        assert page.evaluate(hidden) == [[0, 0], [0, 0]]  # of the plan and of the command: they are there to be read
        assert page.locator("svg[role=img]").count() == 5
        assert page.locator("svg polyline").count() == 4
        assert page.evaluate(BROKEN_WORDS) == []
        assert page.locator("circle.best").count() == 1
        text = page.locator("main").inner_text()
    for word in (
        "Confusion",
        "Calibration",
        "The most confident mistakes",
        "Set aside",
        "In both parts",
        "--epochs 2",
        "torch",
    ):
        assert word in text, word
    assert "cut.jpg" in text
    assert "bee <script>" in text


def test_what_it_says_is_what_was_measured(run):
    page, scores = (run / "report.html").read_text(), json.loads((run / "scores.json").read_text())
    assert f"{scores['accuracy']:.2%}" in page
    assert page.count('class="behind"') == sum(
        count > 0 for down, row in enumerate(scores["confusion"]) for across, count in enumerate(row) if down != across
    )
    gallery, _, _ = page[page.index("The most confident mistakes") :].partition("</section>")
    assert gallery.count("<figure>") == min(24, scores["tested"] - scores["correct"])
    assert sum(map(sum, scores["confusion"])) == scores["tested"]
    assert "http" not in page.replace("http-equiv", "")


def test_the_pictures_behind_a_cell_are_shown_when_it_is_chosen(run, opened):
    with opened(run / "report.html") as page:
        link = page.locator("svg a").first
        behind = page.locator(link.get_attribute("href"))
        assert not behind.is_visible()
        link.click()
        assert behind.is_visible()
        assert behind.locator("img").count() > 0


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.4447, 0.6833), (2.1, 2.1), (-3, 250), (1e-7, 2e-3), (0, 0)])
def test_ticks_are_round_and_hold_the_numbers(low, high):
    ticks = nice(low, high)
    assert ticks[0] <= low + 1e-12
    assert ticks[-1] >= high - 1e-12
    assert 2 <= len(ticks) <= 7
    steps = torch.tensor(ticks, dtype=torch.float64).diff()
    torch.testing.assert_close(steps, steps[:1].expand_as(steps))


def test_a_smoothed_line_is_a_mean_of_neighbours():
    points = [(float(x), float(x % 3)) for x in range(10)]
    found = smoothed(points, 3)
    assert [x for x, _ in found] == [x for x, _ in points]
    for at, (_, y) in enumerate(found):
        around = [points[n][1] for n in range(max(0, at - 1), min(10, at + 2))]
        assert y == pytest.approx(sum(around) / len(around))
    assert smoothed(points, 1) == points


def test_long_lines_are_thinned_to_means():
    points = [(float(x), float(x % 2)) for x in range(10_000)]
    few = thinned(points)
    assert len(few) <= 400
    assert sum(y for _, y in few) / len(few) == pytest.approx(0.5)
