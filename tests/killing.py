"""A training in a process of its own, killed again and again, and taken up each time."""

import json
import os
import random
import signal
import time
from functools import partial
from itertools import count
from pathlib import Path

from processes import Command
from safetensors.torch import load_file

# Everything that has a state or draws random numbers: Muon and AdamW, batch norm, an average of the weights, dropout,
# drop path, mixtures and shifts of the pictures, micro-batches.
EVERYTHING = (
    *("--set", "model.name=vit", "--set", "model.image=8", "--set", "model.patch=4", "--set", "model.channels=1"),
    *("--set", "model.width=12", "--set", "model.depth=2", "--set", "model.heads=3", "--set", "model.stem=early"),
    *("--set", "model.dropout=0.1", "--set", "model.drop_path=0.2", "--set", "train.ema=0.99"),
    *("--set", "optim.name=muon", "--set", "augment.shift=0.1", "--set", "augment.mixup=0.5"),
)

EPOCHS = 12  # 276 steps: more than twenty kills let it take


def words(out, *more, epochs=EPOCHS):
    return ["train", "digits", "--out", str(out), "--epochs", str(epochs), *EVERYTHING, *more]


def start(out, *more, epochs=EPOCHS, before=None):
    """A run in a process of its own."""
    return Command(*words(out, *more, epochs=epochs), env=environment(), before=before)


def environment():
    """One thread for each process: what is compared to the bit should not wait for a busy machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def run(out, *more, epochs=EPOCHS):
    """A whole run; its standard error."""
    ran = start(out, *more, epochs=epochs).ran()
    assert ran.returncode == 0, ran.stderr
    return ran.stderr


def newest(out):
    """The step of the newest checkpoint that a look at the names shows."""
    return max((int(path.stem) for path in (Path(out) / "checkpoints").glob("[0-9]*.json")), default=0)


def kill_once(out, chance, *more, epochs=EPOCHS, early=False, worker=False):
    """Start or go on with a run, and kill it: at once, or soon after it has got on. Nothing else may have ended it."""
    before = newest(out)
    process = start(out, *more, "--resume", "--set", "train.checkpoint=0", epochs=epochs)
    deadline = time.monotonic() + 120
    while not early and newest(out) == before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.6 if early else 0.15))
    victims = children(process.pid) if worker else []
    os.kill(chance.choice(victims) if victims else process.pid, signal.SIGKILL)
    status = process.wait(60)
    assert status == -signal.SIGKILL or victims, process.said()
    while any(Path(f"/proc/{pid}").exists() for pid in children_left(out)) and time.monotonic() < deadline:
        time.sleep(0.05)


def die_at(what, number):
    """Have this process killed as it is about to sync or to rename a file for the so-manyth time."""
    own, calls = getattr(os, what), count(1)

    def counted(*args, **kwargs):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(*args, **kwargs)

    setattr(os, what, counted)


def kill_at(out, what, number):
    """Start or go on with a run that dies at such a moment."""
    process = start(out, "--resume", "--set", "train.checkpoint=0", before=partial(die_at, what, number))
    assert process.wait() == -signal.SIGKILL, process.said()


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def children_left(out):
    """Processes of a run that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        state = (path.parent / "stat").read_text().rpartition(")")[2].split()[0] if path.exists() else "Z"
        if str(out).encode() in arguments and b"vitrail" in arguments and state != "Z":
            found.append(int(path.parent.name))
    return found


def kill_often(out, times, seed, *more, epochs=EPOCHS):
    """Kill a run so many times, at moments that a seed chooses; how often it had got on in between."""
    chance, got_on = random.Random(seed), 0  # noqa: S311
    for number in range(times):
        before = newest(out)
        kill_once(out, chance, *more, epochs=epochs, early=number % 5 == 4, worker=number % 2 == 1)
        got_on += newest(out) > before
    return got_on


def same(one, other):
    """Whether two runs ended alike to the bit: the models, and every step and measurement on the way."""
    a, b = (load_file(Path(out) / "model.safetensors") for out in (one, other))
    assert a.keys() == b.keys()
    assert all((a[name] == b[name]).all() for name in a), [name for name in a if (a[name] != b[name]).any()]
    assert (Path(one) / "model.safetensors").read_bytes() == (Path(other) / "model.safetensors").read_bytes()
    assert history(one) == history(other)


def history(out):
    lines = [json.loads(line) for line in (Path(out) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("seconds", "wait")} for line in lines]
