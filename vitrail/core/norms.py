"""Normalisation of tokens."""

from collections.abc import Callable

from torch import Tensor, nn

from vitrail.registry import Registry

norms: Registry[Callable[..., nn.Module]] = Registry("norm")


@norms.add("layer")
class LayerNorm(nn.LayerNorm):
    """(x - mean) / sqrt(var + eps) * gain + bias over the width of each token by itself (Ba et al. 2016)."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__(width, eps=eps)


@norms.add("batch")
class BatchNorm(nn.BatchNorm1d):
    """(x - mean) / sqrt(var + eps) * gain + bias, each channel over all tokens of the batch (Ioffe and Szegedy 2015).

    Evaluation uses the running mean and (unbiased) variance kept in training, so it does not look at the batch.
    """

    across_tokens = True  # in training, what becomes of a token depends on which others are there

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__(width, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(... w) -> (... w)."""
        return super().forward(x.flatten(0, -2)).view(x.shape)
