"""The pages of explain, figures and walk as a browser shows them, by mouse, touch and keyboard."""

import json
import re

import pytest
import torch
from browser import BROKEN_WORDS
from copying import randomise

import vitrail as vt
from vitrail.core import CAUSAL
from vitrail.lens import explain
from vitrail.lens.walkthrough import example, walk
from vitrail.report.explain import write_explanation, write_index
from vitrail.report.walk import write_walk

LABELS = ("ant", "bee <script>alert(1)</script>", "coral & sea", "dog")
SHAPE = {"image": (24, 40), "patch": 8, "width": 24, "depth": 3, "heads": 2, "hidden": 29, "classes": 4}
KINDS = {
    "class": {"registers": 2},
    "mean": {"pool": "mean"},
    "visual": {"stem": "resnet-small", "tokens": 5},
    "post": {"order": "post", "pool": "distilled"},
    "silent": {"kernel": "relu"},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An explanation of each kind of model in one folder, and what the models recorded."""
    folder = tmp_path_factory.mktemp("explained")
    found, facts = {}, {}
    for name, fields in KINDS.items():
        torch.manual_seed(0)
        model = randomise(vt.build("vit", **{**SHAPE, **fields})).eval()
        if name == "silent":  # the first head of the first layer looks at nothing: every score is below zero
            attention = model.encoder[0].attention.f
            for layer, value in ((attention.query, 1.0), (attention.key_value, -1.0)):
                layer.weight.data[:12], layer.bias.data[:12] = 0.0, value
        pixels = torch.randint(0, 256, (3, 24, 40), dtype=torch.uint8)
        found[name] = explain(model, pixels[None].float() / 127.5 - 1, steps=4)
        facts[name] = write_explanation(folder, name, pixels, found[name], labels=LABELS, model=model, title="a model")
    write_index(folder, facts)
    return folder, found


def test_a_head_that_looks_at_nothing_is_valid_json(written):
    def refuse(word):
        raise AssertionError(word)

    facts = json.loads((written[0] / "silent.json").read_text(), parse_constant=refuse)
    assert set(facts["attention"][0][0]) == {0.0}
    assert facts["distance"][0][0] is None
    assert all(value is not None for method in facts["methods"] for value in method["map"])


def settled(page):
    """What is said once the next frame is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.locator("#readout").inner_text()


def shown(value):
    return f"{100 * value:.{2 if 100 * value < 10 else 1}f}%"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_it_opens_without_a_complaint(opened, written, kind, width, scheme):
    with opened(written[0] / f"{kind}.html", viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        page.wait_for_selector("body[data-ready=yes]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".cell canvas").count() == 6
        assert page.locator(".method").count() == 4
        for chart in page.locator("svg[role=img]").all():  # lines that can be told apart without their colours
            dashes = [line.get_attribute("stroke-dasharray") for line in chart.locator("polyline").all()]
            assert len(set(dashes)) == len(dashes) == 5
        text = page.locator("main").inner_text()
    assert "bee <script>" in text
    assert ("no sum over the layers" in text) == (kind == "post")
    assert ("no distance to each other" in text) == (kind == "visual")


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_shows_at_first_is_what_the_json_says(opened, written, kind):
    folder, _ = written
    facts = json.loads((folder / f"{kind}.json").read_text())
    last = torch.tensor(facts["attention"][-1]).mean(0)
    prefix, across = len(facts["prefix"]), facts["grid"][1]
    with opened(folder / f"{kind}.html") as page:
        truest = max(facts["methods"], key=lambda one: one["gap"])
        most = max(truest["map"])
        at = truest["map"].index(most)
        place = f"strongest at patch {at // across + 1}, {at % across + 1}: "
        assert settled(page).startswith(f"{truest['name']}: {place if most > 0 else 'nowhere more than '}")
        assert page.locator(f"[data-method={truest['name']}]").get_attribute("aria-pressed") == "true"
        assert "each on its own scale" in page.locator("#from").inner_text()
        page.keyboard.press("c")
        said = settled(page)
        for one in facts["answers"]:
            assert one["label"] in page.locator("main").inner_text()
            assert f"{one['probability']:.2%}" in page.locator("main").inner_text()
        for one in facts["methods"]:
            assert f"gap {one['gap']:+.3f}" in page.locator(f"[data-method={one['name']}]").inner_text()
    assert facts["answering"]["name"] in said
    if kind != "visual":
        best = int(last[prefix:].argmax())
        expected = f"most to patch {best // across + 1}, {best % across + 1}: {shown(float(last[prefix + best]))}"
        assert expected in said
    for token, name in enumerate(facts["prefix"]):
        assert f"to the {name} token {shown(float(last[token]))}" in said


def test_pointing_at_a_patch_shows_where_it_looks(opened, written):
    """With the mouse, in every head, and the numbers are those that were recorded."""
    folder, found = written
    trace, tokens = found["class"].trace, found["class"].tokens
    with opened(folder / "class.html") as page:
        page.keyboard.press("c")
        before = settled(page)
        box = page.locator("#stage").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 3.5 / 5, box["y"] + box["height"] * 1.5 / 3)
        said = settled(page)
        assert said != before
        assert "from patch 2, 4" in said
        query = len(tokens.prefix) + 1 * 5 + 3
        mean = trace.pattern(2)[0].mean(0)[query]
        assert f": {shown(float(mean[3:].max()))}" in said
        page.locator(".cell").nth(1 * 2 + 1).click()  # layer 2, head 2
        row = trace.pattern(1)[0, 1, query]
        said = settled(page)
        assert said.startswith("Layer 2, head 2, from patch 2, 4")
        assert f": {shown(float(row[3:].max()))}" in said
        assert f"to the class token {shown(float(row[0]))}" in said
        page.locator(".cell").nth(1 * 2 + 1).click()
        assert "mean of the heads" in settled(page)


def test_every_key_changes_what_is_shown(opened, written):
    folder, _ = written
    with opened(folder / "class.html") as page:
        seen = [settled(page)]
        for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "[", ".", "m", "m", "c"):
            page.keyboard.press(key)
            seen.append(settled(page))
            assert seen[-1] != seen[-2], key
        assert "the class token" in seen[-1]
        page.keyboard.press("s")
        settled(page)
        assert page.locator("#shared").is_checked()
        page.keyboard.press("Space")
        page.wait_for_selector('body[data-layer="1"]', timeout=5000)
        page.keyboard.press("Space")
        assert page.locator("#play").inner_text() == "Play the layers"


def test_the_heading_says_what_it_is(opened, written, tmp_path):
    """The picture's name, the answer, and the true class where it is known; no word of it is broken on a phone."""
    _, found = written
    torch.manual_seed(0)
    model = randomise(vt.build("vit", **SHAPE, registers=2)).eval()
    pixels = torch.randint(0, 256, (3, 24, 40), dtype=torch.uint8)
    label = LABELS[found["class"].label]
    for truth, said in ((label, ", rightly"), ("some other class", "; in truth some other class"), (None, "")):
        write_explanation(
            tmp_path, "p", pixels, found["class"], labels=LABELS, model=model, title="m", source="p q.png", truth=truth
        )
        with opened(tmp_path / "p.html", viewport={"width": 390, "height": 800}) as page:
            heading = page.locator("h1").inner_text()
            assert heading.startswith(f"p q.png: {label}, ")
            assert heading.endswith(f"%{said}")
            assert page.evaluate(BROKEN_WORDS) == []


def test_by_touch(opened, written):
    folder, _ = written
    with opened(folder / "mean.html", viewport={"width": 390, "height": 800}, has_touch=True) as page:
        page.locator("#tokens button").first.tap()
        assert "the mean of the patches" in settled(page)
        box = page.locator("#stage").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 10, box["y"] + box["height"] * 5 / 6)
        assert "from patch 3, 1" in settled(page)
        page.locator("[data-method=rollout]").tap()
        assert settled(page).startswith("rollout: strongest at")
        page.locator("#tokens button").first.tap()
        assert "the mean of the patches" in settled(page)


