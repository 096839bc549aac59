"""A run killed many times at random moments, then compared to the bit with one that nobody stopped.

.venv/bin/python bench/kills.py --times 200
.venv/bin/python bench/kills.py --times 50 --processes 2
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from killing import kill_often, run, same


def main() -> None:
    """Print how many kills there were, and that nothing was lost; or fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    words, began, killed, number = ("--processes", str(options.processes)), time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        run(whole, *words)
        while killed < options.times:
            out, times = Path(folder) / f"run-{number}", min(20, options.times - killed)
            got_on = kill_often(out, times, options.seed + number, *words)
            run(out, "--resume", *words)
            same(out, whole)
            killed, number = killed + times, number + 1
            print(
                f"{killed} kills, {got_on} of the last {times} after some steps, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    print(f"killed {killed} times in {number} runs of {options.processes} processes: all ended as the whole one")


if __name__ == "__main__":
    main()
