"""ResNets of timm and torchvision: the same weights give the same answers, there and back."""

import pytest
import stub  # noqa: F401  # torchvision's own operators
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file

import vitrail as vt

MAKERS = {
    "timm": lambda name: timm.create_model(name, pretrained=False),
    "torchvision": lambda name: getattr(torchvision.models, name)(),
}


def strewn(model):
    """With numbers of all kinds, those of the norms' statistics too."""
    torch.manual_seed(0)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.normal_(std=0.1)
            if name.endswith(("running_var", "bn1.weight", "bn2.weight", "bn3.weight", "downsample.1.weight")):
                tensor.abs_().add_(0.5)
    return model.eval()


@pytest.mark.parametrize("library", list(MAKERS))
@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
@torch.no_grad()
def test_there_and_back(tmp_path, library, name):
    theirs = strewn(MAKERS[library](name))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = vt.load(tmp_path / "theirs.safetensors")
    x = torch.randn(2, 3, 96, 128)
    expected = theirs(x)
    torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    assert ours.config.cost().parameters == sum(parameter.numel() for parameter in theirs.parameters())
    vt.save(ours, tmp_path / "ours.safetensors", library)
    again = MAKERS[library](name).eval()
    again.load_state_dict(load_file(tmp_path / "ours.safetensors"))
    assert torch.equal(again(x), expected)


@torch.no_grad()
def test_small_pictures_have_a_small_root(tmp_path):
    """As timm's with its first convolution and pooling exchanged, which is what is done for CIFAR."""
    theirs = timm.create_model("resnet18", pretrained=False, in_chans=1, num_classes=7)
    theirs.conv1 = torch.nn.Conv2d(1, 64, 3, padding=1, bias=False)
    theirs.maxpool = torch.nn.Identity()
    strewn(theirs)
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    ours = vt.load(tmp_path / "theirs.safetensors", image=28)
    assert (ours.config.root, ours.config.channels, ours.config.classes) == ("small", 1, 7)
    x = torch.randn(2, 1, 28, 28)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-3)
