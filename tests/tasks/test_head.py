"""A head for a frozen model: discriminants and regressions are scikit-learn's, and the best on pictures left out."""

import numpy as np
import pytest
import torch
from drawing import numbers
from PIL import Image
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import vitrail as vt
from vitrail.families import configure
from vitrail.tasks import parse_recipe
from vitrail.tasks.pictures.head import SHRINKAGES, STRENGTHS, Reading, discriminants, fit_head, logistic, readings
from vitrail.tasks.registry import prepare


def blobs(classes, each=20, width=11, seed=1, spread=3.0):
    labels = torch.arange(each * classes) % classes
    scales = torch.linspace(0.1, 5, width)
    return (spread * numbers(len(labels), width, seed=seed) * scales + labels[:, None] + 4).float(), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("width", [11, 90])  # fewer numbers than pictures, and more
def test_discriminants_are_scikit_learn_s(classes, width):
    x, y = (one.numpy() for one in blobs(classes, each=9, width=width))
    x = x.astype(np.float64)
    scaler = StandardScaler().fit(x)
    scaler.scale_ = x.std(0) + 1e-6
    for shrinkage, (weight, bias) in zip(SHRINKAGES, discriminants(x, y, classes, SHRINKAGES), strict=True):
        ours = x @ weight.T + bias
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(scaler.transform(x), y)
        theirs = lda.decision_function(scaler.transform(x))
        ours = ours[:, 1] - ours[:, 0] if classes == 2 else ours - ours.mean(1, keepdims=True)
        theirs = theirs if classes == 2 else theirs - theirs.mean(1, keepdims=True)
        assert np.abs(ours - theirs).max() < 1e-4 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_a_regression_is_scikit_learn_s(classes):
    x, y = blobs(classes)
    weight, bias = logistic(x.double().numpy(), y.numpy(), classes, STRENGTHS[1])
    scaled = StandardScaler().fit_transform(x.double())
    theirs = LogisticRegression(C=STRENGTHS[1], max_iter=300).fit(scaled, y).predict_proba(scaled)
    ours = (x.double() @ torch.from_numpy(weight).T + torch.from_numpy(bias)).softmax(1)
    assert np.abs(ours.numpy() - theirs).max() < 1e-4


def test_it_reads_what_tells_the_classes_apart():
    x, y = blobs(4, each=30, spread=0.2)
    noise = numbers(len(x), 3 * 11, seed=5).float()
    half = [Reading("class", 1, slice(0, 11)), Reading("mean", 1, slice(11, 22)), Reading("both", 1, slice(0, 22))]
    for where, pool in ((0, "class"), (11, "mean")):
        seen = noise.clone()
        seen[:, where : where + 11] = x
        fitted = fit_head(seen, y, 4, half[:2])
        assert fitted.reading.pool == pool
        assert fitted.accuracy > 0.9
        assert ((seen[:, fitted.reading.numbers] @ fitted.weight.T + fitted.bias).argmax(1) == y).float().mean() > 0.95


def test_it_is_as_sure_as_it_is_right():
    """Pictures left out are taken for their class as often as the head says."""
    x, y = blobs(3, each=200, spread=12)
    fitted = fit_head(x[::2], y[::2], 3, [])
    said = (x[1::2] @ fitted.weight.T + fitted.bias).softmax(1)
    right = (said.argmax(1) == y[1::2]).double().mean().item()
    assert 0.4 < right < 0.99
    assert abs(said.max(1).values.mean().item() - right) < 0.05
    assert fitted.accuracy == pytest.approx(right, abs=0.06)


@pytest.mark.parametrize("classes", [2, 5])
def test_one_picture_of_each_class_is_enough(classes):
    features, labels = torch.eye(classes, 6), torch.arange(classes)
    fitted = fit_head(features, labels, classes, [])
    assert torch.equal((features @ fitted.weight.T + fitted.bias).argmax(1), labels)
    assert (features @ fitted.weight.T + fitted.bias).abs().max() < 12


def test_what_may_be_read():
    config = configure("vit", image=8, patch=4, width=8, depth=3, heads=2, classes=2)
    assert [(one.pool, one.last) for one in readings(config)] == [("class", 1), ("mean", 1), ("both", 1), ("both", 3)]
    assert readings(configure("vit", image=8, patch=4, width=8, depth=3, heads=2, classes=2, pool="mean")) == []


@pytest.mark.parametrize("fine", [False, True])
def test_the_size_that_predicts_best_is_taken(tmp_path, fine):
    """Stripes of one pixel are seen at the larger size alone; large spots are seen at both."""
    random = np.random.default_rng(0)
    for number in range(40):
        noise = random.integers(0, 60, (32, 32))
        stripes = 120 * ((np.arange(32) // (1 if fine else 8)) % 2)
        for name, shape in (("across", stripes[:, None]), ("down", stripes[None, :])):
            (tmp_path / "all" / name).mkdir(parents=True, exist_ok=True)
            image = Image.fromarray((noise + shape).astype(np.uint8))
            image.save(tmp_path / "all" / name / f"{number}.png")
    torch.manual_seed(0)
    shape = {"image": 32, "patch": 4, "width": 24, "depth": 2, "heads": 2, "hidden": 48, "classes": 3}
    vt.save(vt.build("vit", **shape), tmp_path / "weights.safetensors", "timm", normalise="half")
    start = {"path": str(tmp_path / "weights.safetensors"), "freeze": True}
    recipe = {"data": {"path": str(tmp_path / "all")}, "weights": start}
    losses = {}
    for side in (32, 24):
        given = prepare(parse_recipe({**recipe, "model": {"image": side}})).gathered().with_head()
        assert given.config.size == (side, side)
        losses[side] = given.head.loss
    task = prepare(parse_recipe(recipe)).gathered().with_head()
    best = min(losses, key=losses.get)
    assert task.config.size == (best, best)
    assert task.head.loss == pytest.approx(losses[best], rel=1e-4)
    assert task.recipe.model["image"] == best
    assert task.model().config == task.config
    if fine:
        assert best == 32
