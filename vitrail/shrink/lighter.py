"""The same model for less: maps as products, tokens merged, few bits."""

from dataclasses import replace
from typing import Any

from vitrail.errors import InputError
from vitrail.families import empty
from vitrail.shrink.answers import runs_as_bytes
from vitrail.shrink.factor import counts, factored, factored_tables, inputs, maps, ranks, spectra, tables
from vitrail.shrink.way import EVEN, Change, Made, Workshop, as_number, count_or_share, ways
from vitrail.weights import Weights


@ways.add("factor")
class Factor(Change):
    """Linear maps as products of two, the rank of each chosen by what comes through it."""

    about = "linear maps as products of two, ranks chosen by what comes through"
    usual = 0.4
    bare = True

    def check(self, weights: Weights) -> None:
        if not maps(empty(weights.config)):
            raise InputError(f"{weights.path!r} has no linear maps that are whole, so that none is factored.")

    def make(self, weights: Weights, shop: Workshop) -> Made:
        self.check(weights)
        model = weights.model().float()
        whole = {path: one.weight.detach() for path, one in maps(model).items()}
        seen = None
        if shop.task is not None:
            seen = inputs(model, shop.loss, shop.batches(model, passes=2))
            whole = {path: weight for path, weight in whole.items() if path in seen}
        chosen = ranks(whole, spectra(whole, seen), 1 - self.fraction)
        chosen = {path: max(EVEN, rank // EVEN * EVEN) for path, rank in chosen.items()}
        chosen = {path: rank for path, rank in chosen.items() if rank * sum(whole[path].shape) < whole[path].numel()}
        if not chosen:
            raise InputError(f"no map of {weights.path!r} would be smaller as a product; leave factor out.")
        low, high = min(chosen.values()), max(chosen.values())
        how = "" if seen is None else ", by what comes in"
        note = f"{len(chosen)} of {len(maps(model))} maps as products of ranks {low} to {high}{how}"
        made = factored(weights, chosen, seen)
        size = max((table.weight.shape for table in tables(model).values()), default=None)
        if size is None:
            return Made(made, note)
        inner = int((1 - self.fraction) * size.numel() / sum(size)) // EVEN * EVEN
        if inner < EVEN:
            return Made(made, note)
        often = None if shop.task is None else counts(model, shop.loss, shop.batches(model, passes=2))
        return Made(factored_tables(made, inner, often), f"{note}; tables of tokens through {inner} numbers")


@ways.add("merge")
class Merge(Change):
    """Similar tokens merged on the way (ToMe), a number in each layer."""

    about = "similar tokens merged on the way (ToMe), so many in each layer"
    usual = 0.5
    trains = False
    bare = True

    @classmethod
    def checked(cls, amount: float | str) -> float:
        return count_or_share(cls, amount, "how many tokens go in each layer, or which fraction in all")

    def milder(self, weights: Weights) -> "Merge | None":  # noqa: ARG002
        half = self.fraction / 2 if self.fraction < 1 else self.fraction // 2
        return Merge(half) if half else None

    def check(self, weights: Weights) -> None:
        if weights.family != "vit":
            raise InputError(f"{weights.path!r} is a {weights.family}; tokens are merged in a ViT, of patches.")
        self._merging(weights.config)

    def _merging(self, config: Any) -> Any:
        many = (
            int(self.fraction) if self.fraction >= 1 else max(1, round(self.fraction * config.patches / config.depth))
        )
        return type(config)(**{**config.model_dump(), "merge": many})

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        config, other = weights.config, self._merging(weights.config)
        many = other.merge
        gone = min(config.patches - 1, many * config.depth)
        return Made(replace(weights, config=other), f"{many} tokens merged in each layer, {gone} of {config.patches}")


@ways.add("quantize")
class Quantize(Change):
    """Few bits for each number: int8 runs as such, by ONNX Runtime; 1 to 8 are of the file alone."""

    about = "few bits: int8 runs as such, by ONNX Runtime; 1 to 8 are of the file alone"
    usual = "int8"
    trains = False
    bare = True

    @classmethod
    def checked(cls, amount: float | str) -> float | str:
        number = as_number(amount)
        if amount == "int8" or (number is not None and number == int(number) and 1 <= number <= 8):  # noqa: PLR2004
            return "int8" if number is None else int(number)
        raise InputError(f"{amount!r} is no amount for quantize; give int8, or how many bits: 4, or 8.")

    def milder(self, weights: Weights) -> "Quantize | None":
        if self.amount == "int8":
            return None if weights.pictures else Quantize(8)
        return Quantize(min(8, int(self.amount) + 2)) if self.amount != 8 else None  # noqa: PLR2004

    def check(self, weights: Weights) -> None:
        if self.amount == "int8" and not runs_as_bytes(weights):
            raise InputError(
                f"{weights.path!r} is a {weights.family}; int8 is of ViTs and CNNs, and of models that translate "
                f"token by token with plain attention: choose quantize=8."
            )

    def make(self, weights: Weights, shop: Workshop) -> Made:
        del shop
        self.check(weights)
        if self.amount != "int8":
            return Made(weights, f"{self.amount} bits for each number of a matrix", bits=int(self.amount))
        what = (
            "kernels of eight bits, run as floats"
            if weights.family == "cnn"
            else "weights and activations of eight bits"
        )
        return Made(weights, what, bits=8, int8=True)
