"""What training makes small."""

import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.data import Batch
from vitrail.train.fit import Objective


def classify(smoothing: float = 0.0) -> Objective:
    """-sum_c t_c log softmax(model(x))_c, t = 1 - s at the class plus s / C everywhere (Szegedy et al. 2016)."""

    def objective(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch.images, shortest=True), batch.labels, label_smoothing=smoothing)

    return objective
