"""Heads, neurons and whole layers cut out: the tensors themselves get smaller, and the configuration says so."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitrail.core import activations, kernels
from vitrail.errors import InputError
from vitrail.families.shapes import TransformerShape
from vitrail.weights import Weights

STACK = "encoder"  # the blocks of a model that has one stack of them


@dataclass(frozen=True)
class Kept:
    """What stays of each layer: the numbers of its heads and of its neurons; None: all of them."""

    heads: Sequence[Sequence[int]] | None = None
    neurons: Sequence[Sequence[int]] | None = None


def cut(weights: Weights, kept: Kept) -> Weights:
    """Weights with some heads and neurons alone, each of which reads and writes as before."""
    config = checked(weights, heads=kept.heads is not None)
    for name, given in (("heads", kept.heads), ("neurons", kept.neurons)):
        if given is not None and len(given) != config.depth:
            raise InputError(
                f"{name} are given for {len(given)} layers, and there are {config.depth}; give each its own."
            )
    state, heads, hidden = dict(weights.state), list[int](), list[int]()
    for layer, (count, neurons) in enumerate(config.layers):
        block = f"{STACK}.{layer}."
        stay = _some("heads", layer, None if kept.heads is None else kept.heads[layer], count)
        if len(stay) < count:
            _cut_heads(state, f"{block}attention.f.", config, count, stay)
        alive = _some("neurons", layer, None if kept.neurons is None else kept.neurons[layer], neurons)
        if len(alive) < neurons:
            _cut_neurons(state, f"{block}feed_forward.f.", config, neurons, alive)
        heads.append(len(stay))
        hidden.append(len(alive))
    head = config.head or config.width // config.most_heads
    fields = {**config.model_dump(), "heads": heads, "hidden": hidden, "head": head}
    if heads == [config.heads] * config.depth:
        fields |= {"head": config.head}
    return replace(weights, config=type(config)(**fields), state=state)


def without_layers(weights: Weights, gone: Sequence[int]) -> Weights:
    """Weights without some layers, of the decoder where there is one, since it is run for each token anew; those that
    stay come one after another, as they were.
    """
    config, (stack, depth) = weights.config, layered(weights)
    beyond = [layer for layer in gone if not 0 <= layer < depth]
    if beyond:
        raise InputError(f"layer {beyond[0]} is not there; there are {depth}, counted from 0.")
    stay = [layer for layer in range(depth) if layer not in set(gone)]
    if not stay:
        raise InputError(f"all {depth} layers cannot be left out; keep one.")
    places = {f"{stack}.{old}": f"{stack}.{new}" for new, old in enumerate(stay)}
    state = {
        renamed: tensor
        for name, tensor in weights.state.items()
        if (renamed := _renamed(name, stack, places)) is not None
    }
    fields: dict[str, Any] = {**config.model_dump(), ("depth" if stack == STACK else stack): len(stay)}
    for name in ("heads", "hidden", "merge"):
        if isinstance(fields.get(name), tuple | list):
            fields[name] = [fields[name][layer] for layer in stay]
    factors = {_renamed(name, stack, places): rank for name, rank in config.factors.items()}
    fields["factors"] = {name: rank for name, rank in factors.items() if name is not None}
    if fields.get("last", 0) > len(stay):
        raise InputError(f"the head reads {fields['last']} layers, and {len(stay)} would be left; keep more.")
    return replace(weights, config=type(config)(**fields), state=state)


def layered(weights: Weights) -> tuple[str, int]:
    """The blocks of which some may go, as the model calls them, and how many there are."""
    if weights.family == "seq2seq":
        return "decoder", weights.config.decoder
    return STACK, checked(weights, heads=False).depth


def checked(weights: Weights, *, heads: bool = True) -> TransformerShape:
    """The configuration of weights of which layers and neurons can be cut, and heads, if they are to be."""
    config = weights.config
    if not isinstance(config, TransformerShape) or not any(name.startswith(f"{STACK}.0.") for name in weights.state):
        raise InputError(f"{weights.path!r} is a {weights.family}, which has no blocks with heads to cut.")
    if weights.family == "seq2seq":
        raise InputError(f"{weights.path!r} translates: whole layers of it can go, and nothing of a layer.")
    if not heads:
        return config
    if config.position == "relative":
        raise InputError(f"{weights.path!r} has position='relative', a bias for each head of all layers: none is cut.")
    if not kernels.make(config.kernel).bare:
        raise InputError(f"{weights.path!r} has kernel={config.kernel!r}, with weights of its own: none is cut.")
    return config


def _cut_heads(state: dict[str, Tensor], path: str, config: Any, count: int, stay: Sequence[int]) -> None:
    head = config.head or config.width // config.most_heads
    rank = config.rank or head
    keys, values = spread(stay, head), spread(stay, rank)
    _rows(state, f"{path}query", keys)
    _rows(state, f"{path}key_value", torch.cat([keys, count * head + values]))
    _columns(state, f"{path}out", values)


def _cut_neurons(state: dict[str, Tensor], path: str, config: Any, count: int, stay: Sequence[int]) -> None:
    takes = getattr(activations[config.activation](), "takes", 1)
    rows = torch.tensor(stay)
    _rows(state, f"{path}inner", torch.cat([part * count + rows for part in range(takes)]))
    _columns(state, f"{path}out", rows)


def _rows(state: dict[str, Tensor], path: str, rows: Tensor) -> None:
    """Some outputs of a map, which may be a product."""
    first = path if f"{path}.weight" in state else f"{path}.up"
    for name in (f"{first}.weight", f"{first}.bias"):
        if name in state:
            state[name] = state[name][rows].clone()


def _columns(state: dict[str, Tensor], path: str, columns: Tensor) -> None:
    """Some inputs of a map, likewise."""
    name = f"{path}.weight" if f"{path}.weight" in state else f"{path}.down.weight"
    state[name] = state[name][:, columns].clone()


def spread(groups: Sequence[int] | Tensor, wide: int) -> Tensor:
    """The rows of some groups, such as heads, of so many each."""
    return (torch.as_tensor(groups)[:, None] * wide + torch.arange(wide)).flatten()


def _some(what: str, layer: int, given: Sequence[int] | None, count: int) -> list[int]:
    """What stays of a layer, in order; something of what there was."""
    if given is None or not count:
        return list(range(count))
    stay = sorted(set(given))
    if not stay or stay[0] < 0 or stay[-1] >= count:
        raise InputError(f"{what}={list(given)} of layer {layer} does not fit; it has {count}, one of which stays.")
    return stay


def _renamed(name: str, stack: str, places: dict[str, str]) -> str | None:
    """A name with its layer's new number; None of a layer that is gone."""
    stem, layer, *rest = name.split(".")
    if stem != stack or not layer.isdigit():
        return name
    new = places.get(f"{stem}.{layer}")
    return None if new is None else ".".join([new, *rest])
