"""Pictures as sequences of colours."""

import math

import numpy as np
import pytest
import torch
from corpus import write_classes
from texts import TINY

import vitrail as vt
from vitrail.data.palette import Palette
from vitrail.decode import Drawing
from vitrail.errors import InputError
from vitrail.tasks.pixels.examples import PixelRows, histogram_bits, png_bits, shifted
from vitrail.tasks.pixels.painter import Painter, grid, probe

CPU = torch.device("cpu")


def test_few_colours_are_kept_as_they_are():
    images = torch.randint(0, 5, (20, 3, 4, 4)).mul(50).byte()
    images[:, 1:] = images[:, :1]
    palette = Palette.of(images, 16)
    assert len(palette) == 5
    assert torch.equal(palette.decode(palette.encode(images), (4, 4)), images)


def test_every_pixel_has_the_nearest_of_many_colours():
    images = torch.randint(0, 256, (30, 3, 6, 6)).byte()
    palette = Palette.of(images, 8)
    pixels = images.permute(0, 2, 3, 1).reshape(-1, 3).float()
    nearest = (pixels[:, None] - palette.colours).square().sum(-1).argmin(1)
    assert torch.equal(palette.encode(images).flatten(), nearest)
    assert (palette.colours.mean(1).diff() >= 0).all()


def test_a_palette_is_what_was_written(tmp_path):
    palette = Palette.of(torch.randint(0, 256, (30, 3, 6, 6)).byte(), 8)
    palette.write(tmp_path / "palette.json")
    assert torch.equal(Palette.read(tmp_path / "palette.json").colours, palette.colours)
    (tmp_path / "palette.json").write_text('["x"]')
    with pytest.raises(InputError, match="no list of colours"):
        Palette.read(tmp_path / "palette.json")


def test_what_is_asked():
    pixels = torch.randint(0, 9, (6, 16), dtype=torch.uint8)
    inputs, targets, count = PixelRows(pixels, (4, 4), 9).batch(np.arange(6), CPU)
    assert count == 96
    assert torch.equal(targets, pixels.long())
    assert (inputs[:, 0] == 9).all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    inputs, targets, count = PixelRows(pixels, (4, 4), 9, hidden=0.25).batch(np.arange(6), CPU)
    asked = targets >= 0
    assert count == int(asked.sum()) == 24
    assert (inputs[asked] == 10).all()
    assert torch.equal(targets[asked], pixels[asked].long())
    assert torch.equal(inputs[~asked], pixels[~asked].long())


def test_pictures_are_moved_with_their_edges():
    picture = torch.arange(9).view(1, 9)
    seen = {tuple(shifted(picture, (3, 3), 1)[0].tolist()) for _ in range(200)}
    assert len(seen) == 9
    assert (0, 0, 1, 0, 0, 1, 3, 3, 4) in seen
    assert tuple(range(9)) in seen


def test_baselines():
    """A histogram of what was seen often has the entropy of it; a PNG of noise has all its bits."""
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 4, (20_000, 6), generator=draw)
    assert histogram_bits(pixels, pixels, 4) == pytest.approx(2.0, abs=1e-2)
    noise = torch.randint(0, 256, (20, 64 * 64), generator=draw)
    assert png_bits(noise, (64, 64)) == pytest.approx(8.0, abs=0.2)
    assert png_bits(torch.zeros(3, 64 * 64), (64, 64)) < 0.2


def test_a_probe_finds_what_is_there():
    labels = torch.arange(60) % 3
    known = torch.nn.functional.one_hot(labels, 3).float() + 0.1 * torch.randn(60, 3)
    nothing = torch.randn(60, 3)
    both = torch.stack([known, nothing])
    found = probe(both, labels, both, labels)
    assert found[0] == 1.0
    assert found[1] < 0.7


def test_pictures_side_by_side():
    sheet = grid(torch.ones(5, 1, 2, 3, dtype=torch.uint8), 2)
    assert sheet.shape == (1, 3 * 3 + 1, 2 * 4 + 1)
    assert int((sheet == 1).sum()) == 5 * 6


@pytest.fixture(scope="module")
def run(once):
    def make(folder):
        settings = {**TINY, "train.steps": 150, "train.batch": 32, "data.colours": 4}
        vt.train("igpt", out=folder / "run", settings=settings, quiet=True)

    return once("igpt", make) / "run"


def test_it_learns_what_a_histogram_does_not_know(run):
    found = vt.run(run).evaluate().scores
    assert found.bits < found.histogram < math.log2(4)
    assert "What each layer knows" in (run / "report.html").read_text()


def test_a_completed_picture_is_the_half_that_was_given(run):
    opened = vt.run(run)
    painter, rows = Painter.of(opened.trained()), opened.evaluation_set().rows
    half = rows.pixels[:5, :32].long()
    drawing = Drawing(generator=torch.Generator().manual_seed(0))
    whole = painter.draw(half, drawing)
    assert whole.shape == (5, 64)
    assert torch.equal(whole[:, :32], half)
    assert int(whole.max()) < len(painter.palette)
    again = painter.draw(half, Drawing(generator=torch.Generator().manual_seed(0)))
    assert torch.equal(whole, again)


def test_hidden_pixels_of_a_folder_in_colour(tmp_path):
    write_classes(tmp_path / "all", {"ant": 12, "bee": 12})
    settings = {**TINY, "train.steps": 10, "train.batch": 8, "model.name": "bert", "model.order": "pre"}
    run = vt.train("igpt", data=tmp_path / "all", image=6, out=tmp_path / "run", settings=settings, quiet=True)
    assert 0 < run.result["bits"] < 8
    with pytest.raises(InputError, match="train a gpt"):
        Painter.of(run.trained()).draw(torch.zeros(1, 0, dtype=torch.long), Drawing())


def test_more_colours_than_a_byte_has():
    images = torch.randint(0, 256, (300, 3, 8, 8)).byte()
    palette = Palette.of(images, 300)
    numbers = palette.encode(images)
    assert int(numbers.max()) == len(palette) - 1 > 255
    assert png_bits(numbers, (8, 8)) > 8


def test_a_run_is_measured_with_its_own_colours(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "run")
    own = Palette.read(tmp_path / "run" / "palette.json")
    Palette(own.colours.flip(0)).write(tmp_path / "run" / "palette.json")
    assert vt.run(tmp_path / "run").evaluate().scores.bits > vt.run(run).evaluate().scores.bits + 0.5
