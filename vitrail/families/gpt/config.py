"""The shape of a GPT."""

from vitrail.families.catalogue import Cost
from vitrail.families.token_shape import TokenShape


class GPTConfig(TokenShape):
    """The shape of a decoder without an encoder (Radford et al. 2019)."""

    activation: str = "gelu-tanh"
    eps: float = 1e-5

    def answer_cost(self) -> list[Cost]:
        return [Cost(0 if self.tied else self.width * self.tokens, self.shown * self.width * self.tokens)]
