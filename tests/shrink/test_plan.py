"""What is tried where no ways are named."""

import pytest

import vitrail as vt
from vitrail.families import cost_of
from vitrail.shrink.costs import Costs
from vitrail.shrink.cut import Kept, cut
from vitrail.shrink.plan import ORDER, chosen, parse
from vitrail.shrink.steps import Goals, History, Step
from vitrail.shrink.way import Together, Workshop
from vitrail.weights import Weights

ORIGINAL = Step(0, "original", "", Costs(1, 1, 100, None), (), (1.0, 1.0))


def weights(name="vit", **fields):
    fields = {"image": 64, "patch": 8, "channels": 1, "width": 48, "depth": 3, "heads": 6, "classes": 5, **fields}
    model = vt.build(name, **fields)
    return Weights("here", "vitrail", "vit", model.config, dict(model.state_dict()))


def first(goals, *steps, of=None, **how):
    return chosen(History(ORIGINAL, list(steps)), goals, of or weights(), **{"data": True, **how})


def done(name, **how):
    return Step(1, name, "", Costs(1, 1, 100, None), (), (1.0, 1.0), **how)


def test_without_goals_ways_are_tried_one_by_one():
    assert str(first(Goals())) == "neurons=0.5"


@pytest.mark.parametrize("stem", ["patch", "early"])  # of which one has a formula for its cost
def test_goals_are_aimed_at_in_one_step_that_is_as_mild_as_they_allow(stem):
    several = [first(Goals(speedup=speedup), of=weights(stem=stem)) for speedup in (1.7, 3, 6, 100)]
    assert all(isinstance(way, Together) for way in several)
    assert [way.name() for way in several] == ["image+heads+neurons"] * 4
    assert str(several[0]) != str(several[1])
    assert str(several[2]) == str(several[3])  # there is a most that goes at once


def test_what_is_asked_of_size_alone_is_aimed_at_too():
    mild, far = (first(Goals(compression=compression)) for compression in (3.7, 8))
    assert isinstance(mild, Together)
    assert str(mild) != str(far)


def test_after_it_come_the_others():
    name = str(first(Goals(speedup=4)))
    undone = done(name, kept=False, costly=True)
    assert str(first(Goals(speedup=4), undone)) == "neurons=0.5"
    assert str(parse(name).milder(weights())) != name
    every = [done(f"{one}=0.5", kept=False) for one in ORDER]
    assert str(first(Goals(speedup=4), undone, *every)) == "quantize=int8"


def test_it_is_of_vits_of_some_patches_with_data_and_time():
    goals = Goals(speedup=4)
    assert not isinstance(first(goals, of=weights(image=32)), Together)  # four patches a side
    assert not isinstance(first(goals, data=False), Together)
    assert not isinstance(first(goals, hurry=True), Together)
    assert not isinstance(first(goals, of=weights(position="relative")), Together)  # whose heads cannot go


def test_what_is_left_costs_about_what_was_foretold():
    """The mildest step whose multiply-adds are so many times fewer that, with eight bits, the goal is in reach."""
    whole = weights(width=96, hidden=384)
    image, heads, neurons = first(Goals(speedup=2.2), of=whole).several
    smaller = image.make(whole, Workshop()).weights
    stay = Kept(
        [list(range(round(6 * (1 - heads.fraction))))] * 3, [list(range(round(384 * (1 - neurons.fraction))))] * 3
    )
    less = cost_of(cut(smaller, stay).config)
    assert 2.2 <= 1.5 * cost_of(whole.config).multiply_adds / less.multiply_adds < 4.4
