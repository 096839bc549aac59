"""Translating: models that learn a small language for real, and what is said of files that cannot be learned from."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sentences import SMALL, pairs, write_pairs

import vitrail as vt
from vitrail.errors import InputError
from vitrail.tasks.translate.scores import score
from vitrail.tasks.translate.translator import Decoding


def test_scores_are_sacrebleu_s():
    from sacrebleu import corpus_bleu, corpus_chrf

    said = ["the cat sat on the mat", "a dog runs in the park today", "hello there my good friend"]
    references = ["the cat sat on a mat", "a dog runs in the park today", "hello there friend of mine"]
    found = score(said, references, part="test", method="beam", loss=None, full=True)
    assert found.bleu.value == pytest.approx(corpus_bleu(said, [references]).score, abs=1e-3)
    assert found.chrf.value == pytest.approx(corpus_chrf(said, [references]).score, abs=1e-3)
    assert found.exact == 1 / 3
    assert "tok:13a" in found.signature
    assert sum(one.count for one in found.lengths) == 3
    chinese = score(["做得好"], ["做得很好"], part="test", method="", loss=None)
    assert "tok:zh" in chinese.signature


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A model that learned to spell backwards."""
    folder = tmp_path_factory.mktemp("teacher")
    files = write_pairs(folder, 1500)
    write_pairs(folder, 60, seed=1, name="val")
    write_pairs(folder, 60, seed=2, name="test")
    run = vt.train(files, out=folder / "run", settings=SMALL, epochs=12, quiet=True)
    return folder, run


def test_it_learns(teacher):
    folder, run = teacher
    assert run.result["exact"] > 0.9
    assert run.data["train"] == 1500
    found = run.evaluate().scores
    assert (found.part, found.tested) == ("test", 60)
    assert found.exact > 0.9
    assert "beam 5" in found.method
    said = run.predict(["abcd", "", "hg"], nbest=2)
    assert said[0].text == "DCBA"
    assert said[0].hypotheses[0][1] > said[0].hypotheses[1][1]
    assert (said[1].text, said[1].error) == ("", "empty")
    assert said[2].text == "GH"
    page = (folder / "run" / "report.html").read_text()
    assert all(title in page for title in ("Samples", "Worst", "By length"))


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
def test_every_method_translates(teacher, method):
    _, run = teacher
    words = [word for word, _ in pairs(40, seed=3)]
    said = run.predict(words, method=method, **({"temperature": 0.05} if method == "sample" else {}))
    right = sum(one.text == word[::-1].upper() for one, word in zip(said, words, strict=True))
    assert right > 30
    with pytest.raises(InputError, match="method='parallel' is not for a model that says one token after another"):
        run.predict(words, method="parallel")


def test_a_parallel_model_learns_from_its_teacher(teacher, tmp_path):
    folder, run = teacher
    files = [str(folder / f"train.{side}") for side in ("low", "up")]
    settings = {**SMALL, "model.parallel": "true"}
    student = vt.train(files, out=tmp_path / "s", settings=settings, teacher=run.path, epochs=20, quiet=True)
    assert student.result["exact"] > 0.9
    kept = list((run.path / "translations").iterdir())
    assert len(kept) == 1
    lines = dict(json.loads(line) for line in kept[0].read_text().split("\n") if line)
    assert sorted(lines) == list(range(1500))
    words = [word for word, _ in pairs(1500)]
    taught = [one.text for one in run.predict(words[:40])]
    assert [lines[row] for row in range(40)] == taught
    assert json.loads((tmp_path / "s" / "recipe.json").read_text())["recipe"]["teacher"]["path"] == str(run.path)
    assert student.predict(["abcd"], passes=2)[0].text == "DCBA"
    with pytest.raises(InputError, match="says all tokens at once"):
        student.predict(["abcd"], method="beam")


def test_a_teacher_that_was_stopped_goes_on(teacher, tmp_path):
    """What it said before is kept, a line that is not whole is said again."""
    from vitrail.tasks.translate.recipe import Speaker
    from vitrail.tasks.translate.teacher import taught

    _, run = teacher
    words = [word for word, _ in pairs(30, seed=5)]
    whole = taught(words, Speaker(path=str(run.path), beam=2), lambda _, items, __: items)
    (kept,) = [one for one in (run.path / "translations").iterdir() if one.read_text().count("[") == 30]
    both = [json.dumps([row, whole[row]]) for row in (3, 1, 4, 1, 5, 9, 2, 6)]  # of two students
    kept.write_text("\n".join(both) + '\n[7,"half a li')
    asked = []

    def progress(_, items, total):
        asked.append(total)
        return items

    assert taught(words, Speaker(path=str(run.path), beam=2), progress) == whole
    assert asked == [23]
    assert taught(words, Speaker(path=str(run.path), beam=2), progress) == whole
    assert asked == [23]
    with pytest.raises(InputError, match="is no finished run"):
        taught(words, Speaker(path=str(tmp_path)), progress)


