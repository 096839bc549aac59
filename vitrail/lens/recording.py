"""What happened inside a model, seen while the fast path runs."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import index
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import Sublayer
from vitrail.core.kernels import Kernel
from vitrail.errors import InputError, unknown
from vitrail.families import Model
from vitrail.lens.hooks import Lens, Visit, opened

Selection: TypeAlias = int | Sequence[int] | slice | None
T = TypeVar("T")
WEIGHTS = 4_000_000  # of a pattern that are in memory together


@contextmanager
def record(model: nn.Module) -> Iterator["Trace"]:
    """Record every call of a model made inside the ``with`` block, in this thread.

    The output is bit for bit what it is without: the hooks only look, and patterns are derived from q and k afterwards.
    A compiled model runs uncompiled meanwhile.
    """
    trace = Trace(inner(model))
    with opened(trace):
        yield trace


def inner(model: nn.Module) -> nn.Module:
    """The model itself, of one that was compiled."""
    return getattr(model, "_orig_mod", model)


def sites(model: nn.Module) -> dict[str, tuple[Kernel, nn.Module]]:
    """The attentions of a model by name, in order: the kernel, and the module that owns it.

    Layers that share their weights have a site each.
    """
    named = {}
    model = inner(model)
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, Kernel):
            owner = path.rpartition(".")[0]
            name = owner.removesuffix(".f") or "attention"  # encoder.0.attention.f is the site encoder.0.attention
            named[name] = (module, model.get_submodule(owner))
    return named


def layer_sites(model: Model) -> list[str | None]:
    """The attention between the tokens of each block, by name; None of a block that has none."""
    names = _paths((name, owner) for name, (_, owner) in sites(model).items())
    turns = {owner: iter(paths) for owner, paths in names.items()}
    return [None if block.attention is None else next(turns[block.attention.f]) for block in model.blocks]


def _paths(named: Iterable[tuple[str, nn.Module]]) -> dict[nn.Module, list[str]]:
    """All paths of each module, in order: several, where layers share it."""
    paths: dict[nn.Module, list[str]] = {}
    for path, module in named:
        paths.setdefault(module, []).append(path)
    return paths


class Trace(Lens):
    """What was recorded. A site goes by its name or its number; ``call`` counts its passages, the last by default.

    Tensors are those of the model itself, not copies, with the history of their gradients if there is one.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        known = sites(model)
        self._kernels = _paths((name, kernel) for name, (kernel, _) in known.items())
        self._owners = {name: owner for name, (_, owner) in known.items()}
        every = model.named_modules(remove_duplicate=False)
        self._sublayers = _paths((path, module) for path, module in every if isinstance(module, Sublayer))
        self._passed: Counter[nn.Module] = Counter()
        self._visits: dict[str, list[Visit]] = {}
        self._stream: dict[str, list[tuple[Tensor, Tensor]]] = {}

    def modules(self) -> list[nn.Module]:
        return [*self._kernels, *self._sublayers]

    def names(self) -> list[str]:
        """The attention sites that were passed, in order."""
        return list(self._visits)

    def calls(self, name: str | int = 0) -> int:
        """How often a site was passed."""
        return len(self._at(name)) if self._visits else 0

    def q(self, name: str | int, call: int = -1) -> Tensor:
        """The queries, (b h i d)."""
        return self.visit(name, call).q

    def k(self, name: str | int, call: int = -1) -> Tensor:
        """The keys, (b h j d)."""
        return self.visit(name, call).k

    def v(self, name: str | int, call: int = -1) -> Tensor:
        """The values, (b h j r)."""
        return self.visit(name, call).v

    def z(self, name: str | int, call: int = -1) -> Tensor:
        """What each head reads, A v, (b h i r)."""
        return self.visit(name, call).z

    def pattern(self, name: str | int, *, heads: Selection = None, rows: Selection = None, call: int = -1) -> Tensor:
        """A(q, k), (b h i j), of all or of the chosen heads and query rows; no other is computed."""
        visit = self.visit(name, call)
        heads, rows = _index("heads", heads, visit.q.shape[1]), _index("rows", rows, visit.q.shape[2])
        return visit.rows(heads, rows)

    def in_rows(self, name: str | int, *, heads: Selection = None, call: int = -1) -> Iterator[tuple[slice, Tensor]]:
        """The whole pattern, some query rows at a time: which, and A of them, (b h rows j)."""
        visit = self.visit(name, call)
        (b, h, n), keys = visit.q.shape[:3], visit.k.shape[2]
        step = max(1, WEIGHTS // (b * h * keys)) if visit.in_parts else n
        for start in range(0, n, step):
            rows = slice(start, min(n, start + step))
            yield rows, self.pattern(name, heads=heads, rows=rows, call=call)

    def heads(self, name: str | int, *, heads: Selection = None, rows: Selection = None, call: int = -1) -> Tensor:
        """What each head writes, z_h W_O,h, (b h i w); with the output's bias they sum to the attention's output."""
        z, attention = self.visit(name, call).z, self._owners[self._known(name)]
        if not isinstance(attention, Attention):
            raise InputError(
                f"{name!r} is a {type(attention).__name__}, which has no output matrix; look at z instead."
            )
        heads, rows = _index("heads", heads, z.shape[1]), _index("rows", rows, z.shape[2])
        return attention.contributions(z[:, heads][:, :, rows], heads)

    def residual(self, within: str = "", call: int = -1) -> Tensor:
        """The residual stream, (s b n w): as it came in, then after each sublayer; of one part, if it is named."""
        inside = {
            name: visits
            for name, visits in self._stream.items()
            if f"{name}.".startswith(f"{within}." if within else "")
        }
        if not inside:
            raise InputError(f"no sublayer within {within!r} was recorded; those recorded are {self.sublayers()}.")
        if len({len(visits) for visits in inside.values()}) > 1:
            raise InputError(
                "some sublayers were passed more often than others, as layer_drop does; record one call at a time."
            )
        parts = [_pick(name, visits, call) for name, visits in inside.items()]
        if len({after.shape for _, after in parts}) > 1:
            raise InputError("the streams recorded differ in shape; name one part, such as residual('encoder').")
        return torch.stack([parts[0][0], *(after for _, after in parts)])

    def sublayers(self) -> list[str]:
        """The names of the sublayers in order: residual()[s + 1] is the stream as sublayer s left it."""
        return list(self._stream)

    def see_kernel(self, kernel: Kernel, visit: Visit) -> None:
        if kernel in self._kernels:
            self._visits.setdefault(self._turn(kernel, self._kernels[kernel]), []).append(visit)

    def see_sublayer(self, sublayer: Sublayer, before: Tensor, after: Tensor) -> None:
        if sublayer in self._sublayers:
            self._stream.setdefault(self._turn(sublayer, self._sublayers[sublayer]), []).append((before, after))

    def _turn(self, module: nn.Module, paths: list[str]) -> str:
        """Which of its places a module that several layers share is passed at: they take turns."""
        self._passed[module] += 1
        return paths[(self._passed[module] - 1) % len(paths)]

    def visit(self, name: str | int, call: int = -1) -> Visit:
        """All of one passage."""
        return _pick(self._known(name), self._at(name), call)

    def _at(self, name: str | int) -> list[Visit]:
        return self._visits[self._known(name)]

    def _known(self, name: str | int) -> str:
        if not self._visits:
            kind = type(self.model).__name__
            raise InputError(f"no attention was recorded in {kind}; call the model inside the with block.")
        if isinstance(name, int) and -len(self._visits) <= name < len(self._visits):
            return self.names()[name]
        if name not in self._visits:
            raise unknown("attention site", name, self._visits)
        return str(name)


def _pick(name: str, visits: list[T], call: int) -> T:
    if not -len(visits) <= call < len(visits):
        raise InputError(
            f"call={call} of {name!r} was not recorded; it was passed {len(visits)} times, counted from 0."
        )
    return visits[call]


def _index(axis: str, chosen: Selection, size: int) -> list[int] | slice:
    """One, some or all positions of an axis, which stays."""
    if chosen is None or isinstance(chosen, slice):
        return slice(None) if chosen is None else chosen
    chosen = [index(i) for i in (chosen if isinstance(chosen, Sequence) else [chosen])]
    beyond = [i for i in chosen if not -size <= i < size]
    if beyond:
        raise InputError(f"{axis}={beyond[0]} is not there; there are {size}, counted from 0.")
    return chosen
