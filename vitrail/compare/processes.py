"""Cells run as processes, several at a time."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vitrail.machine import cores

LOOK = 0.05  # seconds between two looks at what has ended


def run_all(folders: Sequence[Path], workers: int) -> Generator[tuple[Path, int]]:
    """Each cell that has ended, and its status: so many run at a time, each on its part of the cores. If they are
    stopped, those that run are told, and write how far they came.
    """
    threads = str(max(1, cores() // workers))
    given = {**os.environ, "OMP_NUM_THREADS": threads, "VITRAIL_PARENT": str(os.getpid())}
    waiting, running = list(folders), dict[Path, subprocess.Popen[bytes]]()
    before = _interruptible()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                folder = waiting.pop(0)
                running[folder] = _started(folder, given)
            ended = [folder for folder, process in running.items() if process.poll() is not None]
            for folder in ended:
                yield folder, running.pop(folder).returncode
            if not ended:
                time.sleep(LOOK)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def _interruptible() -> dict[signal.Signals, Any]:
    """Have SIGTERM stop this process as Ctrl-C does, which may be ignored in the background; what they did before."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # to which signals come
        return {}
    return {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}


def _started(folder: Path, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "vitrail.compare.cell", str(folder)]
    with folder.with_name(f"{folder.name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=dict(environment))  # noqa: S603
