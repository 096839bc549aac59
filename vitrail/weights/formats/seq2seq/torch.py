"""PyTorch's own nn.Transformer, with embeddings and an output under names that people give them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from vitrail.errors import InputError, unknown
from vitrail.families.seq2seq.config import Seq2SeqConfig
from vitrail.weights.files import Lazy, Tensors, listed
from vitrail.weights.formats.base import Format, Request, formats
from vitrail.weights.formats.seq2seq.moves import Moves, Names, SideNames
from vitrail.weights.weights import Usage, Weights, checked_config

FIRST = ".layers.0.{}.in_proj_weight"  # of a stack
WORDS = {  # that the names of the parts around it have in them
    "source": r"src|source|enc|input|(^|\W)in(_|$|\W)",
    "target": r"tgt|trg|target|dec|output|out_emb",
    "logits": r"generator|fc|head|proj|logit|unembed|classifier|linear|out",
}
EMBEDDING, POSITION = r"emb|tok|word|vocab|lut", r"pos|^pe$|\.pe$"
PARTS = ("source", "target", "logits")


@formats.add("torch-seq2seq")
class TorchSeq2Seq(Format):
    """nn.Transformer, as it is taught: embeddings before it, positions that are computed or learned, a map after it."""

    name = "nn.Transformer"
    family = "seq2seq"

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self.given = dict(names or {})
        for part in self.given:
            if part not in PARTS:
                raise unknown("part", part, PARTS)

    def recognises(self, tensors: Tensors) -> bool:
        return any(name.endswith(FIRST.format("multihead_attn")) for name in tensors)

    def read(self, location: Path, tensors: Tensors, about: dict[str, Any] | None, request: Request) -> Weights:  # noqa: ARG002
        path, stated = str(location), request.stated
        known = dict(tensors)
        stacks = _stacks(known)
        inside = tuple(f"{stack}.{part}." for stack in stacks for part in ("layers", "norm"))
        around = {name: lazy for name, lazy in known.items() if not name.startswith(inside)}
        width = known[stacks[0] + FIRST.format("self_attn")].shape[1]
        outer = _around(around, width, self.given)
        notes = [f"{part}: {name}" for part, name in outer.items() if name]
        positions = _positions(around, width, set(outer.values()))
        fields = _fields(known, stacks, width, outer, positions)
        notes += _assumed(fields, stated)
        known, waves = _with_positions(known, positions)
        if waves:
            fields["position"] = "sinusoidal"
        config = checked_config(path, self.family, {**fields, **stated}, tensors)
        if config.shared:
            known.pop(outer["target"], None) if outer["target"] != outer["source"] else None
        if config.tied:
            known.pop(outer["logits"], None) if outer["logits"] not in (outer["source"], outer["target"]) else None
        moves = Moves(_names(stacks, outer, positions), config)
        state, over = moves.read(path, self.name, known, strict=request.strict)
        notes += [f"left out: {listed(over)}"] if over else []
        return Weights(path, self.name, self.family, config, state, notes=notes)

    def write(self, path: Path, config: Seq2SeqConfig, state: dict[str, Tensor], usage: Usage) -> None:  # noqa: ARG002
        raise InputError("nn.Transformer has no format of its own to write; choose format='vitrail' or 'hf'.")


def _stacks(known: dict[str, Lazy]) -> tuple[str, str]:
    """What the names of the encoder and of the decoder begin with."""
    first, cross = FIRST.format("self_attn"), FIRST.format("multihead_attn")
    every = [name.removesuffix(first) for name in known if name.endswith(first)]
    decoders = [stack for stack in every if stack + cross in known]
    encoders = [stack for stack in every if stack not in decoders]
    if len(encoders) != 1 or len(decoders) != 1:
        raise InputError(f"{listed(every)} are no encoder and decoder, one of each; leave the others out.")
    return encoders[0], decoders[0]


def _around(around: dict[str, Lazy], width: int, given: dict[str, str]) -> dict[str, str]:
    """Which tensor is the embedding of the sources, of the targets, and the output's map."""
    for part, name in given.items():
        if name not in around:
            raise InputError(
                f"{name!r}, which should be {part}, is not in the file, whose others are {listed(sorted(around))}."
            )
    tables = {
        name: lazy.shape
        for name, lazy in around.items()
        if len(lazy.shape) == 2 and lazy.shape[1] == width and not re.search(POSITION, name.lower())  # noqa: PLR2004
    }
    outer = dict(given)
    biased = [name for name in tables if name.replace("weight", "bias") in around and name.endswith("weight")]
    words = {name: name.lower() for name in tables}
    if "logits" not in outer:
        maps = biased or [
            name for name in tables if re.search(WORDS["logits"], words[name]) and "emb" not in words[name]
        ]
        outer["logits"] = maps[0] if len(maps) == 1 else ""
        if len(maps) > 1:
            raise InputError(
                f"which of {listed(maps)} is the output is not clear; name it with names={{'logits': ...}}."
            )
    rest = [name for name in tables if name != outer["logits"]]
    for part in ("source", "target"):
        if part not in outer:
            likely = [name for name in rest if re.search(WORDS[part], words[name])]
            likely = likely if len(likely) == 1 else rest if len(rest) == 1 else likely
            if len(likely) != 1:
                what = listed(rest) if rest else "there is none"
                raise InputError(
                    f"which tensor is the embedding of the {part}s is not clear ({what}); name it with "
                    f"names={{{part!r}: ...}}."
                )
            outer[part] = likely[0]
    over = [name for name in tables if name not in outer.values()]
    if not outer["logits"] and over:
        raise InputError(
            f"which tensor is the output is not clear ({listed(over)}); name it with names={{'logits': ...}}."
        )
    return outer


