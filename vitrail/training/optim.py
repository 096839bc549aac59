"""Optimizers and schedules."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import cos, pi
from typing import Any, TypeVar

import torch
from torch import Tensor, nn, optim

from vitrail.core import Stack

M = TypeVar("M", bound=nn.Module)


def adamw(
    model: nn.Module,
    lr: float,
    decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    *,
    layer_decay: float = 1.0,
) -> optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019) with decay on the matrices of linear maps and convolutions alone.

    Norms, biases, positions, class and register tokens are not decayed. Fused: one pass over the parameters. With a
    layer decay d the rate of a layer is d times that of the layer after it, the head's being the whole (Clark et al.
    2020), so that weights which are good already change little.
    """
    return _adamw(model, model.parameters(), lr, decay, betas=betas, layer_decay=layer_decay)


def muon(
    model: nn.Module, lr: float, decay: float, betas: tuple[float, float] = (0.9, 0.999), *, blocks: float
) -> "Together":
    """Muon with the rate ``blocks`` for the matrices of the blocks, AdamW for everything else.

    In a model without blocks they are the kernels of its convolutions, but for the first.
    """
    stacks = [module for module in model.modules() if isinstance(module, Stack)]
    linears = [m for stack in stacks for m in stack.modules() if isinstance(m, nn.Linear)]
    kernels = [m for m in model.modules() if isinstance(m, nn.Conv2d)][1:]
    matrices = [one.weight for one in linears or kernels if one.weight.requires_grad]
    ids = set(map(id, matrices))
    rest = [p for p in model.parameters() if id(p) not in ids]
    inner = [Muon(matrices, blocks, decay)] if matrices else []  # which a linear map has none of
    return Together([_adamw(model, rest, lr, decay, betas=betas), *inner])


class Muon(optim.Optimizer):
    """W <- (1 - r a) W - r s orthogonal(m g + (1 - m) b), b <- m b + (1 - m) g, s = sqrt(max(1, rows / columns)).

    Momentum whose matrix is made orthogonal, so that every direction of the update has the same length (Jordan et al.
    2024). In float32, and for all matrices of one shape at once: on a CPU without bfloat16 a step of
    ``torch.optim.Muon`` takes several times as long (bench/README.md).
    """

    def __init__(self, matrices: Iterable[Tensor], lr: float, decay: float = 0.0, momentum: float = 0.95) -> None:
        super().__init__(matrices, {"lr": lr, "decay": decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            shapes: dict[tuple[int, ...], list[Tensor]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    shapes.setdefault(tuple(sorted(matrix.flatten(1).shape)), []).append(matrix)
            for matrices in shapes.values():
                self._together(matrices, group["lr"], group["decay"], group["momentum"])

    def _together(self, matrices: Sequence[Tensor], lr: float, decay: float, momentum: float) -> None:
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        averages = []
        for matrix in matrices:
            state = self.state[matrix]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(matrix)
            averages.append(state["momentum"])
        for average, gradient in zip(averages, gradients, strict=True):
            average.lerp_(gradient, 1 - momentum)
        both = zip(gradients, averages, strict=True)
        ahead = [gradient.lerp(average, momentum).flatten(1) for gradient, average in both]
        wide = torch.stack([m if m.shape[0] <= m.shape[1] else m.T for m in ahead])
        for matrix, direction in zip(matrices, orthogonal(wide), strict=True):
            rows, columns = matrix.flatten(1).shape
            update = (direction if rows <= columns else direction.T).reshape(matrix.shape)
            matrix.mul_(1 - lr * decay).add_(update, alpha=-lr * max(1.0, rows / columns) ** 0.5)


# (a, b, c) of X <- a X + b (X X^T) X + c (X X^T)^2 X, step by step: Amsel et al. 2025 (Polar Express), which bring the
# singular values nearest to 1 in five steps, whatever they were.
POLAR = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
)


def orthogonal(matrices: Tensor) -> Tensor:
    """U V^T of each U S V^T, (m i j) with i <= j, by matrix products alone (Newton and Schulz), to a few percent."""
    x = matrices / (1.01 * matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for a, b, c in POLAR:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Together:
    """Several optimizers as one."""

    def __init__(self, optimizers: Sequence[optim.Optimizer]) -> None:
        self.optimizers = optimizers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return list(chain.from_iterable(optimizer.param_groups for optimizer in self.optimizers))

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        return {str(number): optimizer.state_dict() for number, optimizer in enumerate(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, optimizer in enumerate(self.optimizers):
            optimizer.load_state_dict(state[str(number)])


def warmup_cosine(steps: int, warmup: int) -> Callable[[float], float]:
    """The fraction of the learning rate: (t + 1) / warmup at first, then (1 + cos(pi u)) / 2 with u from 0 to 1."""

    def fraction(step: float) -> float:
        if step < warmup:
            return min(1.0, (step + 1) / warmup)
        return (1 + cos(pi * (step - warmup) / max(1, steps - warmup))) / 2

    return fraction


def _adamw(
    model: nn.Module,
    parameters: Iterable[Tensor],
    lr: float,
    decay: float,
    *,
    betas: tuple[float, float],
    layer_decay: float = 1.0,
) -> optim.AdamW:
    matrices = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    above = layers_above(model) if layer_decay != 1.0 else {}
    groups: dict[tuple[int, bool], list[Tensor]] = {(0, True): [], (0, False): []}  # the head's first
    for parameter in parameters:
        if parameter.requires_grad:
            groups.setdefault((above.get(id(parameter), 0), id(parameter) in matrices), []).append(parameter)
    parameter_groups = [
        {"params": group, "lr": lr * layer_decay**layers, "weight_decay": decay if decayed else 0.0}
        for (layers, decayed), group in sorted(groups.items(), key=lambda item: (item[0][0], not item[0][1]))
    ]
    return optim.AdamW(parameter_groups, lr=lr, betas=betas, weight_decay=decay, fused=True)


def hold(model: M, layers: int | None) -> M:
    """The model with its last layers alone to be learned, and what comes after them; None: with all of them."""
    if layers is not None:
        above = layers_above(model)
        for parameter in model.parameters():
            parameter.requires_grad_(above.get(id(parameter), 0) <= layers)
    return model


def zeros(model: nn.Module) -> dict[str, Tensor]:
    """Where the numbers of the matrices of a model's blocks are not 0, by the names of those that have zeros."""
    blocks = {
        id(parameter)
        for stack in model.modules()
        if isinstance(stack, Stack)
        for block in stack
        for parameter in block.parameters()
    }
    return {
        name: parameter != 0
        for name, parameter in model.named_parameters()
        if id(parameter) in blocks and parameter.ndim > 1 and bool((parameter == 0).any())
    }


def layers_above(model: nn.Module) -> dict[int, int]:
    """How many layers come after each parameter's, by its id: 0 for the head, depth + 1 for the embedding."""
    blocks = [block for stack in model.modules() if isinstance(stack, Stack) for block in stack]
    above = {id(p): len(blocks) - number for number, block in enumerate(blocks) for p in block.parameters()}
    embedding = getattr(model, "embed", None)
    if embedding is not None:
        above |= {id(p): len(blocks) + 1 for p in embedding.parameters()}
    return above
