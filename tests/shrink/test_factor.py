"""Maps as products of two."""

import numpy as np
import pytest
import torch

import vitrail as vt
from vitrail.data import Batch
from vitrail.errors import InputError
from vitrail.families import count_parameters
from vitrail.shrink.factor import counts, factored, factored_tables, inputs, maps, product, ranks, spectra, tables
from vitrail.weights import Weights, read

VIT = {"image": 16, "patch": 4, "channels": 1, "width": 24, "depth": 2, "heads": 4, "classes": 5}


def weights_of(**fields):
    model = vt.build("vit", **VIT, **fields).double()
    return Weights("here", "vitrail", "vit", model.config, {k: v.clone() for k, v in model.state_dict().items()})


def test_without_inputs_it_is_the_nearest_matrix_of_its_rank():
    """Eckart and Young: the error is the norm of the singular values that are left out, as NumPy has them."""
    w = torch.randn(7, 11, dtype=torch.float64)
    up, down = product(w, 4)
    left = np.linalg.svd(w.numpy(), compute_uv=False)[4:]
    assert float((w - up @ down).norm()) == pytest.approx(float(np.linalg.norm(left)))
    up, down = product(w, 7)
    torch.testing.assert_close(up @ down, w)


def test_with_inputs_the_outputs_are_nearest():
    """No product of that rank has a smaller error on what comes in: neither the plain SVD's nor any near this one."""
    x = torch.randn(400, 11, dtype=torch.float64) @ torch.diag(torch.logspace(1, -1, 11, dtype=torch.float64))
    w, second = torch.randn(7, 11, dtype=torch.float64), x.T @ x / 400

    def error(up, down):
        return float((x @ (w - up @ down).T).norm())

    best = product(w, 3, second)
    assert error(*best) < error(*product(w, 3))
    for seed in range(20):
        torch.manual_seed(seed)
        assert error(*(part + 0.01 * torch.randn_like(part) for part in best)) > error(*best)


@torch.no_grad()
def test_full_rank_changes_nothing_and_less_is_saved_to_the_bit(tmp_path):
    whole, x = weights_of(), torch.randn(3, 1, 16, 16, dtype=torch.float64)
    model = whole.model()
    full = {path: min(one.weight.shape) for path, one in maps(model).items()}
    torch.testing.assert_close(factored(whole, full).model()(x), model(x), rtol=1e-9, atol=1e-9)
    assert factored(whole, {}).config == whole.config
    less = factored(whole, dict.fromkeys(full, 3))
    assert count_parameters(less.model()) < count_parameters(model)
    vt.save(less.model(), tmp_path / "small")
    assert torch.equal(read(tmp_path / "small").model()(x), less.model()(x))


def test_ranks_keep_to_a_share_and_lose_alike():
    model = weights_of().model()
    weights = {path: one.weight.detach() for path, one in maps(model).items()}
    seen = inputs(model, lambda m, b: m(b.inputs), [Batch(torch.randn(4, 1, 16, 16).double(), None, 4)])
    assert seen.keys() == weights.keys()
    spectrum = spectra(weights, seen)
    whole = sum(w.numel() for w in weights.values())
    sizes = []
    for fraction in (0.8, 0.5, 0.2):
        chosen = ranks(weights, spectrum, fraction)
        size = sum(chosen[p] * sum(w.shape) if p in chosen else w.numel() for p, w in weights.items())
        assert size <= fraction * whole
        sizes.append(size)
        lost = {p: float(spectrum[p][rank:].sum()) for p, rank in chosen.items()}
        more = {p: float(spectrum[p][rank - 1 :].sum()) for p, rank in chosen.items() if rank > 1}
        assert max(lost.values()) <= min(more.values())  # one rank less of any would lose more than any loses
    assert sizes == sorted(sizes, reverse=True)
    assert ranks(weights, spectrum, 1e-6) == dict.fromkeys(weights, 1)  # there is no less


