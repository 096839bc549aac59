"""How long commands take that do no work, beside an interpreter that does none.

.venv/bin/python bench/startup.py
"""

import argparse
import statistics
import subprocess
import sys
from time import perf_counter

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "vitrail --help": [sys.executable, "-m", "vitrail", "--help"],
    "vitrail train --help": [sys.executable, "-m", "vitrail", "train", "--help"],
    "vitrail models": [sys.executable, "-m", "vitrail", "models"],
    "vitrail recipes": [sys.executable, "-m", "vitrail", "recipes"],
}


def main() -> None:
    """Print a Markdown table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            began = perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(perf_counter() - began)
    least = statistics.median(times["python -c pass"])
    print("| | ms | times an empty interpreter |\n| --- | ---: | ---: |")
    for name, taken in times.items():
        print(f"| `{name}` | {1000 * statistics.median(taken):.0f} | {statistics.median(taken) / least:.1f} |")


if __name__ == "__main__":
    main()
