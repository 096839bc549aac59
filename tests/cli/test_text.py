"""``generate``, ``tag``, ``words``, ``embed``, ``explain`` and ``walk`` on text, as a user runs them."""

import json

import numpy as np
import pytest
from processes import vitrail
from texts import TAGS, TEXT, write_labels, write_tags, write_text

import vitrail as vt


@pytest.fixture(scope="module")
def runs(once):
    def make(folder):
        text = write_text(folder / "text.txt", 800)
        gpt = {**TEXT, "data.tokens": "bpe", "data.vocabulary": 300, "train.steps": 120}
        vt.train(text, out=folder / "gpt", settings=gpt, quiet=True)
        vt.train(text, out=folder / "bert", model="bert", settings={**gpt, "model.order": "pre"}, quiet=True)
        vt.train(write_tags(folder / "tags.txt"), out=folder / "tags", settings={**TAGS, "train.steps": 40}, quiet=True)
        labels = write_labels(folder / "labels.tsv")
        vt.train(labels, out=folder / "labels", settings={**TAGS, "train.steps": 40}, quiet=True)

    return once("texts", make)


def test_generate(runs):
    ran = vitrail("generate", runs / "gpt", "--prompt", "the cat", "--tokens", "20", "--temperature", "0")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("the cat sat.\n")
    ran = vitrail("generate", runs / "gpt", "--prompt", "a", "--count", "3", "--json", "--tokens", "8")
    assert len({json.loads(line)["text"] for line in ran.stdout.splitlines()}) > 1
    ran = vitrail("generate", runs / "gpt", "--prompt", "-", "--tokens", "4", "--temperature", "0", given=b"a fish")
    assert ran.stdout.startswith("a fish swam.")


def test_a_prompt_that_is_not_all_text(runs):
    ran = vitrail("generate", runs / "gpt", "--prompt", "-", "--tokens", "3", given=b"a fish\nb\xe4d \xff\n")
    assert ran.returncode == 0, ran.stderr
    assert "1 of 2 lines are not UTF-8" in ran.stderr
    ran = vitrail("generate", runs / "gpt", "--prompt", "a", "--tokens", "3", "--temperature", "1e-40")
    assert ran.returncode == 0, ran.stderr


def test_fill(runs):
    ran = vitrail("generate", runs / "bert", "--fill", "the cat [MASK].", "--top", "2")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "the cat [MASK]."
    found = json.loads(vitrail("generate", runs / "bert", "--fill", "the [MASK] [MASK].", "--json").stdout)
    assert [len(one) for one in found["masks"]] == [5, 5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["generate", "bert", "--prompt", "the"], "fills words in"),
        (["generate", "gpt", "--fill", "the [MASK]"], "has no hidden words"),
        (["generate", "tags", "--prompt", "the"], "fills words in"),
        (["generate", "gpt", "--top-p", "2"], "top_p"),
        (["generate", "gpt", "--out", "x.png"], "of a model of pixels"),
        (["generate", "gpt", "--seed", "9" * 30], "seed"),
        (["generate", "gpt", "--temperature", "inf"], "temperature"),
        (["generate", "gpt", "--top", "3"], "add --fill"),
        (["generate", "bert", "--fill", "[MASK]", "--prompt", "x"], "leave it out with --fill"),
        (["walk", "--run", "gpt", "--text", "a", "--picture", "b"], "one of them"),
        (["generate", "bert", "--fill", "no mask"], "hides no word"),
        (["generate", "bert", "--fill", "[MASK]", "--tokens", "3"], "leave it out with --fill"),
        (["tag", "gpt", "the"], "gives no labels"),
        (["words", "gpt", "--follow", "cat", "the dog"], "'cat' is not in"),
        (["words", "gpt", "cat", "--out", "x.png"], "add --follow"),
        (["explain", "gpt", "--text", "", "--out", "why"], "empty"),
        (["explain", "gpt", "--text", "the cat sat. " * 50, "--out", "why"], "give a part of it"),
        (["walk", "--run", "gpt", "--text", ""], "empty"),
        (["embed", "gpt", "x", "--pool", "most"], "'most' is not known"),
        (["evaluate", "gpt", "--set", "stride=99"], "stride=99"),
        (["train", "text.txt", "--image", "8"], "of pictures"),
    ],
)
def test_mistakes_are_one_sentence(runs, words, said, tmp_path):
    import shutil

    shutil.copytree(runs, tmp_path / "here")
    ran = vitrail(*words, cwd=tmp_path / "here")
    assert ran.returncode == 1, ran.stdout
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_tag(runs, tmp_path):
    ran = vitrail("tag", runs / "tags", "the cat sat", "a dog ran")
    assert ran.stdout == "the\tDET\ncat\tNOUN\nsat\tVERB\n\na\tDET\ndog\tNOUN\nran\tVERB\n\n"
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"the cat\n\nb\xe4d\na bird flew\n")
    ran = vitrail("tag", runs / "tags", lines, "--json")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [len(one["labels"]) for one in found] == [2, 0, 0, 3]
    assert ran.returncode == 1
    for said in ("line 2: empty", "line 3: not UTF-8", "2 of 4 lines"):
        assert said in ran.stderr
    assert vitrail("tag", runs / "labels", "a fish swam").stdout == "a fish swam\tfish\n"


