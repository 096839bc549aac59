"""Names to builders."""

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from typing import Any, Generic, TypeVar

from vitrail.config import options
from vitrail.errors import InputError, unknown

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to things of one kind; a name it does not hold gets a suggestion."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self._things: dict[str, T] = {}

    def add(self, name: str) -> Callable[[T], T]:
        """Decorator: hold a thing under this name."""

        def hold(thing: T) -> T:
            self._things[name] = thing
            return thing

        return hold

    def make(self, part: "str | Mapping[str, Any]") -> Any:
        """What a part names, built with its options: ``"local"``, or ``{"name": "local", "window": 7}``."""
        given = {"name": part} if isinstance(part, str) else dict(part)
        name = given.pop("name")
        given = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }  # as from JSON
        build: Any = self[name]
        try:
            return build(**dict(options(build)(**{key: _hashable(value) for key, value in given.items()})))
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


def _hashable(value: Any) -> Any:
    """A sequence as it was before it went through TOML or JSON."""
    return tuple(value) if isinstance(value, list) else value
