"""Where the lenses sit: plain forward hooks, which go by the context that a call is made in.

So several threads, or tasks of a server, look at one model at once, and each sees and changes its own calls alone. A
module has one hook, however many look, and calls from elsewhere pass it by. A copy of a model takes no part: it drops
the hooks that it was made with.
"""

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vitrail.core.attention import Attention
from vitrail.core.block import Sublayer, every_row, looked_at
from vitrail.core.kernels import Kernel
from vitrail.core.masks import NONE, Mask

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Visit:
    """One passage through a kernel: what it was given, and what it gave."""

    q: Tensor  # b h i d
    k: Tensor  # b h j d
    v: Tensor  # b h j r
    mask: Mask
    z: Tensor  # b h i r
    read: Tensor  # z before an edit changed it
    kernel: Kernel
    weigh: Callable[[Tensor, Tensor, Mask], Tensor]  # A, as it was at the time
    in_parts: bool  # whether some rows of it can be had alone

    def rows(self, heads: Any, rows: Any) -> Tensor:
        """A of some heads and query rows, (b h rows j)."""
        if not self.in_parts:
            return self.weigh(self.q, self.k, self.mask)[:, heads][:, :, rows]
        return self.kernel.rows(self.q, self.k, self.mask, heads, rows)


class Lens:
    """What is told of the calls in its context, and may change what kernels give."""

    changes_rows = False  # whether it may look at all rows of a pattern, so that all have to be computed
    closed = False

    def modules(self) -> Sequence[nn.Module]:
        """Those it looks at."""
        raise NotImplementedError

    def pattern_changes(self, kernel: Kernel) -> tuple[Change, ...]:  # noqa: ARG002
        """What is done to a kernel's pattern, in order."""
        return ()

    def z_changes(self, kernel: Kernel) -> tuple[Change, ...]:  # noqa: ARG002
        """What is done to what its heads read, in order."""
        return ()

    def see_kernel(self, kernel: Kernel, visit: Visit) -> None:
        """A passage through a kernel."""

    def see_attention(self, attention: Attention, x: Tensor) -> None:
        """What an attention was given."""

    def see_sublayer(self, sublayer: Sublayer, before: Tensor, after: Tensor) -> None:
        """The stream as it came into a sublayer, and went out of it."""


_opened: ContextVar[tuple[Lens, ...]] = ContextVar("opened", default=())


@contextmanager
def opened(lens: Lens) -> Iterator[None]:
    """Have a lens see the calls made inside the ``with`` block, in this context."""
    with _HOOKS.on(lens.modules()):
        _set((*_opened.get(), lens))
        try:
            yield
        finally:
            lens.closed = True  # also to contexts that were copied meanwhile
            _set(tuple(other for other in _opened.get() if other is not lens))


def _set(lenses: tuple[Lens, ...]) -> None:
    _opened.set(lenses)
    every_row.set(any(lens.changes_rows for lens in lenses))
    looked_at.set(bool(lenses))


class _Hooks:
    """The hooks of this process, by module, with how many lenses need each. While there are any, compiled models run
    uncompiled, since hooks do not fire in what was compiled before (torch 2.13).
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: dict[nn.Module, tuple[RemovableHandle, int]] = {}
        self.stance: ExitStack | None = None

    @contextmanager
    def on(self, modules: Sequence[nn.Module]) -> Iterator[None]:
        """Have a hook on each of these."""
        with self.lock:
            for module in modules:
                handle, count = self.held.get(module) or (_hooked(module), 0)
                self.held[module] = (handle, count + 1)
            if self.stance is None and "torch._dynamo" in sys.modules:  # else nothing is compiled
                self.stance = ExitStack()
                self.stance.enter_context(torch.compiler.set_stance("force_eager"))
        try:
            yield
        finally:
            with self.lock:
                for module in modules:
                    handle, count = self.held.pop(module)
                    if count > 1:
                        self.held[module] = (handle, count - 1)
                    else:
                        handle.remove()
                if not self.held and self.stance is not None:
                    self.stance.close()
                    self.stance = None


_HOOKS = _Hooks()


def _hooked(module: nn.Module) -> "RemovableHandle":
    return module.register_forward_hook(_Hook(module), with_kwargs=True)


class _Hook:
    """The hook of one module. Copied or unpickled with it, it is that of none, and goes when it is first called."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self.module = None if module is None else weakref.ref(module)

    def __deepcopy__(self, _: Any) -> "_Hook":
        return _Hook()

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return _Hook, ()

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> Any:
        if self.module is None:
            for number in [number for number, hook in list(module._forward_hooks.items()) if hook is self]:  # noqa: SLF001
                module._forward_hooks.pop(number, None)  # noqa: SLF001
                module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001
            return None
        lenses = tuple(lens for lens in _opened.get() if not lens.closed)
        if not lenses:
            return None
        # While another thread puts the hook on or takes it off, it may be called without the keyword arguments.
        kwargs, output = rest if len(rest) == 2 else ({}, *rest)  # noqa: PLR2004
        if isinstance(module, Kernel):
            return _kernel_called(lenses, module, *args, **kwargs, z=output)
        for lens in lenses:
            if isinstance(module, Sublayer):
                lens.see_sublayer(module, args[0], output)
            elif isinstance(module, Attention):
                lens.see_attention(module, args[0])
        return None


def _kernel_called(  # noqa: PLR0917
    lenses: tuple[Lens, ...], kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE, *, z: Tensor
) -> Tensor | None:
    patterns = tuple(change for lens in lenses for change in lens.pattern_changes(kernel))
    changes = tuple(change for lens in lenses for change in lens.z_changes(kernel))
    weigh = partial(_changed_pattern, kernel, patterns) if patterns else kernel.pattern
    read = weigh(q, k, mask) @ v if patterns else z
    z = _changed(read, changes)
    visit = Visit(q, k, v, mask, z, read, kernel, weigh, not patterns)
    for lens in lenses:
        lens.see_kernel(kernel, visit)
    return z if patterns or changes else None


def _changed_pattern(kernel: Kernel, changes: tuple[Change, ...], q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    return _changed(kernel.pattern(q, k, mask), changes)


def _changed(value: Tensor, changes: tuple[Change, ...]) -> Tensor:
    for change in changes:
        value = change(value)
    return value
