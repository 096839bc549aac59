"""The linear map every part is made of, with one initialisation; whole, or as a product of two."""

import torch
from torch import Tensor, nn

from vitrail.errors import InputError


def linear(inputs: int, *outputs: int, bias: bool = True) -> nn.Linear:
    """X W^T + b, W Xavier-uniform (Glorot and Bengio 2010), b = 0; several outputs are maps that share one product."""
    layer = nn.Linear(inputs, sum(outputs), bias=bias)
    with torch.no_grad():
        for weight in layer.weight.split(outputs):
            nn.init.xavier_uniform_(weight)
        if bias:
            layer.bias.zero_()
    return layer


class Factored(nn.Module):
    """X (U D)^T + b: a linear map as a product of two, through so many numbers (its rank)."""

    def __init__(self, inputs: int, outputs: int, rank: int, *, bias: bool = True) -> None:
        super().__init__()
        self.down = linear(inputs, rank, bias=False)
        self.up = linear(rank, outputs, bias=bias)
        self.in_features, self.out_features = inputs, outputs

    def forward(self, x: Tensor) -> Tensor:
        """(... inputs) -> (... outputs)."""
        return self.up(self.down(x))

    @property
    def weight(self) -> Tensor:
        """U D, as the map would have it that is whole."""
        return self.up.weight @ self.down.weight

    @property
    def bias(self) -> Tensor:
        """That of the map."""
        return self.up.bias


def factor(model: nn.Module, ranks: dict[str, int], prefix: str = "") -> None:
    """Make products of the linear maps with some names, those of them that begin with a prefix."""
    for path, rank in ranks.items():
        if not path.startswith(prefix):
            continue
        owner, _, name = path.removeprefix(prefix).rpartition(".")
        try:
            whole = model.get_submodule(f"{owner}.{name}".strip("."))
        except AttributeError:
            whole = None
        if not isinstance(whole, nn.Linear):
            raise InputError(f"factors names {path!r}, which is no linear map of the model; leave it out.")
        product = Factored(whole.in_features, whole.out_features, rank, bias=whole.bias is not None)
        setattr(model.get_submodule(owner) if owner else model, name, product)
