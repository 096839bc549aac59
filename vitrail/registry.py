"""Names to builders."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatch
from importlib import import_module
from typing import Any, Generic, TypeVar

from vitrail.config import hashable, options
from vitrail.errors import InputError, unknown

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to things of one kind; a name it does not hold gets a suggestion."""

    def __init__(self, noun: str, homes: Iterable[str] = ()) -> None:
        self.noun = noun
        self._held: dict[str, T] = {}
        self._homes = list(homes)  # modules that add to it, imported when it is first asked for something
        self._filling = False  # whether they are imported right now

    @property
    def _things(self) -> dict[str, T]:
        if self._homes and not self._filling:  # a home adds to this registry while it is imported
            self._filling = True
            try:
                while self._homes:
                    import_module(self._homes[0])
                    del self._homes[0]
            finally:
                self._filling = False
        return self._held

    def add(self, name: str, *, replace: bool = False) -> Callable[[T], T]:
        """Decorator: hold a thing under this name, which has to be a new one, unless it is to be replaced."""

        def hold(thing: T) -> T:
            if name in self._things and not replace:
                raise InputError(
                    f"{self.noun} {name!r} is there already; choose another name, or say add({name!r}, replace=True)."
                )
            self._held[name] = thing
            return thing

        return hold

    def make(self, part: "str | Mapping[str, Any]") -> Any:
        """What a part names, built with its options: ``"local"``, or ``{"name": "local", "window": 7}``."""
        given = {"name": part} if isinstance(part, str) else dict(part)
        name = given.pop("name")
        build: Any = self[name]
        try:
            return build(**dict(options(build)(**{key: hashable(value) for key, value in given.items()})))
        except InputError as error:
            raise InputError(f"{self.noun} {name!r}: {error}") from None

    def matching(self, pattern: str) -> list[str]:
        """The names that match a shell pattern such as ``vit*``, in the order they were added."""
        return [name for name in self._things if fnmatch(name, pattern.lower())]

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown(self.noun, name, self._things)
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def __len__(self) -> int:
        return len(self._things)