def test_inputs_are_what_comes_in():
    model = weights_of().model()
    images = torch.randn(4, 1, 16, 16).double()
    caught = []
    handle = model.blocks[1].feed_forward.f.inner.register_forward_hook(lambda _, given, __: caught.append(given[0]))
    seen = inputs(model, lambda m, b: m(b.inputs), [Batch(images[:2], None, 2), Batch(images[2:], None, 2)])
    handle.remove()
    x = torch.cat(caught).flatten(0, 1).detach()
    torch.testing.assert_close(seen["encoder.1.feed_forward.f.inner"], x.T @ x / len(x))


def test_what_is_no_map_is_said(tmp_path):
    with pytest.raises(InputError, match="no map"):
        factored(weights_of(), {"encoder.9.attention.f.query": 3})
    with pytest.raises(InputError, match="no linear map"):
        vt.build("vit", **VIT, factors={"encoder.0.norm": 3})
    with pytest.raises(InputError, match="not in encoder"):
        vt.build("vit", **VIT, factors={"head.logits": 3})
    with pytest.raises(InputError, match="at most"):
        factored(weights_of(), {"encoder.0.attention.f.query": 25})
    for name, kind in (("timm", "a.safetensors"), ("hf", "b")):
        with pytest.raises(InputError, match="factors"):
            vt.save(vt.build("vit", **VIT, factors={"encoder.0.attention.f.query": 5}), tmp_path / kind, name)
        with pytest.raises(InputError, match="merge"):
            vt.save(vt.build("vit", **VIT, merge=2), tmp_path / kind, name)


TEXT = {"width": 24, "depth": 2, "heads": 4, "length": 12}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("gpt", {"tokens": 40}),
        ("gpt", {"tokens": 40, "tied": False, "scaled": True}),
        ("bert", {"tokens": 40, "pad": 0}),
        ("seq2seq", {"source": 40, "target": 40, "shared": True}),
        ("seq2seq", {"source": 40, "target": 30, "output_bias": True}),
    ],
)
@torch.no_grad()
def test_tables_through_all_numbers_change_nothing_and_through_few_the_least(tmp_path, family, fields):
    model = vt.build(family, **TEXT, **fields).eval().double()
    weights = Weights("here", "vitrail", family, model.config, dict(model.state_dict()))
    given = torch.randint(5, 30, (3, 7))
    inputs = (given, given) if family == "seq2seq" else given
    whole = factored_tables(weights, 24).model()
    torch.testing.assert_close(whole(inputs), model(inputs))
    small = factored_tables(weights, 6)
    assert count_parameters(small.model()) < count_parameters(model)
    vt.save(small.model().float(), tmp_path / "small")
    again = vt.load(tmp_path / "small")
    assert again.config.embedding == 6
    assert torch.equal(again(inputs), small.model().float()(inputs))
    for path, table in tables(model).items():
        exact, found = table.weight.detach(), small.model().get_submodule(path).weight
        left = np.linalg.svd(exact.numpy(), compute_uv=False)[6:]
        assert float((found - exact).norm()) == pytest.approx(float(np.linalg.norm(left)))
    first = next(iter(tables(model)))
    often = {path: torch.ones(len(table.weight)) for path, table in tables(model).items()}
    often[first][5:9] = 1e6  # tokens that come all the time are as they were
    seen = factored_tables(weights, 6, often).model().get_submodule(first).weight
    torch.testing.assert_close(seen[5:9], model.get_submodule(first).weight[5:9], atol=1e-3, rtol=1e-2)


def test_how_often_tokens_come_is_counted():
    model = vt.build("gpt", tokens=20, **TEXT)
    batches = [Batch(torch.tensor([[3, 3, 7]]), None, 3), Batch(torch.tensor([[7, 1, 3]]), None, 3)]
    found = counts(model, lambda one, batch: one(batch.inputs), batches)["embed.table"]
    assert found.tolist() == torch.tensor([3, 3, 7, 7, 1, 3]).bincount(minlength=20).tolist()
