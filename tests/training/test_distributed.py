"""Several processes train as one would; any precision trains; what a launcher of PyTorch's starts is the same."""

import json
import re
import subprocess
import sys

import numpy as np
import processes
import pytest
import torch
from killing import EVERYTHING, environment, history, run, same
from safetensors.torch import load_file

SMALL = (
    *("--set", "model.name=vit", "--set", "model.image=8", "--set", "model.patch=4", "--set", "model.channels=1"),
    *("--set", "model.width=12", "--set", "model.depth=2", "--set", "model.heads=3", "--set", "model.stem=patch"),
    *("--set", "augment.shift=0.0", "--set", "augment.rotate=0.0", "--set", "augment.zoom=0.0"),
    *("--set", "optim.name=adamw", "--set", "train.evaluate=2"),
)


def vitrail(*words):
    ran = processes.vitrail(*words, env=environment())
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.fixture(scope="module")
def pair(once):
    """Two processes with everything random turned on."""

    def make(folder):
        assert "Warning" not in run(folder / "run", "--processes", "2", epochs=3)

    return once("pair", make) / "run"


def test_two_processes_are_one_that_takes_their_micro_batches_in_turn(tmp_path, pair):
    """With dropout, mixtures and all: the same pictures changed in the same way; weights equal to rounding."""
    run(tmp_path / "one", "--set", "train.accumulate=2", epochs=3)
    a, b = (load_file(out / "model.safetensors") for out in (pair, tmp_path / "one"))
    for name in a:
        if "running" not in name and "tracked" not in name:  # batch norm's, averaged over processes
            torch.testing.assert_close(a[name], b[name], atol=2e-5, rtol=1e-4)


def test_two_processes_with_half_the_batch_follow_one_with_the_whole(tmp_path):
    """With nothing random but the order: the losses of every step, and the weights, to float accuracy."""
    for name, words in (("one", ()), ("two", ("--processes", "2"))):
        plain = ("--set", "optim.lr=1e-3", "--set", "train.ema=0.0", "--epochs", "4")
        vitrail("train", "digits", "--out", str(tmp_path / name), *SMALL, *plain, *words)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name in a:
        # A key's bias adds the same to all scores of a query, so its gradient is rounding, which Adam scales up.
        if not name.endswith("key_value.bias"):
            torch.testing.assert_close(a[name], b[name], atol=1e-4, rtol=1e-3)
    one, two = ([line for line in history(tmp_path / name) if "accuracy" in line] for name in ("one", "two"))
    for left, right in zip(one, two, strict=True):
        assert left["accuracy"] == pytest.approx(right["accuracy"], abs=1.5 / 360)
        assert left["loss"] == pytest.approx(right["loss"], abs=1e-5)


def test_torchrun_is_the_same_run(tmp_path, pair):
    out = tmp_path / "run"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "vitrail")
    words = ("train", "digits", "--out", str(out), "--epochs", "3", *EVERYTHING)
    subprocess.run([sys.executable, *launcher, *words], env=environment(), check=True, capture_output=True, timeout=300)
    same(out, pair)


def test_every_picture_is_tested_once(pair):
    scores = json.loads((pair / "scores.json").read_text())
    assert scores["tested"] == 360 == sum(map(sum, scores["confusion"]))
    assert [one["pictures"] for one in scores["classes"]] == [36, 36, 35, 37, 36, 37, 36, 36, 35, 36]
    again = json.loads(vitrail("evaluate", str(pair), "--json").stdout)
    assert again["confusion"] == scores["confusion"]
    assert again["loss"] == pytest.approx(scores["loss"], abs=1e-6)


def test_one_process_speaks_for_all(tmp_path):
    ran = vitrail(
        "train", "digits", "--out", str(tmp_path / "run"), "--epochs", "1", "--processes", "2", "--json", *SMALL
    )
    assert len(ran.stdout.splitlines()) == 1
    assert json.loads(ran.stdout)["tested"] == 360
    assert ran.stderr.count("pictures to train on, 360 to test on") == 1
    assert "Warning" not in ran.stderr


