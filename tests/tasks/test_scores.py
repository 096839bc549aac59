"""Scores, against scikit-learn's."""

import pytest
import torch
from sklearn import metrics

from vitrail.tasks.pictures.scores import scores

NAMES = tuple("abcdefg")


@pytest.fixture
def answered():
    logits = torch.randn(211, 7, dtype=torch.float64) * 2
    return logits, torch.randint(7, (211,))


def test_scores_are_scikit_learn_s(answered):
    logits, labels = answered
    found, chances = scores(logits, labels, NAMES), logits.softmax(1).numpy()
    answers = logits.argmax(1).numpy()
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, answers)) == found.correct / found.tested
    assert found.top5 == pytest.approx(metrics.top_k_accuracy_score(labels, chances, k=5))
    assert found.loss == pytest.approx(metrics.log_loss(labels, chances))
    assert found.confusion == metrics.confusion_matrix(labels, answers).tolist()
    for number, one in enumerate(found.classes):
        mine, said = labels.numpy() == number, answers == number
        assert one.pictures == mine.sum()
        assert one.recall == pytest.approx(metrics.recall_score(mine, said))
        assert one.precision == pytest.approx(metrics.precision_score(mine, said))


def test_calibration_is_its_definition(answered):
    """Fifteen bins of equal width, each |right - sure| weighted by its pictures, counted one picture at a time."""
    logits, labels = answered
    chances = logits.softmax(1)
    total = 0.0
    for low in range(15):
        inside = [i for i, p in enumerate(chances.max(1).values.tolist()) if low / 15 < p <= (low + 1) / 15]
        if inside:
            right = sum(int(chances[i].argmax() == labels[i]) for i in inside) / len(inside)
            sure = sum(chances[i].max().item() for i in inside) / len(inside)
            total += len(inside) / len(labels) * abs(right - sure)
    assert scores(logits, labels, NAMES).calibration == pytest.approx(total)


def test_a_model_that_is_as_sure_as_it_is_right_is_calibrated():
    chances = torch.tensor([[0.8, 0.2]] * 1000).log()
    labels = (torch.arange(1000) >= 800).long()
    assert scores(chances, labels, ("a", "b")).calibration == pytest.approx(0, abs=1e-6)


def test_a_class_without_pictures_is_no_error():
    found = scores(torch.eye(3), torch.tensor([0, 1, 1]), tuple("abc"))
    assert found.classes[2].pictures == 0
    assert found.classes[2].recall is None
    assert found.classes[2].precision == 0.0  # it was answered once, and wrongly
    assert scores(torch.eye(3)[:2], torch.tensor([0, 1]), tuple("abc")).classes[2].precision is None
    assert found.top5 is None
    assert found.accuracy == pytest.approx(2 / 3)


def test_the_interval_is_wilson_s():
    from scipy.stats import binomtest

    for right, of in ((0, 5), (3, 7), (42, 42), (80, 113)):
        labels = torch.tensor([0] * right + [1] * (of - right))
        measured = scores(torch.tensor([[1.0, 0.0]]).expand(of, 2), labels, ("a", "b"))
        expected = binomtest(right, of).proportion_ci(0.95, method="wilson")
        assert measured.interval == pytest.approx((expected.low, expected.high), abs=1e-4)
