"""Shrinking in tests: soon, and whatever is lost."""

from vitrail.files import read_json
from vitrail.shrink import shrink

FREE = 100.0  # points that may be lost: all


def shrunk(run, out, *ways, **options):
    options = {"max_drop": FREE, "minutes": 0.1, "quiet": True, **options}
    made = shrink(run, out=out, ways=ways, **options)
    return made, read_json(out / "shrink.json")