def test_what_fails_in_the_processes_is_said_once(tmp_path):
    words = ("train", "digits", "--processes", "2", "--model", "vit-pico", "--out", "run")
    ran = processes.vitrail(*words, env=environment(), cwd=tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.count("did you mean 'vit-pico/2'?") == 1, ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_the_bits_train_too(tmp_path, precision):
    words = ("--epochs", "4", "--set", f"train.precision={precision}", "--set", "train.tensorboard=true")
    vitrail("train", "digits", "--out", str(tmp_path / "run"), *SMALL, *words)
    losses = [line["loss"] for line in history(tmp_path / "run") if "accuracy" not in line]
    assert losses[-1] < 0.8 * losses[0]
    assert all(tensor.dtype == torch.float32 for tensor in load_file(tmp_path / "run" / "model.safetensors").values())
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    lines = history(tmp_path / "run")
    for tag, key in (("train/loss", "lr"), ("test/loss", "accuracy")):
        expected = [line["loss"] for line in lines if key in line]
        assert [event.value for event in events.Scalars(tag)] == pytest.approx(expected, rel=1e-5)


ONCE = """
import torch
from vitrail.distributed import world
def private():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) // 1024
made = []
def make():
    made.append(1)
    pixels = torch.arange(2**26, dtype=torch.int32).view(2**13, -1)
    return {"pixels": pixels, "names": ("a", "b"), "few": torch.ones(3)}
with world("cpu") as here:
    before = private()
    thing = here.once(make)
    total = int(thing["pixels"].sum())
    said = f"made {len(made)} total {total} few {thing['few'].sum():.0f} {thing['names'][1]} own {private() - before}"
    here.once(lambda: made.append(1) or (lambda: 3))  # a thing that cannot be packed: each makes its own
    open(f"rank{here.rank}.txt", "w").write(f"{said} then {len(made)}")
"""


def test_one_process_of_a_machine_makes_what_all_of_it_use(tmp_path):
    """256 MB of pixels are in memory once: neither process has them for itself."""
    (tmp_path / "once.py").write_text(ONCE)
    words = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "once.py")
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    n = 2**26
    for rank in (0, 1):
        said = (tmp_path / f"rank{rank}.txt").read_text()
        found = re.fullmatch(r"made (\d) total (\d+) few 3 b own (-?\d+) then (\d)", said)
        assert found, said
        assert int(found[1]) == (rank == 0)
        assert int(found[2]) == n * (n - 1) // 2
        assert int(found[3]) < 64
        assert int(found[4]) == int(found[1]) + 1
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"once.py", "rank0.txt", "rank1.txt"}  # nothing else is left behind


def test_more_processes_than_cores_are_said(tmp_path, invoke, monkeypatch):
    import vitrail.trainer

    monkeypatch.setattr(vitrail.trainer, "cores", lambda: 2)
    monkeypatch.setattr(vitrail.trainer, "launch", lambda *_: 0)
    for count, said in ((9, True), (2, False)):
        _, _, err = invoke("train", "--out", tmp_path / "run", "--processes", count)
        assert ("note: 9 processes share 2 cores; they will not be faster than 2." in err) == said


STATISTICS = """
import torch
from torch import nn
from vitrail.distributed import world
with world("cpu") as here:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    torch.manual_seed(0)
    nn.init.normal_(model[0].weight)
    wrapped = here.wrap(model)
    for step in range(3):
        seeded = torch.Generator().manual_seed(10 * step + here.rank)
        wrapped(torch.randn(7 + here.rank, 4, generator=seeded)).sum().backward()
        here.average(model.buffers())
    if here.first:
        torch.save({"state": model.state_dict()}, "found.pt")
"""


def test_statistics_of_two_processes_are_the_mean_of_theirs(tmp_path):
    """Batch norm's running mean and variance, in NumPy: each moves on its own part, then both are averaged."""
    (tmp_path / "moving.py").write_text(STATISTICS)
    words = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "moving.py")
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stderr
    state = torch.load(tmp_path / "found.pt")["state"]
    weight, bias = state["0.weight"].double().numpy(), state["0.bias"].double().numpy()
    mean, variance = np.zeros(3), np.ones(3)
    for step in range(3):
        moved = []
        for rank in range(2):
            inputs = (
                torch.randn(7 + rank, 4, generator=torch.Generator().manual_seed(10 * step + rank)).double().numpy()
            )
            y = inputs @ weight.T + bias
            moved.append((0.9 * mean + 0.1 * y.mean(0), 0.9 * variance + 0.1 * y.var(0, ddof=1)))
        mean, variance = (np.mean(both, axis=0) for both in zip(*moved, strict=True))
    np.testing.assert_allclose(state["1.running_mean"].numpy(), mean, atol=1e-5)
    np.testing.assert_allclose(state["1.running_var"].numpy(), variance, atol=1e-5)
