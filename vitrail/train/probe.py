"""A head for weights that stay as they are: features computed once, then a linear classifier of them, in seconds."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from vitrail.data import Normalise, Pictures, unit
from vitrail.errors import InputError
from vitrail.families import Model
from vitrail.train.job import Result, start, write_run
from vitrail.train.measure import Scores, scores
from vitrail.train.prepare import Prepared, unshown

STRENGTHS = [10.0**power for power in range(-4, 3)]  # of C, the inverse of the regularisation
FOLDS = 5
BATCH = 64


class Probe:
    """A linear classifier of a model's features: multinomial logistic regression, its strength by cross-validation."""

    def __init__(self, prepared: Prepared, out: Path) -> None:
        self.prepared, self.parts, self.out = prepared, prepared.parts, out
        if prepared.config.prelogits:
            raise InputError("weights.prelogits cannot be kept with weights.freeze, whose head is one linear map.")
        self.model, self.normalise = start(prepared)

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return sum(p.numel() for p in self.model.parameters())

    def finish(self, shown: Any = unshown) -> tuple[Result, Scores, Tensor]:
        """Compute the features, fit the head, test, and write the run: as a training's ``finish``."""
        began = time.perf_counter()
        train, test = self.parts.train, self.parts.test
        known = features(self.model, train, self.normalise, shown)
        weight, bias = linear_head(known, train.labels, len(train.names))
        with torch.no_grad():
            for name in ("logits", "distilled") if self.prepared.config.pool == "distilled" else ("logits",):
                self.model.get_parameter(f"head.{name}.weight").copy_(weight)
                self.model.get_parameter(f"head.{name}.bias").copy_(bias)
        logits = features(self.model, test, self.normalise, shown) @ weight.T + bias
        measured = scores(logits, test.labels, test.names)
        result = Result(
            accuracy=measured.accuracy,
            correct=measured.correct,
            tested=measured.tested,
            parameters=self.parameters,
            epochs=1,
            steps=0,
            seconds=round(time.perf_counter() - began, 1),
            waited=0.0,
            run=str(self.out),
        )
        write_run(self.prepared, self.model, self.normalise, result, measured)
        return result, measured, logits


@torch.no_grad()
def features(model: Model, pictures: Pictures, normalise: Normalise, shown: Any = unshown) -> Tensor:
    """What the head would be given for each picture, (m w)."""
    model.eval()
    made = [
        model.pooled(normalise(unit(pictures.store[rows]))).float()  # type: ignore[operator]
        for rows in shown("Looking at", pictures.rows.split(BATCH), -(-len(pictures) // BATCH))
    ]
    return torch.cat(made)


def linear_head(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """W (classes w) and b of the logistic regression of labels on features."""
    x, y = features.double().numpy(), labels.numpy()
    counts = np.bincount(y, minlength=classes)
    folds = min(FOLDS, int(counts.min()))
    fitted: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    if folds > 1:
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        tried = {"logisticregression__C": STRENGTHS}
        fitted = GridSearchCV(fitted, tried, scoring="neg_log_loss", cv=split).fit(x, y).best_estimator_
    else:  # a class has one picture: nothing to choose by
        fitted.fit(x, y)
    scaler, regression = fitted
    weight, bias = regression.coef_, regression.intercept_
    if classes == 2:  # noqa: PLR2004  # which it answers with one number
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    weight = weight / scaler.scale_
    bias = bias - weight @ scaler.mean_
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
