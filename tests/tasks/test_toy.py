"""A task and a family that nobody here knows of (tests/toy.py) train, survive a kill, and are all that others are."""

import json
import signal
from functools import partial

import pytest
import torch
import toy
from killing import die_at, same
from processes import vitrail

import vitrail as vt
from vitrail.distributed import ALONE
from vitrail.families import cost
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
