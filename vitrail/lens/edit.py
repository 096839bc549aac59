"""Changes inside a model while it runs: of what attends to what, and of what the heads read."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.kernels import Kernel
from vitrail.core.masks import NONE, Mask
from vitrail.errors import InputError, unknown
from vitrail.lens.record import CHANGED, eager, sites

Change = Callable[[Tensor], Tensor]


@contextmanager
def edit(model: nn.Module) -> Iterator["Edits"]:
    """Change patterns, or what heads read, in every call made inside the ``with`` block.

    with vt.edit(model) as edits:
        edits.pattern("encoder.3.attention", lambda a: a.mean(-2, keepdim=True).expand_as(a))
        edits.silence(5, heads=[0, 2])
        model(images)

    What ``record`` sees inside is what then happens, patterns included; a change that is random is drawn anew when a
    pattern is derived. Nothing of it is left behind.
    """
    with eager(model) as plain:
        edits = Edits(plain)
        try:
            yield edits
        finally:
            edits.undo()


class Edits:
    """Changes by site: its name, its number, or None for all. Several of one site are made one after another, those of
    the pattern first.
    """

    def __init__(self, model: nn.Module) -> None:
        self._sites = sites(model)

    def pattern(self, site: str | int | None, change: Change) -> None:
        """Put change(A) in the place of A, (b h i j); the pattern is then computed, which the fast way leaves out."""
        for name in self._names(site):
            self._put(name, "pattern", change)

    def z(self, site: str | int | None, change: Change) -> None:
        """Put change(z) in the place of z, (b h i r), which is what each head reads."""
        for name in self._names(site):
            self._put(name, "z", change)

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
                self._put(name, "z", silent)

    def undo(self) -> None:
        """Take all changes back."""
        for kernel, _ in self._sites.values():
            _install(kernel, [one for one in _made(kernel) if one.owner is not self])

    def _put(self, name: str, what: str, change: Change) -> None:
        kernel = self._sites[name][0]
        _install(kernel, [*_made(kernel), _Made(self, what, _checked(name, change))])

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


@dataclass(frozen=True, eq=False)
class _Made:
    """A change, and whose it is: edits may be within one another, or side by side."""

    owner: Edits
    what: str  # pattern, or z
    change: Change


def _made(kernel: Kernel) -> Sequence[_Made]:
    """The changes of a kernel, in order."""
    changed: Changed | None = vars(kernel).get(CHANGED)
    return () if changed is None else changed.made


def _install(kernel: Kernel, made: Sequence[_Made]) -> None:
    """Put a kernel with these changes in its own place, or nothing, if there are none."""
    own = vars(kernel)
    for name in (CHANGED, "forward", "pattern", "rowwise"):
        own.pop(name, None)
    if made:
        changed = Changed(kernel, tuple(made))
        # Every query is then asked for, since a change may look at all of them.
        own.update({CHANGED: changed, "forward": changed.forward, "pattern": changed.pattern, "rowwise": False})


@dataclass(eq=False)
class Changed:
    """A kernel's two methods with changes, as they are at one time."""

    kernel: Kernel
    made: tuple[_Made, ...]
    read: Tensor | None = None  # z of the last passage, before it was changed

    @property
    def rowwise(self) -> bool:
        """Whether some rows of its pattern can be had alone."""
        return type(self.kernel).rowwise and all(one.what == "z" for one in self.made)

    def pattern(self, q: Tensor, k: Tensor, mask: Mask = NONE) -> Tensor:
        """A, changed."""
        return self._changed("pattern", type(self.kernel).pattern(self.kernel, q, k, mask))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE) -> Tensor:
        """Z, of a changed pattern or the fast way, and changed itself."""
        if any(one.what == "pattern" for one in self.made):
            self.read = self.pattern(q, k, mask) @ v
        else:
            self.read = type(self.kernel).forward(self.kernel, q, k, v, mask)
        return self._changed("z", self.read)

    def _changed(self, what: str, value: Tensor) -> Tensor:
        for one in self.made:
            if one.what == what:
                value = one.change(value)
        return value


def _checked(name: str, change: Change) -> Change:
    def checked(before: Tensor) -> Tensor:
        after: Any = change(before)
        if not isinstance(after, Tensor) or after.shape != before.shape:
            what = tuple(after.shape) if isinstance(after, Tensor) else type(after).__name__
            raise InputError(f"the change at {name!r} gave {what}, not a tensor of shape {tuple(before.shape)}.")
        return after

    return checked