def test_visual_tokens_are_mapped_back_to_the_picture(opened, written):
    """What one of them attends to, spread over the patches that the others are made of."""
    folder, found = written
    trace, tokens = found["visual"].trace, found["visual"].tokens
    with opened(folder / "visual.html") as page:
        page.locator("#tokens button").nth(3).click()  # class, then visual 1, 2, 3
        said = settled(page)
    weights = trace.pattern("encoder.2.attention")[0].mean(0)[3]
    values = tokens.on_patches(weights[None])[0].flatten()
    best = int(values.argmax())
    expected = f"from visual token 3: most to patch {best // 5 + 1}, {best % 5 + 1}: {shown(float(values[best]))}"
    assert expected in said


def test_the_index_of_several(opened, written):
    with opened(written[0] / "index.html") as page:
        assert page.locator("figure img").count() == len(KINDS)
        assert all(page.evaluate("[...document.images].map((image) => image.naturalWidth > 0)"))
        page.locator("figure a").first.click()
        page.wait_for_selector("body[data-ready=yes]")


def test_a_large_grid_stays_small_enough(opened, tmp_path):
    """37 x 37 patches, 12 layers of 12 heads of the usual width: below 25 MB, and what it shows is what it says."""
    torch.manual_seed(0)
    model = vt.build("vit", image=518, patch=14, width=48, depth=12, heads=12, head=64, hidden=48, classes=4).eval()
    with torch.no_grad():
        for block in model.encoder:
            block.attention.f.query.weight.mul_(4)
    pixels = torch.randint(0, 256, (3, 518, 518), dtype=torch.uint8)  # noise, which no PNG makes smaller
    found = explain(model, pixels[None].float() / 127.5 - 1, names=["attention"], steps=0)
    write_explanation(tmp_path, "large", pixels, found, labels=LABELS, model=model, title="a model")
    page_file = tmp_path / "large.html"
    assert page_file.stat().st_size <= 25_000_000
    with opened(page_file) as page:
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        before = settled(page)
        page.keyboard.press("ArrowRight")
        page.keyboard.press(".")
        said = settled(page)
        assert said != before
        assert "from patch 19, 19" in said
        kept = float(re.search(r"most to patch \d+, \d+: ([\d.]+)%", said)[1]) / 100
        row = found.trace.pattern(11)[0, 0, 1 + 18 * 37 + 18, 1:]
        assert kept == pytest.approx(float(row.max()), rel=0.2)


