"""A task and a family that nobody here knows of (tests/toy.py) train, survive a kill, and are all that others are."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import toy
from killing import die_at, history, same
from processes import vitrail
from safetensors.torch import load_file
from torch import nn

import vitrail as vt
from vitrail.data import Batches
from vitrail.distributed import ALONE
from vitrail.families import Model, cost, families
from vitrail.runs import Run
from vitrail.tasks.recipes import parse_recipe
from vitrail.tasks.registry import prepare
from vitrail.training import Job

RECIPE = """
task = "sort"
[data]
count = 400
[model]
width = 24
[optim]
lr = 0.01
[train]
epochs = 25
batch = 40
ema = 0.95
evaluate = 5
"""


def known(then=None):
    """In the process of a command: importing the toy is all that is done to make it known."""
    import toy  # noqa: F401

    if then is not None:
        then()


def sort(*words, then=None):
    return vitrail(*words, before=partial(known, then))


@pytest.fixture(scope="module")
def run(once):
    def make(folder):
        (folder / "sort.toml").write_text(RECIPE)
        ran = sort("train", folder / "sort.toml", "--out", folder / "run", "--json")
        assert ran.returncode == 0, ran.stderr
        (folder / "said.json").write_text(json.dumps({"result": json.loads(ran.stdout), "stderr": ran.stderr}))

    return once("toy", make)


def test_it_learns_and_is_shown_in_its_own_words(run):
    said = json.loads((run / "said.json").read_text())
    assert said["result"]["accuracy"] > 0.9
    assert "model     numbers 9, length 7, width 24: " in said["stderr"]
    assert "numbers/s" in said["stderr"]
    assert "pictures" not in said["stderr"]


def test_killed_it_goes_on_to_the_bit(run, tmp_path):
    words = ("train", run / "sort.toml", "--out", tmp_path / "run", "--resume", "--set", "train.checkpoint=0")
    for number in (3, 40, 61):
        assert sort(*words, then=partial(die_at, "replace", number)).returncode == -signal.SIGKILL
    assert "going on after step" in sort(*words).stderr
    same(tmp_path / "run", run / "run")


def test_it_is_evaluated_and_reported(run, opened):
    ran = sort("evaluate", run / "run", "--json")
    result = json.loads((run / "said.json").read_text())["result"]
    assert json.loads(ran.stdout)["accuracy"] == result["accuracy"]
    assert "accuracy" in sort("evaluate", run / "run").stdout
    with opened(run / "run" / "report.html") as page:
        text = page.locator("main").inner_text()
    for word in ("test accuracy", "data.count", "model.width", "Learning rate"):
        assert word in text
    assert Run(run / "run").evaluate().values["accuracy"] == result["accuracy"]


def test_it_is_saved_loaded_and_recorded(run, tmp_path):
    model = vt.load(run / "run")
    assert isinstance(model, toy.Sorter)
    vt.save(model, tmp_path / "again")
    again, inputs = vt.load(tmp_path / "again"), torch.tensor([[5, 3, 9, 0, 0, 0, 0]])
    with vt.record(again) as trace:
        logits = again(inputs)
    assert torch.equal(logits, model(inputs))
    assert trace.names() == ["encoder.0.attention", "encoder.1.attention"]
    assert (trace.pattern(0)[..., 3:] == 0).all()
    assert logits[0, :3].argmax(-1).tolist() == [2, 4, 8]
    assert cost(model.config).parameters == sum(p.numel() for p in model.parameters())
    with pytest.raises(vt.InputError, match="the model is a sorter, which timm has no place for"):
        vt.save(model, tmp_path / "x.safetensors", format="timm")
    with pytest.raises(vt.InputError, match="weights of a sorter are used as they are; leave numbers out"):
        vt.load(run / "run", numbers=11)


def test_micro_batches_of_other_lengths_make_the_same_update(tmp_path):
    """The loss is an average over numbers: three micro-batches count by theirs, not as if they had as many."""
    after = []
    for parts in (1, 3):
        fields = {"data": {"count": 60}, "train": {"epochs": 1, "batch": 10, "accumulate": parts}}
        job = Job(prepare(parse_recipe({"task": "sort", **fields})), Run(tmp_path / str(parts)), ALONE)
        job.model.double()
        next(job.updates())
        after.append([p.grad.clone() for p in job.model.parameters() if p.grad is not None])
    for one, three in zip(*after, strict=True):
        torch.testing.assert_close(one, three, atol=1e-12, rtol=1e-9)


def test_two_processes_with_other_lengths_make_the_same_updates(run, tmp_path):
    """Each takes one of two micro-batches, whose numbers differ in count: as one process that takes both in turn."""
    script = tmp_path / "vitrail_with_toy.py"
    script.write_text("import toy\nfrom vitrail.cli import main\n\nmain()\n")
    path = os.pathsep.join([str(Path(toy.__file__).parent), os.environ.get("PYTHONPATH", "")])
    words = ("train", str(run / "sort.toml"), "--epochs", "1", "--set", "train.ema=0.0")
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", str(script))
    subprocess.run(
        [sys.executable, *launcher, *words, "--out", str(tmp_path / "two")],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        timeout=300,
    )
    assert sort(*words, "--out", tmp_path / "one", "--set", "train.accumulate=2").returncode == 0
    one, two = (history(tmp_path / name) for name in ("one", "two"))
    assert [line["loss"] for line in one if "lr" in line] == pytest.approx(
        [line["loss"] for line in two if "lr" in line], rel=1e-5
    )
    a, b = (vt.load(tmp_path / name).state_dict() for name in ("one", "two"))
    for name in a:
        if not name.endswith("key_value.bias"):  # whose gradient is rounding
            torch.testing.assert_close(a[name], b[name], atol=1e-4, rtol=1e-3)


def test_a_count_that_is_not_the_batch_s_is_found_out():
    forgotten = Forgotten(torch.tensor([[1, 2, 0], [3, 0, 0]]))
    with pytest.raises(ValueError, match=r"batch\(\) gave a count of 3, and count\(\) 2"):
        next(next(Batches(forgotten, 2, 1, 0, 1, range(1), torch.device("cpu")).starting(0)))
    empty = toy.Sequences(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(vt.InputError, match="nothing that its loss could be an average over"):
        next(next(Batches(empty, 2, 1, 0, 1, range(1), torch.device("cpu")).starting(0)))


class Forgotten(toy.Sequences):
    """Whose maker forgot that lengths differ."""

    def count(self, rows):
        return len(rows)

    def batch(self, rows, device):
        return *super().batch(rows, device)[:2], int((self.rows[rows] > 0).sum())


@families.add("tied")
class Tied(toy.Sorter):
    """With the embedding for its output too, one layer twice, and a table that no tensor holds."""

    class Config(toy.Sorter.Config):
        pass

    def __init__(self, config):
        super().__init__(config)
        self.head = nn.Linear(config.width, config.numbers + 1, bias=False)
        self.head.weight = self.embed.weight
        self.encoder[1] = self.encoder[0]
        self.register_buffer("shift", torch.arange(7.0), persistent=False)

    def answer(self, stream):
        return self.head(stream + self.shift[:, None])


def test_tied_weights_are_saved_once_and_stay_tied(tmp_path):
    model, inputs = vt.build("tied"), torch.tensor([[5, 3, 9, 1, 0, 0, 0]])
    vt.save(model, tmp_path / "run")
    assert "head.weight" not in load_file(tmp_path / "run" / "model.safetensors")
    again = vt.load(tmp_path / "run")
    assert type(again) is Tied
    assert again.head.weight is again.embed.weight
    assert again.encoder[1].attention.f.query.weight is again.encoder[0].attention.f.query.weight
    assert torch.equal(again(inputs), model(inputs))


def test_what_a_model_is_not_for_is_said(run, tmp_path):
    vt.save(vt.load(run / "run"), tmp_path / "bare")
    with pytest.raises(vt.InputError, match="does not say which task it is for"):
        vt.run(tmp_path / "bare").evaluate()
    with pytest.raises(vt.InputError, match="is of a model without heads; leave heads=3 out"):
        vt.load(tmp_path / "bare", heads=3)
    with pytest.raises(vt.InputError, match="is measured on what its run held out; leave 'other' out"):
        vt.run(run / "run").evaluate("other")
    with pytest.raises(vt.InputError, match="is a sorter, whose task answers no inputs yet"):
        vt.run(run / "run").predict("x.png")
    with pytest.raises(TypeError, match="abstract"):
        type("Nothing", (Model,), {})()


@pytest.mark.parametrize(("warmup", "epochs", "rises"), [(0.1, 8, 10), (0.5, 8, 20), (0.1, 2, 5), (0.0, 8, 1)])
def test_the_rate_rises_for_ten_steps_where_there_are_twenty(tmp_path, warmup, epochs, rises):
    """Unless it is not to rise at all."""
    recipe = parse_recipe({"task": "sort", "train": {"epochs": epochs, "batch": 120}, "optim": {"warmup": warmup}})
    job = Job(prepare(recipe), Run(tmp_path), ALONE)
    rates = [step.lr for step in job.updates()]
    assert job.total == len(rates) == 5 * epochs
    assert rates.index(max(rates)) == rises - 1
