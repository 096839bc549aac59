"""A head for weights that stay as they are: features computed once, then a linear classifier of them, in seconds."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.data import Normalise, Pictures, unit
from vitrail.errors import InputError
from vitrail.families import ViT
from vitrail.progress import Progress, silent

STRENGTHS = [10.0**power for power in range(-4, 3)]  # of C, the inverse of the regularisation
FOLDS = 5
BATCH = 64


def fit_head(model: ViT, pictures: Pictures, normalise: Normalise, progress: Progress = silent) -> None:
    """Have the head of a model be the logistic regression of labels on what the head is given."""
    if model.config.prelogits:
        raise InputError("weights.prelogits cannot be kept with weights.freeze, whose head is one linear map.")
    seen = features(model, pictures, normalise, progress)
    weight, bias = linear_head(seen, pictures.labels, len(pictures.names))
    with torch.no_grad():
        for name in ("logits", "distilled") if model.config.pool == "distilled" else ("logits",):
            model.get_parameter(f"head.{name}.weight").copy_(weight)
            model.get_parameter(f"head.{name}.bias").copy_(bias)


@torch.no_grad()
def features(model: ViT, pictures: Pictures, normalise: Normalise, progress: Progress = silent) -> Tensor:
    """What the head would be given for each picture, (m w)."""
    model.eval()
    groups = pictures.rows.split(BATCH)
    device = next(model.parameters()).device
    return torch.cat(
        [
            model.pooled(normalise(unit(pictures.store[rows].to(device)))).float().cpu()
            for rows in progress("groups of pictures seen", groups, len(groups))
        ]
    )


def linear_head(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """W (classes w) and b of the multinomial logistic regression of labels on features, its strength by
    cross-validation.
    """
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  # a second, for those who use it
    from sklearn.model_selection import GridSearchCV, StratifiedKFold  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    x, y = features.double().numpy(), labels.numpy()
    counts = np.bincount(y, minlength=classes)
    folds = min(FOLDS, int(counts.min()))
    fitted: Any = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    if folds > 1:
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        grid = {"logisticregression__C": STRENGTHS}
        fitted = GridSearchCV(fitted, grid, scoring="neg_log_loss", cv=split).fit(x, y).best_estimator_
    else:  # a class has one picture: nothing to choose by
        fitted.fit(x, y)
    scaler, regression = fitted
    weight, bias = regression.coef_, regression.intercept_
    if classes == 2:  # noqa: PLR2004  # which it answers with one number
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    weight = weight / scaler.scale_
    bias = bias - weight @ scaler.mean_
    return torch.from_numpy(weight).float(), torch.from_numpy(bias).float()
