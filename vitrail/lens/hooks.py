"""Where the lenses sit: plain forward hooks on kernels and sublayers, which go by the context that a call is made in.

So several threads, or tasks of a server, look at one model at once, and each sees and changes its own calls alone. A
module has one hook, however many look. A copy that was made meanwhile takes no part, and drops the hook it came with.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from vitrail.core.block import Sublayer, every_row
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
    rowwise: bool  # whether some rows of it can be had alone


class Lens(Protocol):
    """What is told of the calls in its context, and may change what kernels give."""

    changes_rows: bool  # whether it may look at all rows of a pattern, so that all have to be computed

    def pattern_changes(self, kernel: Kernel) -> tuple[Change, ...]: ...
    def z_changes(self, kernel: Kernel) -> tuple[Change, ...]: ...
    def see_kernel(self, kernel: Kernel, visit: Visit) -> None: ...
    def see_sublayer(self, sublayer: Sublayer, before: Tensor, after: Tensor) -> None: ...


_opened: ContextVar[tuple[Lens, ...]] = ContextVar("opened", default=())


@contextmanager
def opened(lens: Lens, model: nn.Module) -> Iterator[None]:
    """Have a lens see the calls of a model made inside the ``with`` block, in this context."""
    modules = [module for module in model.modules() if isinstance(module, Kernel | Sublayer)]
    with _HOOKS.on(modules):
        _set((*_opened.get(), lens))
        try:
            yield
        finally:
            _set(tuple(other for other in _opened.get() if other is not lens))


def _set(lenses: tuple[Lens, ...]) -> None:
    _opened.set(lenses)
    every_row.set(any(lens.changes_rows for lens in lenses))


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
                handle, count = self.held.get(module) or (module.register_forward_hook(_called, with_kwargs=True), 0)
                self.held[module] = (handle, count + 1)
            if (
                self.stance is None and "torch._dynamo" in sys.modules
            ):  # else nothing is compiled, and importing it slow
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


def _called(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    if module not in _HOOKS.held:  # a copy, which brought the hook with it
        for number in [number for number, hook in module._forward_hooks.items() if hook is _called]:  # noqa: SLF001
            del module._forward_hooks[number]  # noqa: SLF001
            module._forward_hooks_with_kwargs.pop(number, None)  # noqa: SLF001
    elif isinstance(module, Kernel):
        return _kernel_called(module, *args, **kwargs, z=output)
    elif isinstance(module, Sublayer):
        for lens in _opened.get():
            lens.see_sublayer(module, args[0], output)
    return None


def _kernel_called(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, mask: Mask = NONE, *, z: Tensor) -> Tensor | None:
    lenses = _opened.get()
    patterns = tuple(change for lens in lenses for change in lens.pattern_changes(kernel))
    changes = tuple(change for lens in lenses for change in lens.z_changes(kernel))
    weigh = partial(_changed_pattern, kernel, patterns) if patterns else kernel.pattern
    read = weigh(q, k, mask) @ v if patterns else z
    z = _changed(read, changes)
    visit = Visit(q, k, v, mask, z, read, kernel, weigh, kernel.rowwise and not patterns)
    for lens in lenses:
        lens.see_kernel(kernel, visit)
    return z if patterns or changes else None


def _changed_pattern(kernel: Kernel, changes: tuple[Change, ...], q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    return _changed(kernel.pattern(q, k, mask), changes)


def _changed(value: Tensor, changes: tuple[Change, ...]) -> Tensor:
    for change in changes:
        value = change(value)
    return value
