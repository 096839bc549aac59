"""Classes of unequal size, counted alike."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import nn

from vitrail.data import Batch
from vitrail.tasks.pictures.examples import class_weights, classify
from vitrail.tasks.pictures.head import discriminants, fit_head, logistic


class Constant(nn.Module):
    """A model that answers what it is given."""

    def forward(self, x, *, shortest=False):  # noqa: ARG002
        return x


def test_every_class_counts_alike():
    labels = torch.tensor([0] * 90 + [1] * 9 + [2])
    weight = class_weights(labels, 3, 1.0)
    assert torch.allclose(weight * labels.bincount(), torch.full((3,), 100 / 3))
    assert class_weights(labels, 3, 0.0) is None
    half = class_weights(labels, 3, 0.5)
    assert half[labels].mean() == pytest.approx(1)
    assert half[1] / half[0] == pytest.approx(10**0.5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_loss_is_the_mean_of_weighted_losses(smoothing, mixed):
    logits, labels = torch.randn(12, 3), torch.randint(3, (12,))
    weight = torch.tensor([0.2, 1.5, 3.0])
    targets = F.one_hot(labels, 3).float() if mixed else labels
    batch = Batch(logits, targets, 12)
    smooth = (1 - smoothing) * F.one_hot(labels, 3) + smoothing / 3
    expected = -(weight * smooth * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(classify(Constant(), batch, smoothing, weight), expected)
    even = classify(Constant(), batch, smoothing, torch.ones(3))
    torch.testing.assert_close(even, classify(Constant(), batch, smoothing))


def unequal():
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], [300, 20])
    return random.normal(size=(320, 4)) + 0.8 * y[:, None], y


def test_a_head_counts_them_alike_too():
    x, y = unequal()
    weight, bias = logistic(x, y, 2, 1e6, balance=1.0)
    theirs = LogisticRegression(C=1e6, class_weight="balanced", max_iter=1000).fit(x, y)
    ours = x @ (weight[1] - weight[0]) + bias[1] - bias[0]
    np.testing.assert_allclose(ours, theirs.decision_function(x), atol=0.02)
    (_, plain), (_, even) = (discriminants(x, y, 2, [0.1], balance)[0] for balance in (0.0, 1.0))
    assert (even - plain)[1] - (even - plain)[0] == pytest.approx(np.log(300 / 20))
    seen, labels = torch.from_numpy(x).float(), torch.from_numpy(y)

    def recall(balance):
        head = fit_head(seen, labels, 2, [], balance)
        answers = (seen @ head.weight.T + head.bias).argmax(1)
        return float((answers[labels == 1] == 1).float().mean())

    assert recall(1.0) > recall(0.0) + 0.2