def test_walk_step_by_step(opened, tmp_path):
    """Keys go on, pointing tells what a number is made of, and the numbers are those of the steps."""
    steps = walk(*example(), mask=CAUSAL)
    write_walk(tmp_path / "walk.html", steps, "Attention & more")
    with opened(tmp_path / "walk.html") as page:
        for number, step in enumerate(steps):
            assert page.locator("#formula").get_attribute("title") == step.formula
            assert page.locator("#place").inner_text() == f"{number + 1} of {len(steps)}"
            table = page.locator(".numbers").last
            cells = [float(text.replace("∞", "inf")) for text in table.locator("td").all_inner_texts()]
            expected = step.values.flatten()
            torch.testing.assert_close(torch.tensor(cells), expected, atol=0.0051, rtol=0)
            page.keyboard.press("ArrowRight")
        page.locator("#steps button", has_text=re.compile("^s$")).click()
        page.locator(".numbers").last.locator("td").nth(4 * 2 + 1).hover()
        q, k = (next(step for step in steps if step.name == name).values for name in "qk")
        told = page.locator("#told").inner_text()
        assert told.startswith("s[3, 2] (token 3 → token 2) = ")
        factors = [
            f"({value:.2f})" if value < 0 else f"{value:.2f}" for pair in zip(q[2], k[1], strict=True) for value in pair
        ]
        assert "{}·{} + {}·{}".format(*factors) in told
        assert told.endswith(f"= {q[2] @ k[1]:.2f}")
        assert page.locator("td.from").count() == 4
        page.keyboard.press("s")
        assert page.locator("#told").inner_text().startswith("s[4, 2]")
        page.keyboard.press("Home")
        assert page.locator("#formula").inner_text() == "x"
        page.keyboard.press("End")
        page.reload()
        assert page.locator("#formula").get_attribute("title") == steps[-1].formula


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1920, "light")])
def test_walk_through_a_large_layer(opened, tmp_path, width, scheme):
    """Matrices too large for numbers are colours, which tell their numbers when pointed at."""
    model = randomise(vt.build("vit", image=40, patch=4, width=32, depth=1, heads=2, classes=4)).eval()
    with torch.no_grad():
        x = model.embed(torch.rand(1, 3, 40, 40))[0]
    steps = walk(model.encoder[0].attention, x)
    write_walk(tmp_path / "walk.html", steps, "A large one")
    with opened(tmp_path / "walk.html", viewport={"width": width, "height": 1000}, color_scheme=scheme) as page:
        page.locator("#steps button", has_text=re.compile("^A$")).click()
        canvas = page.locator(".piece .scroll canvas").last
        box = canvas.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 2.5 / 101, box["y"] + 1)
        a = next(step for step in steps if step.name == "A").values
        told = page.locator("#told").inner_text()
        assert told.startswith("A[1, 3]")
        assert told.endswith(f"{a[0, 2]:.3f}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        # On a scale up to the largest weight, which is bright, and not up to 1, on which all would be dark.
        assert page.locator(".piece .key").last.inner_text().split()[-1] == f"{a.max():.3f}"
        at = divmod(int(a.argmax()), a.shape[1])
        page.keyboard.press("Home")
        page.keyboard.press("End")
        page.locator("#steps button", has_text=re.compile("^A$")).click()
        last = "[...document.querySelectorAll('.piece .scroll canvas')].at(-1).getContext('2d')"
        colour = page.evaluate(f"[...{last}.getImageData({at[1]}, {at[0]}, 1, 1).data]")
        assert sum(colour[:3]) > 450
        if width > 1000:  # as large as there is room for above the foot
            foot = page.locator(".low").bounding_box()["y"]
            assert foot - 0.2 * 1000 < box["y"] + box["height"] <= foot
