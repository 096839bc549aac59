"""The README's Python runs, and its commands exist."""

import re
import warnings
from pathlib import Path

from typer.main import get_command

from vitrail.cli import app
from vitrail.core import kernels

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "my-model: (positions|the head)")  # which is said, as the README has it
            exec(compile(block, "README.md", "exec"), names)  # noqa: S102
    kernels._things.pop("mean")
    assert (tmp_path / "my-model" / "config.json").exists()


def test_the_commands_exist():
    lines = re.findall(r"^    vitrail (\w+)(.*)$", README, flags=re.MULTILINE)
    verbs = get_command(app).commands
    assert {verb for verb, _ in lines} == set(verbs)
    for verb, rest in lines:
        known = {name for option in verbs[verb].params for name in option.opts}
        assert set(re.findall(r"--\w+", rest)) <= known
