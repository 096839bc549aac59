"""What someone asks of a shrinking, and the command that asks for it."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vitrail.shrink.steps import Goals


@dataclass(frozen=True)
class Asked:
    """What someone asks for."""

    what: str  # a run, or weights
    data: tuple[str, ...] = ()
    goals: Goals = field(default_factory=Goals)
    ways: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def words(self, out: Path) -> list[str]:
        """The command that asks for it."""
        goals = self.goals
        given = {"speedup": goals.speedup, "compression": goals.compression, "minutes": goals.minutes}
        words = ["vitrail", "shrink", self.what, *self.data, "--out", str(out)]
        words += [word for way in self.ways for word in ("--way", way)]
        words += ["--max-drop", f"{goals.max_drop:g}"] * (goals.max_drop != Goals.max_drop)
        words += [word for name, value in given.items() if value is not None for word in (f"--{name}", f"{value:g}")]
        return [*words, *(word for setting in self.settings for word in ("--set", setting))]

    def table(self) -> dict[str, Any]:
        """What has to be the same for an interrupted shrinking to go on: all but the minutes."""
        there = [str(Path(one).resolve()) if Path(one).exists() else one for one in (self.what, *self.data)]
        goals = {name: value for name, value in asdict(self.goals).items() if name != "minutes"}
        return {"what": there, "ways": list(self.ways), "settings": list(self.settings), **goals}
