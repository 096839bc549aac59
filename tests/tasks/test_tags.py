"""Labels for words and texts: files that are read, words that are cut, scores, and what is learned."""

import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score
from texts import TAGS, write_labels, write_tags

import vitrail as vt
from vitrail.data.tagged import highlighted, read_tagged
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.tasks.tags.examples import Cutter
from vitrail.tasks.tags.recipe import layout_of
from vitrail.tasks.tags.scores import score, spans
from vitrail.tasks.tags.tagger import WORD, Tagger

CONLLU = """# sent_id = 1
1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tghost\t_\tVERB\t_\t_\t_\t_\t_\t_

1\tBad
2\tline\tline\tNOUN\tNN\t_\t0\troot\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_conllu(tmp_path):
    path = tmp_path / "some.conllu"
    path.write_text(CONLLU)
    found = read_tagged([str(path)], "conllu")
    assert found.sentences == [("It", "do", "n't"), ("Yes",)]
    assert found.labels == [("PRON", "AUX", "PART"), ("INTJ",)]
    assert found.total == 3
    assert "(8)" in found.aside[0].what
    assert "columns" in found.aside[0].why
    assert read_tagged([str(path)], "conllu", "xpos").labels[1] == ("UH",)
    with pytest.raises(InputError, match=r"data.column 'upon' is not known; did you mean 'upos'"):
        read_tagged([str(path)], "conllu", "upon")


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("a\tX\nb\tY\n\nc\tX\nd\tY\n\ne\tX\nf\tY\n" * 5, "columns"),
        ("EU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\nPeter NNP B-NP B-PER\n" * 9, "columns"),
        ("good film\tpos\nbad film\tneg\nfine\tpos\nawful\tneg\n" * 9, "labels"),
        ("pos\tgood film\nneg\tbad film\npos\tfine one\nneg\tawful\n" * 9, "labels"),
        ("__label__x one two\n__label__y three\n", "labels"),
        ("a cat\teine Katze\na dog\tein Hund\na house\tein Haus\n", None),
        ("one line\nand another\n", None),
        ("", None),
    ],
)
def test_layouts_are_told(tmp_path, text, layout):
    path = tmp_path / "file.txt"
    path.write_text(text)
    assert layout_of(path) == layout


def test_labels_in_either_column(tmp_path):
    for text in ("good one\tpos\nbad one\tneg\nfine\tpos\n", "pos\tgood one\nneg\tbad one\npos\tfine\n"):
        path = tmp_path / "labels.tsv"
        path.write_text(text + "no label\n")
        found = read_tagged([str(path)], "labels")
        assert found.sentences == [("good one",), ("bad one",), ("fine",)]
        assert found.labels == [("pos",), ("neg",), ("pos",)]
        assert "(4)" in found.aside[0].what


@pytest.mark.parametrize("length", [4, 7, 64])
def test_every_word_is_asked_of_once_at_its_first_piece(length):
    words = Vocabulary.learned(["hello", "world", "internationalisation"], "bpe", 300)
    sentences = [["hello", "internationalisation", "", "x" * 100], ["world"], ["hello"] * 30]
    seen = {}
    for piece in Cutter(words, length).pieces(sentences):
        assert len(piece.tokens) <= length
        assert piece.tokens[0] == words.role("begin")
        assert piece.tokens[-1] == words.role("end")
        for number, place in enumerate(piece.places):
            seen[piece.row, piece.first + number] = piece.tokens[place]
    assert sorted(seen) == [(row, word) for row, some in enumerate(sentences) for word in range(len(some))]
    for (row, word), token in seen.items():
        first = words.pieces([[sentences[row][word]]], split=True)[0].tokens[:1]
        assert [token] == (first or [words.role("unknown")])


def test_scores_are_those_of_scikit_learn():
    draw = torch.Generator().manual_seed(0)
    said, truth = (torch.randint(4, (50,), generator=draw).tolist() for _ in range(2))
    found = score([said], [truth], list("abcd"), part="test", unit="words", loss=0.0)
    assert found.accuracy == pytest.approx(accuracy_score(truth, said))
    assert found.macro == pytest.approx(f1_score(truth, said, average="macro"))
    assert [one.f1 for one in found.classes] == pytest.approx(f1_score(truth, said, average=None).tolist())
    assert found.spans is None


def test_spans():
    labels = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-ORG", "S-X", "E-X"]
    assert spans([labels]) == {
        (0, 0, 2, "PER"),
        (0, 3, 4, "LOC"),
        (0, 4, 5, "LOC"),
        (0, 5, 6, "ORG"),
        (0, 6, 7, "X"),
        (0, 7, 8, "X"),
    }
    names = ["B-A", "I-A", "O"]
    found = score([[0, 1, 2, 0]], [[0, 1, 2, 2]], names, part="test", unit="words", loss=0.0)
    assert found.spans == pytest.approx(2 * 1 / 3)  # precision 1/2, recall 1


def test_python_is_labelled_by_its_own_tokenizer():
    text = "def f(x):\n    return 'a' + 1  # sum\n"
    labels = highlighted(text)
    named = {text[place]: label for place, label in enumerate(labels)}
    assert named["d"] == "keyword"
    assert labels[text.index("'a'") + 1] == "string"
    assert labels[text.index("1")] == "number"
    assert set(labels[text.index("#") : -1]) == {"comment"}
    assert labels[text.index("+")] == "operator"


@pytest.fixture(scope="module")
def tagger(once):
    def make(folder):
        write_tags(folder / "all-train.txt", 300)
        write_tags(folder / "all-dev.txt", 40, seed=1)
        vt.train(folder / "all-train.txt", out=folder / "run", settings={**TAGS, "train.steps": 60}, quiet=True)

    return once("tagger", make) / "run"


@pytest.fixture(scope="module")
def labeller(once):
    def make(folder):
        write_labels(folder / "labels.tsv", 300)
        vt.train(folder / "labels.tsv", out=folder / "run", settings={**TAGS, "train.steps": 60}, quiet=True)

    return once("labeller", make) / "run"


def test_words_are_labelled(tagger):
    run = vt.run(tagger)
    assert run.result["part"] == "validation"
    assert run.result["accuracy"] == 1.0
    (said,) = run.predict("The cat sat.".lower())
    assert [label for _, label, _ in said.words][:3] == ["DET", "NOUN", "VERB"]
    assert run.evaluate().scores.tested == 120


def test_texts_are_labelled(labeller):
    run = vt.run(labeller)
    assert run.result["accuracy"] > 0.95
    (said,) = run.predict("a fish swam")
    assert said.words[0][1] == "fish"


def test_a_line_of_100_000_characters_and_nothing(tagger):
    tagger = Tagger.of(vt.run(tagger).trained())
    long, empty, one = tagger.tagged(["the cat sat " * 8_000, " ", "xyzzy"])
    assert len(long.words) == 24_000
    assert {label for _, label, _ in long.words} == {"DET", "NOUN", "VERB"}
    assert empty.error == "empty"
    assert len(one.words) == 1


def test_words_and_signs():
    assert WORD.findall("I don't think it's 3.5, well-known!") == [
        *("I", "do", "n't", "think", "it", "'s", "3.5", ",", "well-known", "!")
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\tX\nb\tX\n\nc\tX\n", "there is nothing to tell"),
        ("a\tX\nbad\n\nb\tY\nbad\n\nc\tX\n\nd\tY\n\ne\tX\nf\tY\n", "sentences cannot be used"),
    ],
)
def test_what_cannot_be_learned(tmp_path, text, words):
    path = tmp_path / "tags.txt"
    path.write_text(text)
    recipe = {"data.layout": "columns", "data.files": [str(path)], **TAGS}
    with pytest.raises(InputError, match=words):
        vt.train("python", out=tmp_path / "run", settings={"data.source": "files", **recipe}, quiet=True)


def test_a_label_seen_once_is_named(tmp_path):
    from vitrail.tasks.recipes import parse_recipe
    from vitrail.tasks.registry import tasks

    (tmp_path / "train.txt").write_text("a\tX\nb\tY\n\n" * 20 + "c\tODD\nd\tX\n")
    (tmp_path / "dev.txt").write_text("a\tX\nb\tY\n\n")
    data = {"files": [str(tmp_path / "train.txt")], "layout": "columns"}
    task = tasks["tags"].prepare(parse_recipe({"task": "tags", "data": data}))
    assert task.labels == ("ODD", "X", "Y")
    assert ["'ODD'" in one.what for one in task.aside] == [True]
    assert "seen once" in " ".join(line for _, line in task.plan())


def test_the_column_of_the_labels_is_that_of_training(tmp_path):
    """Also where a small file to measure on would tell otherwise."""
    from vitrail.tasks.tags.parts import read_parts
    from vitrail.tasks.tags.recipe import Labelled

    (tmp_path / "train.tsv").write_text("pos\tgood film\nneg\tbad film\npos\tfine one\nneg\tawful\n" * 9)
    (tmp_path / "dev.tsv").write_text("pos\tgood film\nneg\tbad film\n")
    parts, data = read_parts(Labelled(files=(str(tmp_path / "train.tsv"),)))
    assert parts.held.labels == [("pos",), ("neg",)]
    assert (data.layout, data.column) == ("labels", "1")
    with pytest.raises(InputError, match="should be 1 or 2"):
        read_tagged([str(tmp_path / "dev.tsv")], "labels", "3")


def test_labels_that_the_model_does_not_know(tagger, tmp_path):
    path = tmp_path / "other.txt"
    path.write_text("the\tX\ncat\tY\n\na\tX\ndog\tY\n\n" * 9)
    with pytest.raises(InputError, match="none of which the model knows"):
        vt.run(tagger).evaluate(path)
    path.write_text("the\tDET\ncat\tY\n\na\tDET\ndog\tY\n\n" * 9)
    assert vt.run(tagger).evaluate(path).scores.accuracy == pytest.approx(0.5)
    path.write_text("the\tDET\ncat\tNOUN\n")  # one sentence, which does not tell its layout
    assert vt.run(tagger).evaluate(path).scores.accuracy == 1.0


def test_one_is_left_to_train_on(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("a\tX\nb\tY\n\nc\tX\nd\tY\n")
    from vitrail.data.tagged import split_tagged

    train, held = split_tagged(read_tagged([str(path)], "columns"), 0.9, 0)
    assert (len(train), len(held)) == (1, 1)


def test_a_head_is_drawn_by_the_seed(tagger, tmp_path):
    from vitrail.tasks.recipes import parse_recipe
    from vitrail.tasks.registry import tasks

    def head(seed):
        table = {"files": [write_labels(tmp_path / "labels.tsv", 50)]}
        recipe = {"task": "tags", "data": table, "weights": {"path": str(tagger)}, "train": {"seed": seed}}
        return tasks["tags"].prepare(parse_recipe(recipe)).weights.state["classes.weight"]

    assert torch.equal(head(0), head(0))
    assert not torch.equal(head(0), head(1))
