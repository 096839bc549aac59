"""A head for a frozen model is scikit-learn's own regression, written as one linear map."""

import numpy as np
import pytest
import torch
from drawing import numbers
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import StandardScaler

from vitrail.tasks.pictures.head import STRENGTHS, linear_head


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_its_probabilities_are_the_regression_s(classes):
    labels = torch.arange(20 * classes) % classes
    features = 3 * numbers(len(labels), 11, seed=1) * torch.linspace(0.1, 5, 11) + labels[:, None] + 4
    weight, bias = linear_head(features.float(), labels, classes)
    found = (features.float() @ weight.T + bias).softmax(1)
    scaled = StandardScaler().fit_transform(features.float())
    fitted = [LogisticRegression(C=strength, max_iter=500).fit(scaled, labels) for strength in STRENGTHS]
    apart = [float(np.abs(found.numpy() - one.predict_proba(scaled)).max()) for one in fitted]
    assert weight.shape == (classes, 11)
    assert min(apart) < 1e-4, "it is one of them"
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    losses = [-cross_val_score(one, scaled, labels, cv=folds, scoring="neg_log_loss").mean() for one in fitted]
    assert losses[int(np.argmin(apart))] < min(losses) + 0.01, "and as good as any on pictures left out"


@pytest.mark.parametrize("classes", [2, 5])
def test_one_picture_of_each_class_is_enough(classes):
    features, labels = torch.eye(classes, 6), torch.arange(classes)
    weight, bias = linear_head(features, labels, classes)
    assert torch.equal((features @ weight.T + bias).argmax(1), labels)
