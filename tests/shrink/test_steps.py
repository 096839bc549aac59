"""Steps: what pays, what nothing beats, and which goals are missed."""

import json

from vitrail.shrink.costs import Costs, Time
from vitrail.shrink.steps import Goals, History, Step, Worth, pays, read_step


def step(number, *, faster, drop, kept=True, size=100, name="layers=1"):
    times = tuple(Time(batch, 1 / one, 1 / one, 1 / one) for batch, one in zip((1, 16), faster, strict=True))
    worth = Worth((90 - drop) / 100, (0.8, 0.95))
    return Step(number, name, "", Costs(1, 1, size, None), times, faster, worth, drop, kept=kept)


def test_steps_are_written_and_read_again():
    one = step(1, faster=(2.0, 3.0), drop=0.1)
    assert read_step(json.loads(json.dumps(one.table()))) == one


def test_the_frontier_is_what_nothing_beats():
    steps = [step(1, faster=(2, 2), drop=0.5), step(2, faster=(3, 1.5), drop=0.2), step(3, faster=(2.5, 4), drop=2)]
    history = History(step(0, faster=(1, 1), drop=0, name="original"), steps)
    assert [one.number for one in history.frontier(1)] == [2, 0]
    assert [one.number for one in history.frontier(16)] == [3, 1, 2, 0]


def test_what_pays():
    before = step(1, faster=(2.0, 2.0), drop=0)
    assert pays(before, step(2, faster=(2.5, 2.0), drop=0))
    assert not pays(before, step(2, faster=(2.5, 1.5), drop=0))
    assert pays(before, step(2, faster=(2.0, 2.0), drop=0, size=50))
    assert not pays(before, step(2, faster=(1.0, 1.0), drop=0, size=50))
    assert pays(before, step(2, faster=(1.0, 1.0), drop=0, size=50), asked=True)
    assert not pays(before, step(2, faster=(2.0, 2.0), drop=0))


def test_goals_that_are_missed_are_told_by_how_much():
    goals = Goals(speedup=4, compression=8)
    first, now = step(0, faster=(1, 1), drop=0, size=800), step(1, faster=(5, 3.5), drop=0, size=90)
    assert goals.missed(first, now) == ["it is 3.50 times as fast, and 4 were wanted"]
    assert not goals.met(first, now)
    assert goals.met(first, now, ahead=(1.5, 1.0))
