"""log p(class) + log N(x; mean of the class, covariance): the most probable class by Bayes' rule."""

from math import log, pi

import torch
from einops import rearrange
from torch import Tensor, nn

from vitrail.families.gaussian.config import GaussianConfig
from vitrail.families.model import families
from vitrail.families.picture_model import PictureModel


@families.add("gaussian")
class Gaussian(PictureModel):
    """Classes as Gaussians over the pixels. ``root`` is a matrix R with R R^T the inverse of the covariance (d d), one
    for each class (k d d), or one over the deviation of each pixel (k d).
    """

    Config = GaussianConfig
    config: GaussianConfig

    def __init__(self, config: GaussianConfig) -> None:
        super().__init__()
        self.config = config
        k, d = config.classes, config.numbers
        shape = {"shared": (d, d), "own": (k, d, d), "diagonal": (k, d)}[config.covariance]
        unit = torch.ones(shape) if config.covariance == "diagonal" else torch.eye(d).expand(shape).clone()
        self.prior = nn.Parameter(torch.full((k,), 1 / max(1, k)))
        self.mean = nn.Parameter(torch.zeros(k, d))
        self.root = nn.Parameter(unit)

    def stream(self, image: Tensor) -> Tensor:
        """(b c H W) -> the numbers of each picture (b 1 d)."""
        return rearrange(image, "b c y x -> b 1 (c y x)")

    def answer(self, stream: Tensor) -> Tensor:
        """(b 1 d) -> log p(class, x), (b k)."""
        return self.prior.log() + self.likelihood(stream[:, 0])

    def answers_and_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.answer(self.stream(image))
        return logits, logits

    def likelihood(self, x: Tensor) -> Tensor:
        """Pictures as numbers (b d) -> log p(x | class), (b k)."""
        d, root = x.shape[1], self.root
        if self.config.covariance == "shared":
            centre = self.mean.mean(0)  # from which both are near
            z, means = (x - centre) @ root, (self.mean - centre) @ root
            far = z.square().sum(1, keepdim=True) - 2 * z @ means.T + means.square().sum(1)
            volume = root.diagonal().abs().log().sum()
        else:
            apart = x[:, None] - self.mean
            z = apart * root if self.config.covariance == "diagonal" else torch.einsum("bkd,kde->bke", apart, root)
            far = z.square().sum(2)
            entries = root if self.config.covariance == "diagonal" else root.diagonal(dim1=1, dim2=2)
            volume = entries.abs().log().sum(1)
        return volume - (far + d * log(2 * pi)) / 2

    def by_pixel(self, x: Tensor, one: int, other: int) -> Tensor:
        """How much each number of a picture (d) speaks for one class against another: they sum to the logarithm of
        the ratio of their likelihoods, up to a number that no pixel has a part in.
        """
        return self._far(x, other) - self._far(x, one)

    def _far(self, x: Tensor, which: int) -> Tensor:
        """(x - mean) times (precision (x - mean)) / 2, number by number: how far it is, and by which of them."""
        apart, root = x - self.mean[which], self.root
        if self.config.covariance == "diagonal":
            return (apart * root[which]).square() / 2
        own = root if self.config.covariance == "shared" else root[which]
        return apart * (own @ (own.T @ apart)) / 2

    def drawn(self, which: int, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Pictures (m c H W) as the Gaussian of a class has them: mean + R^-T e."""
        noise = torch.randn(count, self.config.numbers, generator=generator, dtype=self.mean.dtype)
        if self.config.covariance == "diagonal":
            spread = noise / self.root[which]
        else:
            own = self.root if self.config.covariance == "shared" else self.root[which]
            spread = torch.linalg.solve_triangular(own.T, noise.T, upper=False).T
        return self.pictured(self.mean[which] + spread)

    def pictured(self, numbers: Tensor) -> Tensor:
        """(m d) -> (m c H W)."""
        c = self.config
        return rearrange(numbers, "m (c y x) -> m c y x", c=c.channels, y=c.size[0])

    def summary(self) -> str:
        c = self.config
        what = {"shared": "one covariance", "own": "a covariance each", "diagonal": "variances each"}[c.covariance]
        sides = f"{c.size[0]} x {c.size[1]} pixels, {c.channels} channel{'s' * (c.channels > 1)}"
        return f"{sides}, {c.classes} Gaussians, {what}"
