"""Learning a language: what is asked, that each is asked once, and what comes of it."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from copying import randomise
from texts import TEXT, write_text

import vitrail as vt
from vitrail.data.batches import UNASKED
from vitrail.data.corpus import Texts, read_texts, split_texts
from vitrail.data.vocabulary import Vocabulary
from vitrail.errors import InputError
from vitrail.tasks.language.examples import HiddenWindows, Marks, Windows
from vitrail.tasks.language.measured import TestText
from vitrail.tasks.language.recipe import Corpus, Hidden
from vitrail.tasks.language.task import read_parts
from vitrail.tasks.language.writer import Filler, Writer, Writing

TOKENS = np.arange(1000, dtype=np.int32)
MARKS = Marks(begin=1, end=2, mask=4, words=torch.arange(5, 2000))
CPU = torch.device("cpu")


def test_windows_stand_side_by_side_and_each_token_is_asked_for_once():
    windows = Windows(TOKENS, 16)
    for seed in range(5):
        rows = np.concatenate(windows.updates(7, np.random.default_rng(seed)))
        inputs, targets, count = windows.batch(rows, CPU)
        asked = targets.flatten()
        assert count == len(asked) == len(asked.unique())
        assert (targets == inputs + 1).all()
        assert len(asked) >= len(TOKENS) - 3 * 16


def test_windows_begin_elsewhere_in_each_epoch():
    windows = Windows(TOKENS, 16)
    firsts = {int(np.concatenate(windows.updates(7, np.random.default_rng(seed))).min()) for seed in range(20)}
    assert len(firsts) > 5


def test_80_10_10():
    """Of the hidden tokens, as Devlin et al. 2019 have it: within four standard deviations."""
    windows = HiddenWindows(TOKENS + 5, 64, Hidden(), MARKS)
    rows = np.arange(0, 900)
    (tokens, segments), targets, count = windows.batch(rows, CPU)
    asked = targets != UNASKED
    assert int(asked.sum()) == count == 900 * round(0.15 * 62)
    assert not segments.any()
    assert (tokens[:, 0] == MARKS.begin).all()
    assert (tokens[:, -1] == MARKS.end).all()
    given, truth = tokens[asked], targets[asked]
    n = len(given)
    for fraction, expected in (
        ((given == MARKS.mask).double().mean(), 0.8),
        ((given == truth).double().mean(), 0.1),
        (((given != truth) & (given != MARKS.mask)).double().mean(), 0.1),
    ):
        assert abs(float(fraction) - expected) < 4 * math.sqrt(expected * (1 - expected) / n)
    assert (tokens[~asked][(tokens[~asked] != MARKS.begin) & (tokens[~asked] != MARKS.end)] >= 5).all()


def test_half_of_the_pairs_follow():
    windows = HiddenWindows(TOKENS + 5, 35, Hidden(next=True, words=False), MARKS)
    (tokens, segments), (_, follows), count = windows.batch(np.arange(900), CPU)
    assert count == 900
    first = windows.reach // 2
    one, other = tokens[:, first], tokens[:, first + 2]
    assert (tokens[:, first + 1] == MARKS.end).all()
    assert (segments[:, : first + 2] == 0).all()
    assert (segments[:, first + 2 :] == 1).all()
    really = other == one + 1
    assert (really[follows == 0]).all()
    assert int(really[follows == 1].sum()) < 10
    assert abs(float(follows.double().mean()) - 0.5) < 0.07


@pytest.mark.parametrize("stride", [0, 16, 5])
def test_every_token_is_measured_once_with_as_much_before_it_as_there_is_room_for(stride):
    model = randomise(vt.build("gpt", tokens=50, width=16, depth=1, heads=2, length=16))
    tokens = torch.randint(50, (83,), generator=torch.Generator().manual_seed(0))
    text = TestText(["x" * 166], None, tokens.numpy().astype(np.int32), 16, stride=stride)
    found = text.measure(model)
    step, losses = stride or 16, []
    with torch.no_grad():
        for place in range(1, 83):
            start = (place - 1) // step * step
            first = max(0, start + step - 16)
            logits = model(tokens[None, first:place])[0, -1]
            losses.append(float(F.cross_entropy(logits[None], tokens[place : place + 1])))
    assert found.scores.tokens == 82
    assert found.values["loss"] == pytest.approx(np.mean(losses), abs=1e-5)
    assert found.values["nats"] == pytest.approx(np.mean(losses) / 2, abs=1e-5)


def test_the_last_tenth_of_one_text_is_held_out():
    train, held = split_texts(Texts(["0123456789" * 10]), 0.1, 0)
    assert train.documents == ["0123456789" * 9]
    assert held.documents == ["0123456789"]


def test_whole_documents_are_held_out_of_many():
    documents = [f"document {number}\n" for number in range(50)]
    train, held = split_texts(Texts(documents), 0.1, 0)
    assert sorted(train.documents + held.documents) == sorted(documents)
    assert 0.05 < held.characters / sum(map(len, documents)) <= 0.1


def test_a_folder_with_what_cannot_be_read(tmp_path):
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "two.md").write_bytes("zwei\n".encode("utf-16"))
    (tmp_path / "zero.txt").write_bytes(b"\0\0\1")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "mixed.txt").write_bytes(b"good\nb\xe4d\n")
    (tmp_path / "table.bin").write_bytes(b"\1\2")
    texts = read_texts([str(tmp_path)])
    assert sorted(texts.documents) == ["good\n", "one\n", "zwei\n"]
    said = " ".join(f"{one.what} {one.why}" for one in texts.aside)
    for words in ("zero.txt", "empty.txt", "1 line of mixed.txt (2) not UTF-8"):
        assert words in said


def test_parts_that_stand_side_by_side(tmp_path):
    for name in ("train", "val", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text\n" * 3)
    parts = read_parts(Corpus(files=(str(tmp_path / "train.txt"),)))
    assert parts.train.documents == ["train text\n" * 3]
    assert parts.held.documents == ["val text\n" * 3]
    assert parts.later.documents == ["test text\n" * 3]
    assert read_parts(Corpus(files=(str(tmp_path),))).held.documents == ["val text\n" * 3]


@pytest.fixture(scope="module")
def gpt(once):
    def make(folder):
        text = write_text(folder / "text.txt", 1500)
        vt.train(text, out=folder / "run", settings={**TEXT, "train.steps": 250}, quiet=True)

    return once("gpt", make) / "run"


@pytest.fixture(scope="module")
def bert(once):
    def make(folder):
        text = write_text(folder / "text.txt", 1500)
        settings = {**TEXT, "data.tokens": "bpe", "data.vocabulary": 300, "hidden.next": True, "train.steps": 250}
        vt.train(text, out=folder / "run", model="bert", settings={**settings, "model.order": "pre"}, quiet=True)

    return once("bert", make) / "run"


def test_a_gpt_learns_the_rule(gpt):
    """Of each line two choices are free: 1 bit and 2 bits, over some 13 characters."""
    run = vt.run(gpt)
    least = 3 * math.log(2) / 13.5
    assert least < run.result["nats"] < 1.5 * least + 0.05
    writer = Writer.of(run.trained())
    for seed in range(5):
        text = "the cat" + "".join(writer.written(writer.start("the cat")[0], Writing(tokens=5, seed=seed)))
        assert text == "the cat sat."
    assert (gpt / "report.html").read_text().count("Texts gone on with") == 1


def test_a_seed_is_a_text_and_streams_are_texts(gpt):
    writer = Writer.of(vt.run(gpt).trained())
    start, _ = writer.start("the ")
    how = Writing(tokens=60, seed=3, temperature=1.0)
    whole = "".join(writer.written(start, how))
    assert whole == "".join(writer.written(start, how)) == writer.texts(start, how)[0]
    assert whole != "".join(writer.written(start, how.model_copy(update={"seed": 4})))


def test_a_prompt_longer_than_the_context(gpt):
    writer = Writer.of(vt.run(gpt).trained())
    start, notes = writer.start("the cat sat.\n" * 20)
    assert len(start) == 31
    assert "260 tokens, and the last 31 are gone on from" in notes[0]
    assert len("".join(writer.written(start, Writing(tokens=100)))) == 100


def test_characters_that_were_never_seen(gpt):
    _, notes = Writer.of(vt.run(gpt).trained()).start("thé ŵ")
    assert notes == ["never seen in training: 'é', 'ŵ'"]


def test_a_bert_fills_in_and_tells_pairs(bert):
    run = vt.run(bert)
    assert run.result["accuracy"] > 0.6
    filler = Filler.of(run.trained())
    for noun, verb in (("cat", "sat"), ("fish", "swam")):
        ((filled),) = filler.fill(f"the {noun} [MASK].\na")
        assert filled.words[0][0] == verb
    with pytest.raises(InputError, match="hides no word"):
        filler.fill("the cat sat.")


def test_it_goes_on_from_weights_that_were_trained(gpt, tmp_path):
    text = write_text(tmp_path / "more.txt", 300, seed=5)
    run = vt.train(text, weights=gpt, out=tmp_path / "run", settings={"train.steps": 5}, quiet=True)
    assert run.result["nats"] < 0.4
    assert Vocabulary.beside(run.path).tokenizer.to_str() == Vocabulary.beside(gpt).tokenizer.to_str()


@pytest.mark.parametrize(
    ("settings", "text", "words"),
    [
        ({}, b"", "is empty"),
        ({}, b"too short\n", "one window takes"),
        ({}, "née ".encode("latin-1") * 5 + b"\nb\xe4d\nwell\n" + b"b\xe4d\n" * 9, "cannot be used"),
        ({"hidden.words": "false"}, b"text " * 100, "nothing is learned"),
        ({"model.name": "vit"}, b"text " * 500, "no model of a language"),
    ],
)
def test_what_cannot_be_learned(tmp_path, settings, text, words):
    path = tmp_path / "text.txt"
    path.write_bytes(text)
    with pytest.raises(InputError, match=words):
        vt.train(path, out=tmp_path / "run", settings={**TEXT, **settings}, quiet=True)


def test_tokenizers_of_other_libraries(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    pieces = Vocabulary.beside(tmp_path)
    assert pieces.pieces(["The cats sat"])[0].tokens == [5, 6, 7, 8]
    assert [pieces.role(name) for name in ("pad", "begin", "end", "unknown", "mask")] == [0, 2, 3, 1, 4]
    assert pieces.unknown(["the dog"]) == ["dog"]
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    assert Vocabulary.beside(tmp_path).pieces(["abab"])[0].tokens == [2, 2]
    with pytest.raises(InputError, match="holds no tokenizer"):
        Vocabulary.beside(tmp_path / "nowhere" / "x")


def test_what_is_measured_on_is_not_trained_on(tmp_path):
    """A folder is divided only if it has a part to train on."""
    for name in ("a", "b", "test"):
        (tmp_path / f"{name}.txt").write_text(f"{name} text\n" * 30)
    parts = read_parts(Corpus(files=(str(tmp_path),)))
    assert len(parts.train) == len(parts.held) == 3
    for one, other in zip(parts.train.documents, parts.held.documents, strict=True):
        assert len(one) > len(other)
    (tmp_path / "train.py").write_text("print()\n" * 30)
    assert len(read_parts(Corpus(files=(str(tmp_path),))).train) == 4


def test_text_that_went_away(gpt, tmp_path):
    import shutil

    shutil.copytree(gpt.parent, tmp_path / "copy")
    run, gone = vt.run(tmp_path / "copy" / "run"), tmp_path / "gone"
    recipe = json.loads((run.path / "recipe.json").read_text())
    recipe["recipe"]["data"]["files"] = [str(gone / "text.txt")]
    (run.path / "recipe.json").write_text(json.dumps(recipe))
    other = write_text(tmp_path / "other.txt", 50)
    assert vt.run(run.path).evaluate(other).scores.tokens > 500
    with pytest.raises(InputError, match="is not there"):
        vt.run(run.path).evaluate()


def test_a_vocabulary_that_is_smaller_than_the_model(gpt, tmp_path):
    """Tokens that stand for nothing are never said, and have no name."""
    small = vt.load(gpt)
    padded = vt.build("gpt", **{**small.config.model_dump(), "tokens": small.config.tokens + 9})
    with torch.no_grad():
        padded.embed.table.weight[-9:] = 10.0
    vt.save(padded, tmp_path / "run")
    (tmp_path / "run" / "tokenizer.json").write_text((gpt / "tokenizer.json").read_text())
    run = vt.run(tmp_path / "run")
    writer = Writer.of(run.trained())
    assert all(token < small.config.tokens for (token,) in writer.tokens([7], Writing(tokens=20, temperature=2.0)))
    reading, _ = run.task.reading(run.trained())("the cat", None)
    assert len(reading.lens) == 3


def test_a_long_text_is_tokenised_in_parts_as_a_whole(gpt):
    words, text = Vocabulary.beside(gpt), "the cat sat.\n" * 40_000
    whole = words.tokenizer.encode(text, add_special_tokens=False).ids
    assert words.running(text).tolist() == whole


def test_letters_of_several_tokens(tmp_path):
    """What is streamed is the text, whatever its bytes are cut into."""
    text = "日本語のテキスト。 𝄞 é\n" * 60
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    settings = {**TEXT, "data.tokens": "bpe", "data.vocabulary": 270, "train.steps": 2, "model.length": 16}
    run = vt.train(tmp_path / "text.txt", out=tmp_path / "run", settings=settings, quiet=True)
    writer = Writer.of(run.trained())
    tokens = writer.words.running(text)[:200].tolist()
    object.__setattr__(writer, "tokens", lambda *_: ([token] for token in tokens[12:]))
    assert "".join(writer.written(tokens[:12], Writing())) == writer._after(tokens[:12], tokens[12:])
    assert "\ufffd" not in "".join(writer.written(tokens[:12], Writing()))[:-1]


def test_a_bert_learns_whether_texts_follow(tmp_path):
    """Of the alphabet again and again: what follows goes on with it, and what is drawn does so one time in 26."""
    (tmp_path / "text.txt").write_text("abcdefghijklmnopqrstuvwxyz" * 400)
    settings = {**TEXT, "hidden.next": "true", "hidden.words": "false", "model.name": "bert", "model.order": "pre"}
    settings |= {"model.length": 12, "train.steps": 400, "train.batch": 64, "optim.lr": 0.003}
    run = vt.train(tmp_path / "text.txt", out=tmp_path / "run", settings=settings, quiet=True)
    assert run.result["follows"] > 0.9