def test_the_simplest_form_is_cut_after_the_end(teacher, tmp_path):
    folder, _ = teacher
    files = [str(folder / f"train.{side}") for side in ("low", "up")]
    settings = {**SMALL, "model.parallel": "true", "model.lengths": 0}
    run = vt.train(files, out=tmp_path / "s", settings=settings, epochs=20, quiet=True)
    assert run.result["exact"] > 0.9
    assert run.predict(["abc"])[0].text == "CBA"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nbest": 6, "beam": 5}, "nbest=6 is more than there are with method='beam'; choose beam=6"),
        ({"method": "greedy", "nbest": 2}, "choose method='beam' or 'sample'"),
        ({"method": "best"}, "method 'best' is not known"),
        ({"nbest": 0}, "nbest=0"),
        ({"temperature": 0.0}, "temperature=0.0 does not fit"),
        ({"beams": 4}, "did you mean 'beam'"),
        ({"length": 1.1}, "length=1.1 is not for method='beam'"),
        ({"penalty": 1e9}, "penalty=1000000000.0 does not fit"),
    ],
)
def test_decoding_that_cannot_be_is_named(options, says):
    shape = vt.build("seq2seq", source=31, target=31, width=16, depth=1, heads=2, hidden=24).config
    with pytest.raises(InputError, match=says):
        Decoding(**options).checked(shape)


def test_bad_lines_are_named_and_counted(tmp_path):
    files = write_pairs(tmp_path, 60)
    with Path(files[0]).open("ab") as low, Path(files[1]).open("ab") as up:
        low.write(b"\nb\xe4d\n" + b"abc" * 60 + b"\n")
        up.write(b"X\nY\nZ\n")
    settings = {**SMALL, "train.epochs": 1}
    run = vt.train(files, out=tmp_path / "run", settings=settings, quiet=True)
    aside = {one["why"]: one["what"] for one in run.data["set aside"]}
    assert aside["empty, on one side or both"] == "1 line of train.low and train.up (61)"
    assert aside["not UTF-8"] == "1 line of train.low and train.up (62)"
    assert "longer than 128 tokens" in " ".join(aside)
    (long,) = run.predict(["abc" * 60])
    assert (long.text, long.error) == ("", "181 tokens, and the model takes 128")
    (strange,) = run.predict(["ab☃"])
    assert strange.notes == ("never seen in training: '☃'",)
    with Path(files[0]).open("a") as low, Path(files[1]).open("a") as up:
        low.write("\n" * 20)
        up.write("X\n" * 20)
    with pytest.raises(InputError, match="23 of 83 lines cannot be used"):
        vt.train(files, out=tmp_path / "again", settings=settings, quiet=True)


def test_another_vocabulary_or_teacher_is_another_training(teacher):
    """What a run goes on with is what it began with: tokens, and the teacher's words."""
    from vitrail.tasks import read_recipe
    from vitrail.tasks.registry import TranslateTask

    folder, run = teacher
    files = [str(folder / f"train.{side}") for side in ("low", "up")]
    settings = [f"{name}={value}" for name, value in SMALL.items()]
    plain = TranslateTask.prepare(read_recipe(files, settings))
    taught = TranslateTask.prepare(read_recipe(files, [*settings, f"teacher.path={run.path}"])).gathered()
    pieces = TranslateTask.prepare(read_recipe(files, [*settings, "data.tokens=bpe"]))
    other = replace(plain, distilled=False, recipe=taught.recipe)
    for kept in (run.path / "translations").iterdir():
        kept.write_text(kept.read_text() + '\n[0, "ABC"]\n')
    prints = [task.fingerprint() for task in (taught, pieces, other.gathered())]
    assert len(set(prints)) == 3
    assert plain.fingerprint() == TranslateTask.prepare(read_recipe(files, settings)).fingerprint()


