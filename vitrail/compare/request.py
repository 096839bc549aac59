"""What someone asks of a comparison, and the command that asks for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Self

from vitrail.compare.cells import slug


@dataclass(frozen=True)
class Request:
    """What someone asks for."""

    what: tuple[str, ...]  # an experiment and its data, recipes, or data of which fields are varied
    seeds: int = 3
    fractions: tuple[float, ...] = ()
    vary: tuple[str, ...] = ()
    minutes: float | None = None
    settings: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # patterns of the arms that are wanted; none: all of them
    workers: int | None = None
    again: bool = False

    @property
    def name(self) -> str:
        """What the comparison goes by."""
        if self.vary:
            return "vary"
        recipes = len(self.what) > 1 and all(one.endswith(".toml") for one in self.what)
        return "recipes" if recipes else (self.what or ("",))[0]

    @property
    def folder(self) -> str:
        """What its folder is called, unless someone says: by the experiment, the data, and the fields that vary."""
        stems = [Path(one).resolve().stem if Path(one).exists() else Path(one).stem for one in self.what]
        fields = [one.partition("=")[0].strip() for one in self.vary]
        return "-".join(["compare", *filter(None, map(slug, [*stems, *fields]))])

    def words(self, out: str) -> list[str]:
        """The command that asks for it."""
        words = ["vitrail", "compare", *self.what, "--seeds", str(self.seeds)]
        words += ["--fractions", *(f"{one:.12g}" for one in self.fractions)] if self.fractions else []
        words += [word for one in self.vary for word in ("--vary", one)]
        words += ["--minutes", f"{self.minutes:.12g}"] if self.minutes is not None else []
        words += ["--workers", str(self.workers)] if self.workers is not None else []
        words += [word for one in self.settings for word in ("--set", one)]
        words += [word for one in self.only for word in ("--only", one)]
        return [*words, "--out", out]

    def same(self) -> dict[str, Any]:
        """What has to be the same for the cells that are there to be among those asked for now."""
        return {"what": list(self.what), "vary": list(self.vary), "minutes": self.minutes, "set": list(self.settings)}

    def and_before(self, state: Mapping[str, Any]) -> Self:
        """With the seeds, fractions and arms that were asked for before, whose cells are kept."""
        if not state:
            return self
        fractions = {*(self.fractions or (1.0,)), *(state.get("fractions") or (1.0,))}
        several = tuple(sorted(fractions)) if fractions != {1.0} else self.fractions
        before = tuple(state.get("only", ()))
        only = tuple(dict.fromkeys([*before, *self.only])) if before and self.only else ()
        return replace(self, seeds=max(self.seeds, state.get("seeds", 0)), fractions=several, only=only)

    def asks_for(self, arm: str, seed: int, fraction: float | None) -> bool:
        """Whether a cell is among those asked for now; with a fraction of the data, where that is what differs."""
        there = fraction is None or fraction in (self.fractions or (1.0,))
        return seed < self.seeds and self.wants(arm) and there

    def wants(self, arm: str) -> bool:
        """Whether an arm is among those asked for."""
        return not self.only or any(_meant(arm.lower(), pattern.lower()) for pattern in self.only)


def _meant(name: str, pattern: str) -> bool:
    """Whether a name is meant by a pattern: names may have signs in them that patterns have too."""
    return name == pattern or fnmatch(name, pattern)
