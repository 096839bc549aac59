"""Changes inside a model while it runs: of what attends to what, and of what the heads read."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.kernels import Kernel
from vitrail.errors import InputError, unknown
from vitrail.lens.hooks import Change, Lens, opened
from vitrail.lens.recording import inner, sites


@contextmanager
def edit(model: nn.Module) -> Iterator["Edits"]:
    """Change patterns, or what heads read, in every call made inside the ``with`` block, in this thread.

    with vt.edit(model) as edits:
        edits.pattern("encoder.3.attention", lambda a: a.mean(-2, keepdim=True).expand_as(a))
        edits.silence(5, heads=[0, 2])
        model(images)

    What ``record`` sees inside is what then happens, patterns included; a change that is random is drawn anew when a
    pattern is derived. Nothing of it is left behind.
    """
    edits = Edits(inner(model))
    with opened(edits):
        try:
            yield edits
        finally:
            edits.undo()


class Edits(Lens):
    """Changes by site: its name, its number, or None for all. Several of one site are made one after another, those of
    the pattern first. Layers that share their weights are changed together.
    """

    changes_rows = True  # a change may look at all queries

    def __init__(self, model: nn.Module) -> None:
        self._sites = sites(model)
        self._patterns: dict[Kernel, tuple[Change, ...]] = {}
        self._reads: dict[Kernel, tuple[Change, ...]] = {}

    def pattern(self, site: str | int | None, change: Change) -> None:
        """Put change(A) in the place of A, (b h i j), computed beside the fast way, which does not have it."""
        for name in self._names(site):
            self._add(self._patterns, name, change)

    def z(self, site: str | int | None, change: Change) -> None:
        """Put change(z) in the place of z, (b h i r), which is what each head reads."""
        for name in self._names(site):
            self._add(self._reads, name, change)

    def silence(self, site: str | int | None, heads: int | Sequence[int]) -> None:
        """Let some heads read nothing: z_h = 0. With None, of every attention that has several."""
        chosen = [heads] if isinstance(heads, int) else list(heads)

        def silent(z: Tensor) -> Tensor:
            beyond = [head for head in chosen if not -z.shape[1] <= head < z.shape[1]]
            if beyond:
                raise InputError(f"heads={beyond[0]} is not there; there are {z.shape[1]}, counted from 0.")
            keep = z.new_ones(z.shape[1])
            keep[chosen] = 0
            return z * keep[:, None, None]

        for name in self._names(site):
            if site is not None or isinstance(self._sites[name][1], Attention):
                self._add(self._reads, name, silent)

    def undo(self) -> None:
        """Take all changes back."""
        self._patterns.clear()
        self._reads.clear()

    def modules(self) -> list[nn.Module]:
        return list(dict.fromkeys(kernel for kernel, _ in self._sites.values()))

    def pattern_changes(self, kernel: Kernel) -> tuple[Change, ...]:
        return self._patterns.get(kernel, ())

    def z_changes(self, kernel: Kernel) -> tuple[Change, ...]:
        return self._reads.get(kernel, ())

    def _add(self, changes: dict[Kernel, tuple[Change, ...]], name: str, change: Change) -> None:
        kernel = self._sites[name][0]
        changes[kernel] = (*changes.get(kernel, ()), _checked(name, change))

    def _names(self, site: str | int | None) -> list[str]:
        known = list(self._sites)
        if not known:
            raise InputError("the model has no attention that could be changed.")
        if site is None:
            return known
        if isinstance(site, int) and -len(known) <= site < len(known):
            return [known[site]]
        if site not in self._sites:
            raise unknown("attention site", site, known)
        return [str(site)]


def _checked(name: str, change: Change) -> Change:
    def checked(before: Tensor) -> Tensor:
        after: Any = change(before)
        if not isinstance(after, Tensor) or after.shape != before.shape:
            what = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
            raise InputError(f"the change at {name!r} gave {what}, not a tensor of shape {tuple(before.shape)}.")
        return after

    return checked
