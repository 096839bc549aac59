"""What cells will take: told before they are begun, and true."""

from itertools import permutations

import pytest

from vitrail.compare.forecasts import START, Expected, elapsed, expected, paced
from vitrail.compare.pilot import step_seconds
from vitrail.compare.plan import planned
from vitrail.compare.request import Request
from vitrail.compare.sources import placeless
from vitrail.distributed import world
from vitrail.families import configure, cost_of
from vitrail.runs import Run
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks
from vitrail.training import Job
from vitrail.training.estimates import Forecast


def test_cells_one_after_the_other_and_several_at_a_time():
    assert elapsed([1.0, 2.0, 3.0], 1) == 6.0
    assert elapsed([1.0, 2.0, 3.0], 3) == 3.0
    assert elapsed([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert elapsed([1.0, 1.0, 1.0, 3.0], 2) == 4.0  # the longest begins last, and the others wait for it
    for order in permutations([1.0, 2.0, 4.0, 8.0]):
        assert elapsed(order, 2) >= sum(order) / 2


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_all_cells_have_the_same_fraction_of_their_epochs_and_end_in_time(workers):
    cells = [Expected(epochs, START + seconds) for epochs, seconds in ((10, 30.0), (70, 90.0), (300, 20.0))] * 7
    for seconds in (100.0, 300.0, 900.0):
        pace = paced(cells, seconds, workers)
        assert elapsed([cell.of(cell.cut(pace)) for cell in cells], workers) <= seconds or pace < 1e-3
        if pace < 1:
            more = pace * 1.1
            assert elapsed([cell.of(cell.cut(more)) for cell in cells], workers) > 0.95 * seconds
    assert paced(cells, 1e9, workers) == 1.0
    assert paced([Expected(0, 50.0)] * 3, 1.0, workers) <= 1.0  # what is fitted at once has nothing to cut


def tables(*settings, what=("depth", "digits")):
    return list(planned(Request(what, seeds=1, settings=settings)).tables.values())


def test_a_step_is_tried_before_its_examples_are_at_hand():
    """The time of a step on noise is that of a step on the examples, within what a busy machine does to both."""
    recipe = parse_recipe(tables("train.batch=64")[2])
    task = tasks["pictures"].prepare(recipe)
    tried = step_seconds(task)
    with world(recipe.train.device) as here:
        steps = [
            step.seconds for step, _ in zip(Job(task.gathered(), Run("."), here).updates(), range(10), strict=False)
        ]
    assert 0.2 < tried / sorted(steps)[5] < 5


def test_what_is_fitted_at_once_has_no_epochs_to_cut():
    gaussian = [one for one in tables(what=("generative", "digits")) if one["model"].get("name") == "gaussian"]
    found = expected(gaussian[0], 2)
    assert (found.epochs, found.cut(0.5), found.wrong, dict(found.fields)) == (0, 0, "", {})
    assert found.of(3) == found.seconds
    wrong = expected({**gaussian[0], "model": {"name": "vit", "depth": -1}}, 2)
    assert "depth" in wrong.wrong


def test_numbers_more_and_models_kept_are_counted(monkeypatch):
    """The time of measurements at the end; and models kept on the way, which stay, or are removed once they were
    measured.
    """
    found = Forecast(0.01, 2.0, 10.0, 0, None)
    monkeypatch.setattr("vitrail.compare.forecasts.forecast", lambda _: found)
    monkeypatch.setattr("vitrail.compare.forecasts.step_seconds", lambda _: None)
    table = tables("train.keep=3")[0]
    plain, measured = expected(table, 1), expected(table, 1, 2)
    followed = expected(table, 1, 2, followed=True)
    assert measured.seconds - plain.seconds >= 2 * 2 * found.measurement
    assert followed.seconds - measured.seconds == pytest.approx(3 * 2 * 2 * found.measurement)
    assert measured.seconds - measured.start == pytest.approx(plain.seconds - plain.start)  # which epochs do not change
    weights = 4 * cost_of(configure("vit-pico/2", classes=10, stem="early", depth=1, image=8, channels=1)).parameters
    assert plain.room - followed.room == followed.meanwhile - plain.meanwhile == 3 * weights


def test_a_recipe_is_the_same_wherever_its_files_are():
    here = {"data": {"path": "/a/photos", "limit": 3}, "weights": {"path": "/a/vit.npz"}, "model": {"depth": 2}}
    there = {"data": {"path": "/b/photos", "limit": 3}, "weights": {"path": "/b/vit.npz"}, "model": {"depth": 2}}
    assert placeless(here) == placeless(there)
    for section, name, value in (("model", "depth", 3), ("data", "limit", 4), ("weights", "path", "hf:owner/name")):
        assert placeless({**here, section: {**here[section], name: value}}) != placeless(here)
