"""What someone asks of a comparison, and the command that asks for it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Asked:
    """What someone asks for."""

    what: tuple[str, ...]  # an experiment and its data, recipes, or data of which fields are varied
    seeds: int = 3
    fractions: tuple[float, ...] = ()
    vary: tuple[str, ...] = ()
    minutes: float | None = None
    settings: tuple[str, ...] = ()
    workers: int | None = None
    again: bool = False

    def words(self, out: Path) -> list[str]:
        """The command that asks for it."""
        words = ["vitrail", "compare", *self.what, "--seeds", str(self.seeds)]
        words += ["--fractions", *(repr(one) for one in self.fractions)] if self.fractions else []
        words += [word for one in self.vary for word in ("--vary", one)]
        words += ["--minutes", repr(self.minutes)] if self.minutes is not None else []
        words += ["--workers", str(self.workers)] if self.workers is not None else []
        words += [word for one in self.settings for word in ("--set", one)]
        return [*words, "--out", str(out)]

    def same(self) -> dict[str, Any]:
        """What has to be the same for the cells that are there to be among those asked for now."""
        return {"what": list(self.what), "vary": list(self.vary), "minutes": self.minutes, "set": list(self.settings)}
