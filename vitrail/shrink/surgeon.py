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
from vitrail.shrink.cut import spread
from vitrail.shrink.importance import Loss, every_token, hooked
from vitrail.shrink.refit import Seen, held

PART = 32  # of what is left, the part that is looked at as what may go next


def missed(
    model: Model, maps: Mapping[str, int], loss: Loss, batches: Iterable[Batch], progress: Progress = silent
) -> dict[str, Tensor]:
    """How much each group of columns of some maps is missed, by their paths: so many columns are a group.

    The numbers are those of the moment at which a group would go, and rise in the order in which they do.
    """
    seen, weights = _seen(model, maps, loss, batches)
    scores = {}
    for path in progress("layers looked through", list(maps), len(maps)):
        map_, given = cast("nn.Linear", model.get_submodule(path)), seen.pop(path)
        if not given.count:  # of which nothing matters
            scores[path] = torch.zeros(map_.in_features // maps[path], dtype=torch.float64)
            continue
        covariance = held(given.covariance)
        weight = weights[path].sqrt()[:, None] * map_.weight.detach().double()
        scores[path] = _order(weight, torch.linalg.inv(covariance), maps[path])
    return scores


def _seen(
    model: Model, paths: Iterable[str], loss: Loss, batches: Iterable[Batch]
) -> tuple[dict[str, Seen], dict[str, Tensor]]:
    """What comes into some maps, of tokens that matter for the loss, and the mean squares of its gradient on what comes
    out, (o).
    """
    seen = {path: Seen() for path in paths}
    squares: dict[str, Any] = dict.fromkeys(seen, 0.0)
    count = 0

    def add(path: str, x: Tensor, gradient: Tensor) -> None:
        matters = gradient.detach().abs().sum(-1) > 0
        seen[path].add(x[matters])
        squares[path] = squares[path] + gradient.detach().flatten(0, -2).double().square().sum(0)

    def keep(path: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: Any, y: Tensor) -> None:
            y.register_hook(partial(add, path, given[0].detach()))

        return hook

    model.eval()
    with every_token(), hooked(model.get_submodule(path).register_forward_hook(keep(path)) for path in seen):
        for batch in batches:
            (loss(model, batch) * batch.count).backward()
            count += batch.count
    model.zero_grad()
    return seen, {path: one / max(1, count) for path, one in squares.items()}


def _order(weight: Tensor, inverse: Tensor, wide: int) -> Tensor:
    """How much each group of columns of a weight (o i) is missed, (i / wide), of inputs with the inverse of this
    covariance (i i); the last that is left, without end.

    One goes after the other, of a few at a time: only for those few are numbers brought up to date at once.
    """
    alive, least = torch.arange(weight.shape[1] // wide), 0.0
    losses = torch.full((len(alive),), torch.inf, dtype=torch.float64)
    while len(alive) > 1:
        scores, count = _scores(weight, inverse, wide), len(alive)
        order = scores.argsort()
        few = order[: max(1, count // PART)]
        limit = float(scores[order[len(few)]])  # of those that are not among them
        rows = spread(few, wide)
        gone = list[int]()
        for index, score in _one_by_one(weight[:, rows], inverse[rows][:, rows], wide):
            if gone and score > limit:
                break
            least = max(score, least * (1 + 1e-12))
            losses[alive[few[index]]] = least
            gone.append(int(few[index]))
        left = torch.ones(count, dtype=torch.bool)
        left[gone] = False
        rows, stay = spread(gone, wide), spread(left.nonzero().flatten(), wide)
        update = torch.linalg.solve(inverse[rows][:, rows], inverse[rows][:, stay])
        weight = weight[:, stay] - weight[:, rows] @ update
        inverse = inverse[stay][:, stay].addmm_(inverse[stay][:, rows], update, alpha=-1)
        alive = alive[left]
    return losses


def _one_by_one(weight: Tensor, inverse: Tensor, wide: int) -> Iterable[tuple[int, float]]:
    """Groups in the order in which they are missed least, with how much each is once those before it are gone."""
    left = torch.ones(weight.shape[1] // wide, dtype=torch.bool)
    while left.any():
        places = left.nonzero().flatten()
        stay = spread(places, wide)
        scores = _scores(weight[:, stay], inverse[stay][:, stay], wide)
        first = int(scores.argmin())
        yield int(places[first]), float(scores[first])
        rows = spread(places[first, None], wide)
        update = torch.linalg.solve(inverse[rows][:, rows], inverse[rows])
        weight, inverse = weight - weight[:, rows] @ update, inverse - inverse[:, rows] @ update
        left[places[first]] = False


def _scores(weight: Tensor, inverse: Tensor, wide: int) -> Tensor:
    """tr(W_g [C^-1]_gg^-1 W_g^T) of each group of columns."""
    count = weight.shape[1] // wide
    own = inverse.reshape(count, wide, count, wide).diagonal(dim1=0, dim2=2).permute(2, 0, 1)
    columns = weight.T.reshape(count, wide, -1)
    return (columns * torch.linalg.solve(own, columns)).sum((1, 2))
