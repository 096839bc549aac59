"""Logistic regression: softmax(x W + b) of the pixels."""

from einops import rearrange
from torch import Tensor, nn

from vitrail.core import Head
from vitrail.families.linear.config import LinearConfig
from vitrail.families.model import families
from vitrail.families.picture_model import PictureModel


@families.add("linear")
class Linear(PictureModel):
    """head(pixels)."""

    Config = LinearConfig
    config: LinearConfig

    def __init__(self, config: LinearConfig) -> None:
        super().__init__()
        self.config = config
        self.head = Head(config.numbers, config.classes)
        if config.classes:
            nn.init.zeros_(self.head.logits.weight)  # from which the loss has one lowest place to go to

    def stream(self, image: Tensor) -> Tensor:
        """(b c H W) -> the numbers of each picture (b 1 d)."""
        return rearrange(image, "b c y x -> b 1 (c y x)")

    def answer(self, stream: Tensor) -> Tensor:
        """(b 1 d) -> logits (b classes)."""
        return self.head(stream[:, 0])

    def answers_and_features(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stream(image)
        return self.answer(x), x[:, 0]

    def summary(self) -> str:
        c = self.config
        sides = f"{c.size[0]} x {c.size[1]} pixels, {c.channels} channel{'s' * (c.channels > 1)}"
        return f"{sides}, one linear map"
