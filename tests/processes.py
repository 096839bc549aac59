"""The command line in processes of its own, forked from one that has everything imported already: as real as any, and
begun in a hundredth of a second instead of three.
"""

import multiprocessing
import os
import shutil
import sys
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path

PRELOADED = [
    *("vitrail.cli", "vitrail.runs", "vitrail.report.explain", "vitrail.report.figures", "vitrail.lens"),
    *("sklearn.model_selection", "sklearn.metrics", "sklearn.datasets", "sklearn.linear_model", "sklearn.pipeline"),
    *("kornia.augmentation", "torch._dynamo"),  # which torch's optimizers import
]
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(PRELOADED)


@dataclass(frozen=True)
class Ran:
    """What a command ended with."""

    returncode: int
    stdout: str
    stderr: str


class Command:
    """``vitrail WORDS`` in a process of its own, which has begun."""

    def __init__(self, *words, cwd=None, env=None, given=None, before=None):
        folder = tempfile.mkdtemp(prefix="command-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files = {name: Path(folder) / name for name in ("stdin", "stdout", "stderr")}
        for file in self.files.values():
            file.write_bytes(b"")
        self.files["stdin"].write_bytes(given or b"")
        paths = [str(file) for file in self.files.values()]
        words = [str(word) for word in words]
        self.process = FORKED.Process(
            target=_main, args=(words, str(cwd or Path.cwd()), dict(env or os.environ), paths, before)
        )
        self.process.start()
        self.pid = self.process.pid

    def poll(self):
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def wait(self, timeout=300):
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"still running after {timeout} s:\n{self.said()}"
        return self.process.exitcode

    def said(self):
        """What it wrote to standard error so far."""
        return self.files["stderr"].read_text(errors="backslashreplace")

    def ran(self, timeout=300):
        status = self.wait(timeout)
        return Ran(status, self.files["stdout"].read_text(errors="backslashreplace"), self.said())


def vitrail(*words, **how):
    """Run it to its end."""
    return Command(*words, **how).ran()


def _main(words, cwd, environment, paths, before):
    for number, path in enumerate(paths):
        handle = os.open(path, os.O_RDWR)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin = os.fdopen(0)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.argv = ["vitrail", *words]
    if before is not None:
        before()
    from vitrail.cli import main

    main()
