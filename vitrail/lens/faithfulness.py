"""Whether an explanation tells the truth: patches taken away, or put back, in the order that it gives them.

If the patches that an explanation calls important are, the answer falls soon when they go first, and rises soon when
they come first: deletion and insertion (Petsiuk et al. 2018, section 3.3), beside the same in random order.
"""

from dataclasses import dataclass

import torch
from einops import rearrange, repeat
from torch import Tensor

from vitrail.families import Model

STEPS = 20
ORDERS = 4  # random ones, each of them there and back
TOKENS = 8192  # of pictures that are answered together


@dataclass(frozen=True, eq=False)
class Curves:
    """The probability of a class by the fraction of patches taken away (deletion), or put back (insertion)."""

    fractions: Tensor  # (s), from 0 to 1
    deletion: Tensor  # (s)
    insertion: Tensor  # (s)
    spread: float = 0.0  # of the gap, over single orders, where the lines are the mean of several

    @property
    def areas(self) -> tuple[float, float]:
        """Under deletion, which should be small, and under insertion, which should be large."""
        deletion, insertion = (float(torch.trapezoid(line, self.fractions)) for line in (self.deletion, self.insertion))
        return deletion, insertion

    @property
    def gap(self) -> float:
        """Insertion less deletion: one number, the larger the truer; 0 on average for an order that knows nothing."""
        deletion, insertion = self.areas
        return insertion - deletion


@torch.no_grad()
def curves(model: Model, image: Tensor, scores: Tensor, label: int, steps: int = STEPS) -> Curves:
    """Those of one picture (c H W), for scores (y x) of its patches.

    A patch that is away is 0, which is the mean colour where pictures were normalised by their own.
    """
    gone, fractions = _gone(scores, steps)
    deletion = _probabilities(model, image, ~gone, scores.shape, label)
    insertion = _probabilities(model, image, gone, scores.shape, label)
    return Curves(fractions, deletion, insertion)


@torch.no_grad()
def random_curves(
    model: Model, image: Tensor, grid: tuple[int, int], label: int, *, orders: int = ORDERS, steps: int = STEPS
) -> Curves:
    """The mean of those in random orders, the same for every picture, and how far a single one lies from it.

    Each order is taken there and back. What one puts back the other takes away, so that the mean gap is 0, as it should
    be; that of one order is not.
    """
    random = torch.Generator().manual_seed(0)
    lines, gaps = [], []
    for _ in range(orders):
        scores = torch.rand(grid, generator=random).to(image.device)
        there, back = (_gone(one, steps) for one in (scores, -scores))
        fractions = there[1]
        both = [_probabilities(model, image, ~gone, grid, label) for gone, _ in (there, back)]
        lines += both
        gaps.append(float(torch.trapezoid(both[1] - both[0], fractions)))
    deletion = torch.stack(lines).mean(0)
    return Curves(fractions, deletion, deletion.flip(0), sum(gap**2 for gap in gaps) ** 0.5 / orders**0.5)


def _gone(scores: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """The patches in question at each step (s p), the highest score first, and their fraction (s), which is symmetric.

    Patches of the same score come in an order that is random, but always the same: not by rows, from the top.
    """
    count = scores.numel()
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(1)).to(scores.device)
    order = shuffled[scores.flatten()[shuffled].argsort(descending=True, stable=True)]
    rank = torch.empty_like(order)
    rank[order] = torch.arange(count, device=order.device)
    steps = min(steps, count)
    if count % 2 and not steps % 2:
        steps -= 1  # half of an odd number of patches cannot be taken away
    even = torch.linspace(0, count, steps + 1)
    kept = torch.where(even <= count / 2, (even + 0.5).floor(), count - (count - even + 0.5).floor())
    return rank < kept[:, None].to(rank.device), kept / count


def _probabilities(model: Model, image: Tensor, there: Tensor, grid: tuple[int, ...], label: int) -> Tensor:
    """The probability of the label for the picture with some patches only, (s p) -> (s)."""
    if image.ndim == 4 and len(image) == 1:  # noqa: PLR2004
        image = image[0]
    down, across = image.shape[-2] // grid[0], image.shape[-1] // grid[1]
    probabilities = []
    for some in there.split(max(1, TOKENS // there.shape[1])):
        mask = repeat(rearrange(some, "s (y x) -> s 1 y x", y=grid[0]), "s 1 y x -> s 1 (y p) (x q)", p=down, q=across)
        logits = model(image[None] * mask.to(image.dtype), shortest=True)
        probabilities.append(logits.float().softmax(1)[:, label].cpu())
    return torch.cat(probabilities)
