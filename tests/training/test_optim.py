"""Muon: orthogonal updates, as PyTorch's own makes them."""

import pytest
import torch

import vitrail as vt
from vitrail.training import Muon, adamw, muon
from vitrail.training.optim import orthogonal


@pytest.mark.parametrize("shape", [(7, 7), (5, 11), (3, 64), (96, 192)])
def test_orthogonal_is_u_v(shape):
    """U V^T of U S V^T, against the singular value decomposition."""
    matrices = torch.randn(4, *shape)
    u, _, v = torch.linalg.svd(matrices.double(), full_matrices=False)
    found = orthogonal(matrices).double()
    assert (found - u @ v).norm() / (u @ v).norm() < 0.12
    assert (torch.linalg.svdvals(found) - 1).abs().max() < 0.35


@pytest.mark.parametrize("shape", [(12, 12), (8, 20), (20, 8)])
def test_a_step_is_torch_s(shape):
    """The direction of torch.optim.Muon (in bfloat16, with other coefficients), its length, its decay."""
    weight, gradients = torch.randn(shape), [torch.randn(shape) for _ in range(4)]
    mine, theirs = (torch.nn.Parameter(weight.clone()) for _ in range(2))
    ours = Muon([mine], lr=0.1, decay=0.3)
    peer = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.3, momentum=0.95, nesterov=True)
    for gradient in gradients:
        mine.grad, theirs.grad = gradient.clone(), gradient.clone()
        ours.step()
        peer.step()
    a, b = mine.detach() - weight, theirs.detach() - weight
    assert torch.nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0) > 0.98
    assert a.norm() / b.norm() == pytest.approx(1, abs=0.15)


def test_muon_takes_the_matrices_of_the_blocks_and_no_other():
    model = vt.build("vit", image=8, patch=4, channels=1, width=12, depth=2, heads=3, classes=10, stem="early")
    adam, blocks = muon(model, 1e-3, 0.1, blocks=1e-2).optimizers
    names = {id(p): name for name, p in model.named_parameters()}
    mine = {names[id(p)] for group in blocks.param_groups for p in group["params"]}
    rest = {names[id(p)] for group in adam.param_groups for p in group["params"]}
    assert mine | rest == set(names.values())
    assert not mine & rest
    assert mine == {
        name for name in names.values() if name.startswith("encoder") and model.get_parameter(name).ndim == 2
    }


def test_the_rate_falls_from_each_layer_to_the_one_before():
    model = vt.build("vit", image=8, patch=4, width=12, depth=3, heads=3, classes=2)
    optimizer = adamw(model, 0.1, 0.05, layer_decay=0.5)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert set(map(id, model.parameters())) == rates.keys()
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert rates[id(model.head.logits.weight)] == rates[id(model.norm.bias)] == 0.1
    for layer, block in enumerate(model.encoder):
        assert {rates[id(p)] for p in block.parameters()} == {0.1 * 0.5 ** (3 - layer)}
    assert {rates[id(p)] for p in model.embed.parameters()} == {0.1 * 0.5**4}
    decayed = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert id(model.encoder[0].attention.f.query.weight) in decayed
    assert id(model.embed.position.embedding) not in decayed
