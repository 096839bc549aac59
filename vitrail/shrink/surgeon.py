"""Which heads and neurons are missed least once all others have been fitted to do without them.

The optimal brain surgeon (Hassibi and Stork 1993) for whole columns of a map, as in ZipLM (Kurtic et al. 2023). Of a
map y = W x, with C the covariance of what comes in, leaving out the columns g and fitting all others by least squares
changes y by tr(W_g [C^-1]_gg^-1 W_g^T) in all; what of that matters is weighed by the squares of the loss's gradient on
y, which makes layers comparable. Those that are missed least go, W and C^-1 are brought up to date, and so on.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitrail.data import Batch
from vitrail.families import Model
from vitrail.progress import Progress, silent
from vitrail.shrink.importance import Loss, every_token
from vitrail.shrink.refit import Seen, held, hooked

AT_ONCE = 32  # of what is left, the part that goes before all are looked at again


def missed(
    model: Model, maps: Mapping[str, int], loss: Loss, batches: Iterable[Batch], progress: Progress = silent
) -> dict[str, Tensor]:
    """How much each group of columns of some maps is missed, by their paths: so many columns are a group.

    The numbers are those of the moment at which a group would go, and rise in the order in which they do.
    """
    seen, weights = _seen(model, maps, loss, batches)
    found = {}
    for path in progress("layers looked through", list(maps), len(maps)):
        map_ = cast("nn.Linear", model.get_submodule(path))
        weight = weights[path].sqrt()[:, None] * map_.weight.detach().double()
        found[path] = _order(weight, seen[path].covariance, maps[path])
    return found


def _seen(
    model: Model, paths: Iterable[str], loss: Loss, batches: Iterable[Batch]
) -> tuple[dict[str, Seen], dict[str, Tensor]]:
    """What comes into some maps, and the mean squares of the loss's gradient on what comes out, (o)."""
    seen = {path: Seen() for path in paths}
    squares: dict[str, Any] = dict.fromkeys(seen, 0.0)
    count = 0

    def add(path: str, gradient: Tensor) -> None:
        squares[path] = squares[path] + gradient.detach().flatten(0, -2).double().square().sum(0)

    def keep(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: Any, y: Tensor) -> None:
            seen[path].add(given[0])
            y.register_hook(partial(add, path))

        return hook

    model.eval()
    with every_token(), hooked(model.get_submodule(path).register_forward_hook(keep(path)) for path in seen):
        for batch in batches:
            (loss(model, batch) * batch.count).backward()
            count += batch.count
    model.zero_grad()
    return seen, {path: one / max(1, count) for path, one in squares.items()}


def _order(weight: Tensor, covariance: Tensor, wide: int) -> Tensor:
    """How much each group of columns of a weight (o i) is missed, (i / wide); the last that is left, without end."""
    groups = weight.shape[1] // wide
    inverse = torch.linalg.inv(covariance + held(covariance))
    alive, least = torch.arange(groups), 0.0
    found = torch.full((groups,), torch.inf, dtype=torch.float64)
    while len(alive) > 1:
        count = len(alive)
        own = inverse.view(count, wide, count, wide).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
        columns = weight.T.reshape(count, wide, -1)
        score = (columns * torch.linalg.solve(own, columns)).sum((1, 2))
        order = score.argsort()[: max(1, count // AT_ONCE)]
        for one in order.tolist():
            least = max(float(score[one]), least * (1 + 1e-12))
            found[alive[one]] = least
        gone = (order[:, None] * wide + torch.arange(wide)).flatten()
        update = torch.linalg.solve(inverse[gone][:, gone], inverse[gone])
        stay = torch.ones(count * wide, dtype=torch.bool)
        stay[gone] = False
        weight = (weight - weight[:, gone] @ update)[:, stay]
        inverse = inverse.addmm(inverse[:, gone], update, alpha=-1)[stay][:, stay]
        alive = alive[stay[::wide]]
    return found
