"""Two models on the same examples."""

from math import comb

import numpy as np
import pytest
import torch

from vitrail.data.normalise import Normalise
from vitrail.data.pictures import Pictures
from vitrail.tasks.paired import bootstrap, mcnemar
from vitrail.tasks.pictures.examples import TestPictures
from vitrail.tasks.task import Measurement, Metric
from vitrail.tasks.translate.scores import paired_bleu


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (3, 12), (20, 20), (7, 8), (60, 31)])
def test_mcnemar_is_two_tails_of_a_fair_coin(gained, lost):
    """By counting: all outcomes that are as unlikely as this one, or more so."""
    n = gained + lost
    ways = [comb(n, k) for k in range(n + 1)]
    expected = sum(one for one in ways if one <= ways[gained]) / 2**n
    assert mcnemar(gained, lost) == pytest.approx(expected)


def test_which_answers_changed():
    labels = torch.tensor([0, 1, 1, 2, 0])
    pictures = Pictures.of(torch.zeros(5, 1, 2, 2, dtype=torch.uint8), labels, ("a", "b", "c"), "picture")
    held = TestPictures(pictures, Normalise((0.0,), (1.0,)))

    def said(*answers):
        return Measurement({}, {}, outputs=torch.nn.functional.one_hot(torch.tensor(answers), 3).float())

    found = held.compare(said(0, 1, 0, 0, 1), said(0, 0, 1, 1, 1))
    assert (found.gained, found.lost) == (1, 1)
    assert found.p_value == 1
    assert [(one.what, one.right, one.before, one.after) for one in found.changed] == [
        ("picture 1", "b", "b", "a"),
        ("picture 2", "b", "a", "b"),
        ("picture 3", "c", "a", "b"),
    ]


def test_points_that_are_lost():
    assert Metric("accuracy", percent=True).drop(0.95, 0.94) == pytest.approx(1)
    assert Metric("bleu").drop(30.5, 30.0) == pytest.approx(0.5)
    assert Metric("nats", higher=False).drop(2.0, 2.1) == pytest.approx(5)  # of a hundred parts of the loss


def test_the_bootstrap_knows_a_difference_from_none():
    draw = np.random.default_rng(0)
    counts = draw.integers(5, 30, size=300)
    good = np.stack([draw.binomial(counts, 0.90), counts], axis=1)
    same = np.stack([draw.binomial(counts, 0.90), counts], axis=1)
    worse = np.stack([draw.binomial(counts, 0.80), counts], axis=1)
    assert bootstrap(good, good) == 1
    assert bootstrap(good, worse) < 0.01
    assert bootstrap(good, same) > 0.05


def test_bleu_of_two_systems_is_compared_as_sacrebleu_does():
    references = [f"the cat number {number} sat on the mat today" for number in range(60)]
    worse = [one.replace("cat", "dog") if row % 2 else one for row, one in enumerate(references)]
    assert paired_bleu(references, references, references) == 1
    assert paired_bleu(references, worse, references) < 0.01
    assert paired_bleu(worse, [*worse[:-1], references[-1]], references) > 0.05