def test_words(runs, tmp_path):
    ran = vitrail("words", runs / "gpt", "cat", "cat - sat + ran", "--top", "3")
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 8
    picture = tmp_path / "cat.png"
    ran = vitrail("words", runs / "bert", "--follow", "cat", "the cat sat.", "a cat sat.", "--out", picture, "--json")
    found = json.loads(ran.stdout)
    assert np.array(found["similarity"]).shape == (3, 2, 2)
    assert picture.read_bytes().startswith(b"\x89PNG")
    texts = ["the cat costs $5_$ now.", "a cat^$ sat."]
    ran = vitrail("words", runs / "bert", "--follow", "cat", *texts, "--out", tmp_path / "dollars.png")
    assert ran.returncode == 0, ran.stderr
    assert vitrail("words", runs / "bert", "--follow", "cat", "cat", "--out", picture).returncode == 1


def test_embed(runs, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sat.\n\na dog ran.\nthe cat sat.\n" + "the cat sat. " * 50 + "\n")
    for run in ("gpt", "bert", "tags"):
        ran = vitrail("embed", runs / run, lines, "--out", tmp_path / f"{run}.npz")
        assert ran.returncode == 0, ran.stderr
        found = np.load(tmp_path / f"{run}.npz")
        assert found["features"].shape == (4, 32)
        np.testing.assert_allclose(found["features"][0], found["features"][2])
        assert not np.allclose(found["features"][0], found["features"][1])
        assert "1 of 5 lines are empty or not UTF-8" in ran.stderr
        assert "1 lines are longer" in ran.stderr


@pytest.mark.parametrize("run", ["gpt", "bert", "tags", "labels"])
def test_explain_and_walk(runs, tmp_path, run, opened):
    ran = vitrail("explain", runs / run, "--text", "the cat sat", "--out", tmp_path / "why")
    assert ran.returncode == 0, ran.stderr
    facts = json.loads((tmp_path / "why" / "the-cat-sat.json").read_text())
    assert len(facts["lens"]) == 3
    with opened(tmp_path / "why" / "the-cat-sat.html") as page:
        assert page.locator("#heads canvas").count() == 4
        assert page.locator("#written").count() == int(run in ("gpt", "tags"))
        page.keyboard.press("ArrowRight")
        assert "attention, layer 2" in page.locator("#readout").inner_text()
    ran = vitrail("walk", "--run", runs / run, "--text", "the cat sat")
    assert ran.returncode == 0, ran.stderr
    assert "the cat sat" in ran.stdout
    assert "q' = R q" in ran.stdout


def test_evaluate_other_text(runs, tmp_path):
    text = write_text(tmp_path / "more.txt", 60, seed=9)
    whole = json.loads(vitrail("evaluate", runs / "gpt", text, "--json").stdout)
    more = json.loads(vitrail("evaluate", runs / "gpt", text, "--json", "--set", "stride=4").stdout)
    assert more["nats"] < whole["nats"]
    found = json.loads(vitrail("evaluate", runs / "tags", write_tags(tmp_path / "t.txt", 20, seed=3), "--json").stdout)
    assert found["accuracy"] > 0.9


def test_moved_to_hf_and_back(runs, tmp_path):
    ran = vitrail("convert", runs / "bert", tmp_path / "hf", "--format", "hf")
    assert ran.returncode == 1
    assert "hf's BERT has no place" in ran.stderr
    ran = vitrail("convert", runs / "gpt", tmp_path / "moved")
    assert ran.returncode == 0, ran.stderr
    both = runs / "gpt", tmp_path / "moved"
    assert len({vitrail("generate", one, "--prompt", "a", "--tokens", "9").stdout for one in both}) == 1