def _positions(around: dict[str, Lazy], width: int, taken: set[str]) -> list[str]:
    """Tensors that hold a row for each position: one for both sides, or one each."""
    names = [
        name
        for name, lazy in around.items()
        if name not in taken
        and lazy.shape[-1:] == (width,)
        and len(lazy.shape) > 1
        and re.search(POSITION, name.lower())
    ]
    if len(names) > 2:  # noqa: PLR2004
        raise InputError(f"which of {listed(names)} are the positions is not clear; leave the others out.")
    return sorted(names, key=lambda name: bool(re.search(WORDS["target"], name.lower())))


def _with_positions(known: dict[str, Lazy], positions: list[str]) -> tuple[dict[str, Lazy], bool]:
    """With positions as rows; without those that are the waves of the paper, which are computed."""
    from vitrail.core import positions as kinds  # noqa: PLC0415

    waves = bool(positions)
    for name in positions:
        table = known[name].numbers().flatten(0, -2)
        known[name] = Lazy.of(name, table)
        computed = kinds["sinusoidal"]((1, len(table)), table.shape[1], 1).along(len(table))
        waves &= computed is not None and bool(((computed - table).abs() < 1e-3).all())  # noqa: PLR2004
    if waves:
        for name in positions:
            del known[name]
    return known, waves


def _fields(
    known: dict[str, Lazy], stacks: tuple[str, str], width: int, outer: dict[str, str], positions: list[str]
) -> dict[str, Any]:
    source, target, logits = (known[outer[part]].shape[0] if outer[part] else 0 for part in PARTS)
    both = outer["source"] == outer["target"]
    same = both or (source == target and _equal(known, outer["source"], outer["target"]))
    tied = not logits or outer["logits"] == outer["target"] or _equal(known, outer["logits"], outer["target"])
    depths = [
        1 + max(int(m[1]) for name in known if (m := re.match(re.escape(stack) + r"\.layers\.(\d+)\.", name)))
        for stack in stacks
    ]
    return {
        "source": source,
        "target": target,
        "width": width,
        "depth": depths[0],
        "decoder": depths[1],
        "heads": 8 if width % 8 == 0 else max(1, width // 64),
        "hidden": known[f"{stacks[0]}.layers.0.linear1.weight"].shape[0],
        "length": known[positions[0]].numbers().flatten(0, -2).shape[0] if positions else 512,
        "shared": same,
        "tied": tied,
        "output_bias": bool(outer["logits"]) and outer["logits"].replace("weight", "bias") in known,
        "position": "learned" if positions else "sinusoidal",
        "norm_last": f"{stacks[0]}.norm.weight" in known,
        "order": "post",
        "activation": "relu",
    }


def _assumed(fields: dict[str, Any], stated: dict[str, Any]) -> list[str]:
    """What no tensor says."""
    usual = {name: fields[name] for name in ("heads", "order", "activation")} | {"scaled": True, "pad": 0}
    usual |= {"begin": 1, "end": 2}
    assumed = [f"{name}={value}" for name, value in usual.items() if name not in stated]
    return [f"assumed, as no tensor says it: {', '.join(assumed)}"] if assumed else []


def _equal(known: dict[str, Lazy], one: str, other: str) -> bool:
    a, b = known[one], known[other]
    return a.shape == b.shape and bool((a.numbers() == b.numbers()).all())


def _names(stacks: tuple[str, str], outer: dict[str, str], positions: list[str]) -> Names:
    def side(stack: str, embed: str, position: str, *, cross: bool) -> SideNames:
        layer = f"{stack}.layers.{{}}"
        return SideNames(
            attention=(f"{layer}.self_attn.in_proj",),
            out=f"{layer}.self_attn.out_proj",
            norm1=f"{layer}.norm1",
            inner=f"{layer}.linear1",
            outer=f"{layer}.linear2",
            norm2=f"{layer}.norm3" if cross else f"{layer}.norm2",
            cross=(f"{layer}.multihead_attn.in_proj",) if cross else (),
            cross_out=f"{layer}.multihead_attn.out_proj",
            cross_norm=f"{layer}.norm2",
            norm=f"{stack}.norm",
            embed=embed,
            position=position,
            separator="_",
        )

    first, last = (positions[0], positions[-1]) if positions else ("", "")
    sides = (
        side(stacks[0], outer["source"], first, cross=False),
        side(stacks[1], outer["target"], last, cross=True),
    )
    return Names(*sides, outer["logits"], outer["logits"].replace("weight", "bias"))
