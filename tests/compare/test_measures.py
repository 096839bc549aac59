"""More numbers of a cell: against scikit-learn, by laws of batch norms, and had on the way as at the end."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from torch import nn

import vitrail as vt
from vitrail.compare.cell import main
from vitrail.compare.cells import code
from vitrail.compare.measures import batch_statistics, calibration, no_class
from vitrail.data import unit
from vitrail.files import make_folder, read_json, write_json
from vitrail.tasks import parse_recipe
from vitrail.tasks.registry import tasks

SHAPE = {"name": "vit", "image": 8, "patch": 4, "stem": "patch", "channels": 1, "width": 16, "depth": 1, "heads": 2}
RECIPE = {"data": {"source": "digits", "use": 0.3}, "model": SHAPE, "train": {"epochs": 2, "batch": 36}}


def task_of(**model):
    return tasks["pictures"].prepare(parse_recipe({**RECIPE, "model": {**SHAPE, **model}})).gathered()


def built(task):
    return vt.build("vit", **task.config.model_dump())


@pytest.fixture(scope="module")
def normed():
    """A task, and a model with batch norms that have seen all of its pictures, in one batch."""
    task = task_of(norm="batch")
    model = built(task)
    norms = [one for one in model.modules() if isinstance(one, nn.BatchNorm1d)]
    for one in norms:
        one.momentum = None
    train = task.parts.train
    with torch.no_grad():
        model.train()(task.normalise(unit(train.store[train.rows])))
    return task, model, norms


def test_statistics_that_are_right_are_off_by_nothing(normed):
    """All pictures to learn from are looked at; twice the variance is off by 100 %; and nothing is left changed."""
    task, model, norms = normed
    before = {name: one.clone() for name, one in model.state_dict().items()}
    found = batch_statistics(model, task)
    assert found["gathered variances off by"] < 0.1  # of four batches, where the model saw one
    for one in norms:
        one.running_var.mul_(2)
    assert batch_statistics(model, task)["gathered variances off by"] == pytest.approx(1.0, abs=0.2)
    for one in norms:
        one.running_var.div_(2)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not any(one.training for one in norms)


def test_by_the_batch_a_picture_is_normed_by_those_beside_it(normed):
    """Spoiled statistics spoil the answers that go by them, and none that go by the batch."""
    task, model, norms = normed
    clean = batch_statistics(model, task)["accuracy by batch statistics"]
    kept = [one.running_mean.clone() for one in norms]
    answers = task.held_out.measure(model).outputs
    for one in norms:
        one.running_mean.add_(torch.randn_like(one.running_mean))
    assert batch_statistics(model, task)["accuracy by batch statistics"] == clean
    assert not torch.allclose(task.held_out.measure(model).outputs, answers)
    for one, mean in zip(norms, kept, strict=True):
        one.running_mean.copy_(mean)


def test_a_model_without_batch_norms_has_none_of_their_numbers():
    task = task_of()
    assert batch_statistics(built(task), task) == {}


def test_calibration_and_loss_are_those_of_probabilities():
    task = task_of()
    model, held = built(task), task.held_out
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    found = calibration(model, task)
    probabilities = held.measure(model).outputs.double().softmax(1).numpy()
    labels = held.pictures.labels.numpy()
    assert found["loss"] == pytest.approx(log_loss(labels, probabilities, labels=range(10)), rel=1e-6)
    sure, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.digitize(sure, np.linspace(0, 1, 16)[1:-1], right=True)
    apart = [abs(right[bins == one].mean() - sure[bins == one].mean()) * (bins == one).mean() for one in set(bins)]
    assert found["calibration error"] == pytest.approx(sum(apart))


class Certain(nn.Module):
    """Sure of a picture as far as its mean is from that of noise."""

    def forward(self, images):
        bright = images.mean((1, 2, 3))
        return torch.stack([100 * bright, -100 * bright], 1)


def test_how_sure_a_model_is_of_what_is_nothing():
    """Of shuffled pictures a model that sees the mean alone is as sure as of the pictures themselves."""
    task = task_of()
    held = task.held_out
    found = no_class(Certain(), task)
    images = held.normalise(unit(held.pictures.store[held.pictures.rows]))
    as_they_are = float((Certain()(images).softmax(1).amax(1) > 0.9).double().mean())
    assert found["sure of shuffled"] == pytest.approx(as_they_are)
    assert found["sure of noise"] != pytest.approx(as_they_are)


def test_numbers_on_the_way_end_as_those_at_the_end(tmp_path):
    """Moments from the untrained model to the last; the models they were had from are gone."""
    train = {**RECIPE["train"], "keep": 3}
    recipe = {**RECIPE, "model": {**SHAPE, "norm": "batch"}, "train": train}
    asked = {
        "recipe": recipe,
        "measures": ["batch_statistics"],
        "followed": True,
        "metric": "accuracy",
        "command": "",
        "by": {"code": code()},
    }
    folder = make_folder(tmp_path / "arm") / "1-seed-0"
    write_json(folder.with_name(f"{folder.name}.asked.json"), asked)
    assert main(folder) == 0
    cell = read_json(folder / "cell.json")
    assert [step for step, _ in cell["moments"]] == [0, cell["steps"] // 2, cell["steps"]]
    _, last = cell["moments"][-1]
    assert last == {name: cell["values"][name] for name in last}
    first = cell["moments"][0][1]
    assert first["gathered variances off by"] > 2 * last["gathered variances off by"]
    assert not (folder / "history").exists()
