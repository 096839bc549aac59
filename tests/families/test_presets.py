"""Every preset builds, runs, and has its parameters counted."""

import pytest
import torch
from torch.nn import functional as F

import vitrail as vt
from vitrail.families import configure, cost

# The first eight and three hybrids are those of the same models in timm (peers/); the ViT paper's table 1 has 86M, 307M
# and 632M for B, L and H. Those of ResNets are torchvision's, those of GPT-2 and BERT HF's GPT2LMHeadModel's and
# BertForMaskedLM's of the same shapes.
PARAMETERS = {
    "vit-ti/16": 5_717_416,
    "vit-s/16": 22_050_664,
    "vit-s/32": 22_878_952,
    "vit-b/16": 86_567_656,
    "vit-b/32": 88_224_232,
    "vit-l/16": 304_326_632,
    "vit-l/32": 306_535_400,
    "vit-h/14": 632_045_800,
    "vit-pico/2": 136_138,
    "vit-nano/4": 205_962,
    "vit-micro/4": 811_146,
    "r50+vit-b/16": 98_659_112,
    "r50+vit-l/32": 328_994_856,
    "r26+vit-s/32": 36_431_912,
    "r+vit-ti/16": 5_776_104,
    "r+vit-micro/4": 852_714,
    "r26+vt-s/32": 36_585_896,
    "r+vt-micro/4": 870_250,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "plain18": 11_515_688,
    "plain34": 21_623_848,
    "resnet-small": 824_328,
    "seq2seq-tiny": 5_421_568,
    "seq2seq-small": 15_565_824,
    "seq2seq-base": 60_522_496,
    "seq2seq-big": 209_125_376,
    "gpt-tiny": 1_850_112,
    "gpt-small": 16_889_856,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-tiny": 4_416_698,
    "bert-mini": 11_201_594,
    "bert-small": 28_795_194,
    "bert-medium": 41_404_730,
    "bert-base": 109_514_298,
    "bert-large": 335_174_458,
    "minilm-l6": 22_744_506,
}
PICTURES = [name for name in PARAMETERS if any(part in name for part in ("vit", "vt", "resnet", "plain"))]

# GFLOPS of torchvision's documentation of its vit_b_16 and so on, in which a multiply-add counts as one.
PUBLISHED_GIGA = {"vit-b/16": 17.56, "vit-b/32": 4.41, "vit-l/16": 61.55, "vit-l/32": 15.38, "vit-h/14": 167.29}
PUBLISHED_GIGA |= {"resnet18": 1.81, "resnet34": 3.66, "resnet50": 4.09, "resnet101": 7.80, "resnet152": 11.51}


def test_every_preset_is_pinned():
    assert vt.models() == list(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name):
    with torch.device("meta"):
        model = vt.build(name)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize(("name", "millions"), [("seq2seq-base", 65), ("seq2seq-big", 213)])
def test_parameters_are_those_of_attention_is_all_you_need(name, millions):
    """Table 3 of Vaswani et al. 2017, with about 37,000 tokens."""
    counted = cost(configure(name, source=37_000, target=37_000)).parameters
    assert counted / 1e6 == pytest.approx(millions, rel=0.04)


@pytest.mark.parametrize("name", PICTURES)
def test_it_runs_at_full_size(name):
    with torch.device("meta"):
        model = vt.build(name)
        images = torch.zeros(2, model.config.channels, *model.config.size)
    assert model(images).shape == (2, model.config.classes)


@pytest.mark.parametrize(
    "name", ["vit-ti/16", "vit-pico/2", "vit-nano/4", "vit-micro/4", "r+vit-micro/4", "r+vt-micro/4"]
)
def test_one_step_lowers_the_loss(name):
    model = vt.build(name, classes=3)
    images, labels = torch.randn(4, model.config.channels, *model.config.size), torch.tensor([0, 1, 2, 0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = F.cross_entropy(model(images), labels)
    before.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    optimizer.step()
    assert F.cross_entropy(model(images), labels) < before


@pytest.mark.parametrize("name", PUBLISHED_GIGA)
def test_multiply_adds_are_the_published_ones(name):
    counted = cost(configure(name))
    assert counted.parameters == PARAMETERS[name]
    assert counted.multiply_adds / 1e9 == pytest.approx(PUBLISHED_GIGA[name], abs=0.006)
