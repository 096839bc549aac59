"""Gaussians against scikit-learn: the same posteriors, by the same closed forms."""

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf_shrinkage
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB
from torch.utils.flop_counter import FlopCounterMode

import vitrail as vt
from vitrail.families import cost
from vitrail.families.gaussian.config import GaussianConfig
from vitrail.families.gaussian.fit import fit, ledoit_wolf
from vitrail.runs import Run
from vitrail.trainer import train

KINDS = ["shared", "own", "diagonal"]
PEERS = {
    "shared": LinearDiscriminantAnalysis,
    "own": QuadraticDiscriminantAnalysis,
    "diagonal": GaussianNB,
}


def points(m=600, side=3, classes=4, seed=0):
    """Classes of different sizes, means and covariances, none of them singular."""
    random = np.random.default_rng(seed)
    d = side * side
    x, y = [], []
    for label in range(classes):
        count = m // (label + 2)
        mix = random.normal(size=(d, d)) + 2 * np.eye(d)
        x.append(random.normal(size=(count, d)) @ mix + random.normal(size=d))
        y += [label] * count
    return torch.from_numpy(np.concatenate(x)), torch.tensor(y)


def fitted(x, y, kind, side=3, **options):
    config = GaussianConfig(image=side, channels=1, classes=int(y.max()) + 1, covariance=kind)
    found = fit(config, lambda: iter(zip(x.split(100), y.split(100), strict=True)), **options)
    model = vt.build("gaussian", **config.model_dump()).double()
    model.load_state_dict(found.state)
    return model, found


@pytest.mark.parametrize("kind", KINDS)
def test_posteriors_are_scikit_learns(kind):
    x, y = points()
    model, found = fitted(x, y, kind)
    peer = PEERS[kind]().fit(x.numpy(), y.numpy())
    other = torch.from_numpy(np.random.default_rng(1).normal(size=(50, 9)) * 4)
    for some in (x[:200], other):
        ours = model(some.reshape(-1, 1, 3, 3)).softmax(1)
        torch.testing.assert_close(ours, torch.from_numpy(peer.predict_proba(some.numpy())), rtol=0, atol=1e-6)
    assert not any(found.shrinkage)
    torch.testing.assert_close(found.state["prior"], y.bincount().double() / len(y))


@pytest.mark.parametrize("kind", KINDS)
def test_the_answer_is_the_joint_density(kind):
    """log p(class) + log N(x; mean, covariance), by PyTorch's own distribution."""
    x, y = points()
    model, _ = fitted(x, y, kind)
    root = model.root.detach()
    for label in range(4):
        if kind == "diagonal":
            spread = torch.diag(root[label] ** -2)
        else:
            own = root if kind == "shared" else root[label]
            spread = torch.linalg.inv(own @ own.T)
        normal = torch.distributions.MultivariateNormal(model.mean[label].detach(), spread)
        expected = normal.log_prob(x[:20]) + model.prior[label].log()
        torch.testing.assert_close(model(x[:20].reshape(-1, 1, 3, 3))[:, label], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_drawn_has_the_mean_and_the_spread_of_its_class(kind):
    x, y = points()
    model, _ = fitted(x, y, kind)
    with torch.no_grad():
        drawn = model.drawn(1, 40_000, torch.Generator().manual_seed(0)).flatten(1)
    again, _ = fitted(drawn, torch.zeros(len(drawn), dtype=torch.long), "own")
    own = (model.root[1] if kind != "shared" else model.root).detach()
    wanted = torch.diag(own**-2) if kind == "diagonal" else torch.linalg.inv(own @ own.T)
    found = torch.linalg.inv(again.root[0] @ again.root[0].T)
    torch.testing.assert_close(
        again.mean[0].detach(), model.mean[1].detach(), rtol=0, atol=4 * float(wanted.diagonal().max() / 200)
    )
    torch.testing.assert_close(found.detach(), wanted, rtol=0, atol=0.05 * float(wanted.diagonal().max()))


@pytest.mark.parametrize("kind", KINDS)
def test_pixels_sum_to_the_ratio_of_likelihoods(kind):
    """Up to what no pixel has a part in: the same number for every picture."""
    x, y = points()
    model, _ = fitted(x, y, kind)
    with torch.no_grad():
        ratios = model.likelihood(x[:30])
        rest = [ratios[n, 2] - ratios[n, 0] - model.by_pixel(x[n], 2, 0).sum() for n in range(30)]
    torch.testing.assert_close(torch.stack(rest), rest[0].expand(30), rtol=1e-8, atol=1e-8)


def test_singular_covariances_are_shrunk_as_scikit_learn_would():
    """Digits have pixels that never change; by the same fraction, scikit-learn's least-squares solver says the same."""
    digits = load_digits()
    x, y = torch.from_numpy(digits.data), torch.from_numpy(digits.target)
    model, found = fitted(x, y, "shared", side=8)
    (fraction,) = found.shrinkage
    assert 0 < fraction < 0.2
    centred = x - torch.stack([x[y == one].mean(0) for one in range(10)])[y]
    wanted = ledoit_wolf_shrinkage(centred.numpy(), assume_centered=True)
    assert fraction == pytest.approx(wanted, rel=1e-6)
    own = fitted(x, y, "own", side=8)[1].shrinkage
    assert len(own) == 10
    assert all(0 < one < 1 for one in own)
    right = float((model(x.reshape(-1, 1, 8, 8)).argmax(1) == y).double().mean())
    assert right > 0.94


def test_shrinkage_that_is_given_is_taken():
    x, y = points()
    same, _ = fitted(x, y, "own", shrinkage=0.0)
    plain, _ = fitted(x, y, "own")
    torch.testing.assert_close(same.root, plain.root)
    round_, _ = fitted(x, y, "own", shrinkage=1.0)
    inverse = round_.root[0] @ round_.root[0].T
    torch.testing.assert_close(inverse, inverse[0, 0] * torch.eye(9, dtype=torch.float64))
    assert ledoit_wolf(torch.eye(4, dtype=torch.float64), 10.0, 5) == 1.0


def test_classes_of_one_picture_or_none():
    x, y = points()
    y = y.clone()
    y[-1] = 5  # one of class 5, none of class 4
    for kind in KINDS:
        model, _ = fitted(x, y, kind)
        answers = model(x.reshape(-1, 1, 3, 3)).softmax(1)
        assert torch.isfinite(answers).all()
        assert answers[:, 4].max().item() == 0
        assert kind == "shared" or int(answers[-1].argmax()) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_costs(kind):
    """Parameters, and what each picture more takes, by PyTorch's counter; which sees matrices' products alone."""
    config = GaussianConfig(image=6, channels=2, classes=5, covariance=kind)
    assert config.cost().parameters == cost(config).parameters
    model, adds = vt.build("gaussian", **config.model_dump()), []
    for count in (1, 2):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.zeros(count, 2, 6, 6))
        adds.append(counter.get_total_flops() // 2)
    assert config.cost().multiply_adds == (adds[1] - adds[0] if kind != "diagonal" else 2 * 5 * 72)


def test_it_is_trained_measured_and_used_as_any_other(tmp_path):
    run = train("digits", model="gaussian", out=tmp_path / "run", quiet=True)
    assert run.result["accuracy"] > 0.94
    model = vt.load(tmp_path / "run")
    assert Run(tmp_path / "run").evaluate().values["accuracy"] == pytest.approx(run.result["accuracy"])
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the covariance is singular, and shrunk by" in page
    assert "Drawn from each class" in page
