"""Weights in few bits."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.cluster import KMeans

import vitrail as vt
from vitrail.errors import InputError
from vitrail.weights import read
from vitrail.weights.compact import pack, rounded, unpack

VIT = {"image": 16, "patch": 4, "channels": 3, "width": 48, "depth": 2, "heads": 4, "classes": 5}


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("shape", [(40, 30), (7, 11, 13), (1000,)])
def test_each_number_is_the_nearest_of_a_few(bits, shape):
    x = torch.randn(*shape)
    parts = pack(x, bits)
    values, again = parts["values"], unpack(parts)
    assert again.shape == x.shape
    assert len(values) == 2**bits
    near = (x.flatten()[:, None] - values).abs().min(1)
    kept = again.flatten()
    exact = torch.zeros(len(kept), dtype=torch.bool)
    exact[parts["places"].long()] = True
    assert torch.equal(kept[exact], x.flatten()[exact])
    torch.testing.assert_close((kept - x.flatten()).abs()[~exact], near.values[~exact])
    # Between its neighbours, a number is within half a step of the one it became.
    steps = values.diff()
    inside = (x.flatten() > values[0]) & (x.flatten() < values[-1]) & ~exact
    if bits > 1:
        assert ((kept - x.flatten()).abs()[inside] <= steps.max() / 2 + 1e-6).all()
    assert torch.equal(rounded(again, bits), again)  # so many bits hold all that so many held
    assert parts["codes"].numel() == -(-x.numel() * bits // 8)


def test_the_few_are_as_good_as_those_of_scikit_learn():
    x = torch.randn(3000)
    ours = float((rounded(x, 3) - x).square().sum())
    near = x[(x - x.mean()).abs() <= 4 * x.std()]
    theirs = KMeans(8, n_init=10, random_state=0).fit(near[:, None].numpy()).inertia_
    assert ours <= 1.02 * theirs


def test_constant_and_far_numbers():
    for x in (torch.zeros(30, 20), torch.full((600,), 3.5), torch.cat([torch.randn(999), torch.tensor([1e6])])):
        torch.testing.assert_close(rounded(x, 4)[x > 1e3], x[x > 1e3])
        assert torch.isfinite(rounded(x, 4)).all()
    torch.testing.assert_close(rounded(torch.full((600,), 3.5), 4), torch.full((600,), 3.5))


@torch.no_grad()
def test_a_model_is_an_eighth_and_the_same_when_read(tmp_path):
    model, x = vt.build("vit", **VIT).eval(), torch.randn(2, 3, 16, 16)
    vt.save(model, tmp_path / "whole")
    vt.save(model, tmp_path / "small", bits=4)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small")]
    assert sizes[0] > 5 * sizes[1]
    small = read(tmp_path / "small").model()
    vt.save(small, tmp_path / "again")
    assert torch.equal(read(tmp_path / "again").model()(x), small(x))
    for name, tensor in model.state_dict().items():
        if tensor.ndim == 1:
            assert torch.equal(small.state_dict()[name], tensor)
        elif tensor.numel() >= 512:
            assert len(small.state_dict()[name].unique()) <= 16 + int((tensor.numel()) * 1e-3) + 2
    assert float((small(x) - model(x)).norm() / model(x).norm()) < 0.5


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_stays(tmp_path, dtype):
    model, x = vt.build("vit", **VIT).to(dtype).eval(), torch.randn(2, 3, 16, 16, dtype=dtype)
    vt.save(model, tmp_path / "small", bits=4)
    small = read(tmp_path / "small").model()
    assert {tensor.dtype for tensor in small.state_dict().values()} == {dtype}
    assert small(x).dtype == dtype


def test_what_does_not_fit_is_said(tmp_path):
    model = vt.build("vit", **VIT)
    with pytest.raises(InputError, match="from 1 to 8"):
        vt.save(model, tmp_path / "a", bits=9)
    with pytest.raises(InputError, match="no place"):
        vt.save(model, tmp_path / "a.safetensors", "timm", bits=4)
    vt.save(model, tmp_path / "b", bits=4)
    file = tmp_path / "b" / "model.safetensors"
    tensors = load_file(file)
    name = next(one for one in tensors if one.endswith("#shape"))
    save_file({**tensors, name: torch.tensor([10**6, 10**6, 4])}, file)
    with pytest.raises(InputError, match="cannot be"):
        read(tmp_path / "b")
    save_file({one: tensor for one, tensor in tensors.items() if one != name}, file)
    with pytest.raises(InputError, match="lacks parts"):
        read(tmp_path / "b")
    codes = name.replace("#shape", "#values")
    save_file({**tensors, codes: tensors[codes][:3].clone()}, file)
    with pytest.raises(InputError, match="do not fit together"):
        read(tmp_path / "b").model()


@pytest.mark.parametrize("bits", [None, 4])
def test_zeros_are_not_written(tmp_path, bits):
    """A matrix that is mostly zeros is written without them, a bit for each number, and read again to the bit."""
    model = vt.build("vit", **VIT)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("encoder.") and parameter.ndim > 1:
                parameter.mul_(torch.rand_like(parameter) < 0.1)
    vt.save(model, tmp_path / "whole")
    vt.save(model, tmp_path / "small", sparse=True, bits=bits)
    again = vt.load(tmp_path / "small")
    for name, tensor in model.state_dict().items():
        if bits is None:
            assert torch.equal(again.state_dict()[name], tensor)
        elif name.startswith("encoder.") and tensor.ndim > 1:
            assert torch.equal(again.state_dict()[name] == 0, tensor == 0)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small")]
    assert sizes[0] > (5 if bits else 3) * sizes[1]
    vt.save(again, tmp_path / "twice", sparse=True, bits=bits)
    for name, tensor in vt.load(tmp_path / "twice").state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


def test_a_sparse_file_that_lacks_a_part(tmp_path):
    model = vt.build("vit", **VIT)
    with torch.no_grad():
        model.encoder[0].attention.f.query.weight[:, 5:] = 0
    vt.save(model, tmp_path / "small", sparse=True)
    file = tmp_path / "small" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("#there"))
    for change in ({name: tensors[name][:3]}, {name.replace("#there", "#rest"): torch.zeros(2)}, {name: None}):
        changed = {key: value for key, value in {**tensors, **change}.items() if value is not None}
        save_file(changed, file)
        with pytest.raises(InputError, match="small"):
            read(tmp_path / "small")
