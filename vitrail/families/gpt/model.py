"""GPT: what comes next, after all that came before (Radford et al. 2018, 2019)."""

from torch import Tensor

from vitrail.core import CAUSAL, Cache, Mask, unembedding
from vitrail.core.flat import FlatSteps, flat
from vitrail.families.gpt.config import GPTConfig
from vitrail.families.model import families
from vitrail.families.token_model import TokenModel


@families.add("gpt")
class GPT(TokenModel):
    """LN(blocks(embed(x), causal)) E^T: the logits of the token after each."""

    Config = GPTConfig
    task = "language"
    config: GPTConfig

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.logits = unembedding(config.width, config.tokens, self.embed if config.tied else None)

    def mask(self, tokens: Tensor) -> Mask:
        return CAUSAL & super().mask(tokens)

    def answer(self, stream: Tensor) -> Tensor:
        """(b n w) -> (b n tokens)."""
        return self.logits(self.norm(stream))

    def steps(self, tokens: Tensor) -> "CachedSteps":
        """For going on token by token after these (b n), the last of which is given to the first step."""
        return CachedSteps(self, tokens)


class CachedSteps:
    """The logits of what follows, step by step: of all rows at once."""

    def __init__(self, model: GPT, tokens: Tensor) -> None:
        self.model, self.device = model, tokens.device
        cache = Cache()
        if tokens.shape[1] > 1:
            model.stream(tokens[:, :-1], cache)
        self.cache, self.flat = cache, None
        if flat(model.encoder):
            self.flat = FlatSteps(model.encoder)
            self.flat.take(cache)

    @property
    def length(self) -> int:
        """How many tokens were seen."""
        return self.cache.length if self.flat is None else self.flat.length

    def __call__(self, tokens: Tensor) -> Tensor:
        """The last token of each row (b) -> the logits of the next (b tokens)."""
        model = self.model
        if self.flat is None:
            return model.answer(model.stream(tokens[:, None], self.cache))[:, 0]
        return model.answer(self.flat(model.embed(tokens[:, None], self.length)[:, 0]))

    def select(self, rows: Tensor, *, sources: bool = True) -> None:
        """Go on with these rows."""
        if self.flat is None:
            self.cache.select(rows, contexts=sources)
        else:
            self.flat.reorder(rows, contexts=sources)