def test_a_refused_resume_leaves_the_run_as_it_is(tmp_path):
    files = write_pairs(tmp_path, 60)
    vt.train(files, out=tmp_path / "run", settings=SMALL, epochs=1, quiet=True)
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    Path(files[0]).write_text("".join(f"{word}z\n" for word, _ in pairs(60)), encoding="utf-8")
    with pytest.raises(InputError, match="the data are not those"):
        vt.train(files, out=tmp_path / "run", settings=SMALL, epochs=1, resume=True, quiet=True)
    assert {path: path.read_bytes() for path in before} == before


def test_what_was_trained_on_is_counted(teacher):
    folder, run = teacher
    files = [str(folder / f"train.{side}") for side in ("low", "up")]
    assert run.evaluation_set(files).seen == 1500
    learned = set(pairs(1500))
    assert run.evaluation_set().seen == sum(pair in learned for pair in pairs(60, seed=2))


def test_each_part_names_its_own_lines(tmp_path):
    files = write_pairs(tmp_path, 60)
    write_pairs(tmp_path, 9, name="val")
    for side in ("low", "up"):
        lines = (tmp_path / f"train.{side}").read_text().splitlines()
        (tmp_path / f"test.{side}").write_text("\n".join([*lines[:4], "", "x" * 300, *lines[4:8]]) + "\n")
    run = vt.train(files, out=tmp_path / "run", settings=SMALL, epochs=1, quiet=True)
    said = [f"{one.what}: {one.why}" for one in run.evaluation_set().aside]
    assert said == [
        "1 line of test.low and test.up (5): empty, on one side or both",
        "1 line of test.low and test.up (6): longer than 128 tokens: translated by nothing",
    ]


def test_spaces_and_marks_change_nothing(teacher):
    _, run = teacher
    assert [one.text for one in run.predict([" abcd\t", "abcd"])] == ["DCBA", "DCBA"]


def test_equal_lines_are_drawn_anew(teacher):
    _, run = teacher
    drawn_ones = {one.text for one in run.predict(["abcdefgh"] * 600, method="sample", temperature=3.0)}
    assert len(drawn_ones) > 400


@pytest.mark.parametrize("shared", [True, False])
def test_pieces_of_words_either_way_round(tmp_path, shared):
    """From capitals to small letters, with the tokenizers of a run in one file or two."""
    files = write_pairs(tmp_path, 300)
    settings = {**SMALL, "data.tokens": "bpe", "data.vocabulary": 270, "data.reverse": "true", "data.shared": shared}
    run = vt.train(files, out=tmp_path / "run", settings=settings, epochs=6, quiet=True)
    (said,) = run.predict(["DCBA"])
    assert said.text == said.text.lower() != ""
    assert len(list((tmp_path / "run").glob("*tokenizer.json"))) == (1 if shared else 2)


def test_what_was_learned_is_gone_on_from(teacher, tmp_path):
    """A model as it was, with its vocabulary, on other sentences; or as a parallel one, whose lengths alone are new."""
    _, run = teacher
    files = write_pairs(tmp_path, 40, seed=11)
    how = {name: value for name, value in SMALL.items() if name.startswith("train.")}
    after = vt.train(files, out=tmp_path / "run", weights=run.path, settings=how, epochs=1, quiet=True)
    assert (after.path / "tokenizer.json").read_bytes() == (run.path / "tokenizer.json").read_bytes()
    held = [run.path.parent / f"val.{side}" for side in ("low", "up")]
    assert after.evaluate(held, method="greedy").values["exact"] == pytest.approx(run.result["exact"], abs=0.1)
    from vitrail.tasks import read_recipe
    from vitrail.tasks.registry import TranslateTask

    begun = TranslateTask.prepare(read_recipe(files, [f"weights.path={run.path}", "model.parallel=true"])).model()
    before, now = run.weights().model().state_dict(), begun.state_dict()
    assert sorted(now.keys() - before.keys()) == ["lengths.bias", "lengths.weight"]
    assert all(torch.equal(tensor, now[name]) for name, tensor in before.items())
    with pytest.raises(InputError, match="have their own width"):
        TranslateTask.prepare(read_recipe(files, [f"weights.path={run.path}", "model.width=64"]))


def test_weights_of_another_kind_are_refused(tmp_path):
    files = write_pairs(tmp_path, 40)
    vt.save(vt.build("vit-pico/2"), tmp_path / "vit")
    with pytest.raises(InputError, match="is a vit, which translates nothing"):
        vt.train(files, out=tmp_path / "run", weights=tmp_path / "vit", quiet=True)
