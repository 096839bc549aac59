"""What the formats of ViTs share: reading one with all that is said about it, and writing what has a place there."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitrail.data.normalise import NORMALISATIONS
from vitrail.errors import InputError
from vitrail.families.vit.config import ViTConfig
from vitrail.files import write_json
from vitrail.weights.files import Tensors, listed, write_tensors
from vitrail.weights.formats.base import Format, Request
from vitrail.weights.formats.vit.hints import Hints, hints_by_user, hints_of
from vitrail.weights.formats.vit.names import ViTMoves
from vitrail.weights.formats.vit.shape import Known, Shape
from vitrail.weights.moves import moved
from vitrail.weights.weights import (
    Usage,
    Weights,
    checked_config,
    described,
    stated_fit,
    stated_labels,
    stated_normalise,
)

HYBRIDS = ("patch", "resnet50", "resnet50-all", "resnet26", "resnet-root")
HALF, IMAGENET = NORMALISATIONS["half"], NORMALISATIONS["imagenet"]


class ViTFormat(Shape, Format):
    """One library's way to keep a ViT."""

    family = "vit"
    kinds: ClassVar[tuple[str, ...]] = (".safetensors", ".pt", ".pth", ".bin")
    stems: ClassVar[tuple[str, ...]] = ("patch",)
    orders: ClassVar[tuple[str, ...]] = ("pre",)

    def recognises(self, tensors: Tensors) -> bool:
        """Whether a file is of this format."""
        return self.patch_weight in tensors and self.names.norm1.format(0) + f"{self.layout.dot}bias" in tensors

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:
        path = str(location)
        config: Any = None
        user_hints = hints_by_user(request)
        if user_hints.order not in (None, *self.orders):
            raise InputError(
                f"order={user_hints.order!r} cannot be: weights of {self.name} have {' or '.join(self.orders)}."
            )
        if about is None:
            stated = hints_of(location if location.is_dir() else location.parent)
            request.check(path, stated)
            hints = user_hints.over(stated)
        else:
            config = checked_config(path, self.family, about["model"], tensors)
            request.check(path, config)
            labels = stated_labels(about.get("labels"), path)
            normalise = request.normalise or stated_normalise(about, path)
            hints = replace(user_hints, image=config.size, pool=config.pool, normalise=normalise, labels=labels)
        known = self.understand(tensors, hints)
        config = config or checked_config(path, self.family, self.fields(known, hints), tensors)
        if user_hints.pool not in (None, config.pool):
            raise InputError(f"answers={user_hints.pool!r} cannot be: in weights of {self.name} it is {config.pool!r}.")
        state, over = moved(path, self.name, self.moves(config), known.tensors, strict=request.strict)
        notes = [*known.notes, *([f"left out: {listed(over, len(over))}"] if over else [])]
        labels = hints.labels if hints.labels is not None and len(hints.labels) == config.classes else None
        normalise, assumed = hints.normalise, ""
        if normalise is None and known.normalise is not None and about is None:
            normalise = known.normalise
            name = next(name for name, value in NORMALISATIONS.items() if value == normalise)
            assumed = f"nothing says how pictures are normalised; {name!r} is assumed, as most such weights want it"
        if normalise is not None and len(normalise.mean) != config.channels:
            normalise, assumed = None, ""
        fit = stated_fit(about or {})
        return Weights(path, self.name, self.family, config, _one_type(state), normalise, labels, notes, assumed, fit)

    def write(self, path: Path, config: ViTConfig, state: dict[str, Tensor], usage: Usage) -> None:
        refused = self._refusal(config)
        if refused:
            raise InputError(f"{refused}, which {self.name} has no place for; choose format='vitrail'.")
        if usage.labels is not None and len(usage.labels) != config.classes:
            raise InputError(f"{len(usage.labels)} labels do not fit a model with {config.classes} classes.")
        tensors: dict[str, Tensor] = {}
        left = set(state)
        for move in self.moves(config):
            tensors |= move.write(state)
            left -= {name for name, _ in move.ours}
        if left:
            raise InputError(f"{self.name} has no place for {min(left)!r}; choose format='vitrail'.")
        finished = self.finish(tensors, config)
        laid = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in finished.items()}
        self.put(path, config, laid, usage)

    def put(self, path: Path, config: ViTConfig, tensors: dict[str, Tensor], usage: Usage) -> None:
        """Write the tensors into a file, and what it cannot say into NAME.json beside it."""
        write_tensors(path, tensors, self.name, self.kinds)
        write_json(path.with_name(f"{path.name}.json"), described(config, self.name, usage))

    def _refusal(self, config: ViTConfig) -> str:
        """What of a model the format cannot hold."""
        plain: dict[str, tuple[Any, ...]] = {
            "kernel": ("softmax",),
            "norm": ("layer",),
            "order": ("pre",),
            "rank": (None,),
            "tokens": (0,),
            "merge": (0,),
            "factors": ({},),
            "position": ("learned",),
            "pool": ("class", "mean", "distilled"),
            "last": (1,),
            "stem": self.stems,
            "heads": (config.heads,) if isinstance(config.heads, int) else (),
            "hidden": (config.hidden,) if isinstance(config.hidden, int) else (),
        }
        named = {"registers": "registers", "layer_scale": "scale1", "prelogits": "prelogits", "norm_last": "norm_last"}
        for name, theirs in named.items():
            if not getattr(self.names, theirs):
                plain[name] = (0, None, False)
        for name, values in {**plain, **self.allowed(config)}.items():
            if getattr(config, name) not in values:
                return f"the model has {name}={getattr(config, name)!r}"
        return ""

    def understand(self, tensors: Tensors, hints: Hints) -> Known:  # noqa: ARG002
        """The tensors under the names that the moves know."""
        return Known(dict(tensors))

    def finish(self, tensors: dict[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:  # noqa: ARG002
        """What is written, where the library wants it other than the moves have it."""
        return tensors

    def allowed(self, config: ViTConfig) -> dict[str, tuple[Any, ...]]:  # noqa: ARG002
        """The values that fields may have in this format, where not all can be kept."""
        return {}

    def moves(self, config: ViTConfig) -> ViTMoves:
        """The moves between a model of ours and this format."""
        return ViTMoves(self.names, self.layout, config)


def _one_type(state: dict[str, Tensor]) -> dict[str, Tensor]:
    types = {tensor.dtype for tensor in state.values()}
    wanted = types.pop() if len(types) == 1 else torch.float32
    return {name: tensor.to(wanted) for name, tensor in state.items()}
