"""Lines of text and pairs of them: whatever is wrong is named and counted."""

import gzip

import pytest

from vitrail.data.pairs import beside, pair_sources, read_pairs, split_pairs
from vitrail.data.text import Undecodable, read_lines
from vitrail.data.vocabulary import END, UNKNOWN, Vocabulary
from vitrail.errors import InputError

PACKED = gzip.compress(b"abc\n" * 1000, mtime=0)


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [
        "eins\nzwei ü\n".encode(),
        "eins\nzwei ü".encode(),
        "eins\r\nzwei ü\r\n".encode(),
        b"\xef\xbb\xbf" + "eins\nzwei ü\n".encode(),
        "eins\nzwei ü\n".encode("utf-16"),
        gzip.compress("eins\r\nzwei ü\n".encode(), mtime=0),
    ],
)
def test_lines_however_they_are_written(tmp_path, data):
    assert read_lines(written(tmp_path / "lines", data)) == ["eins", "zwei ü"]


def test_a_line_is_ended_by_nothing_but_an_end():
    assert "\u2028".join("ab").splitlines() == ["a", "b"]  # which is why it is not used


def test_separators_within_a_line_stay(tmp_path):
    assert read_lines(written(tmp_path / "l", "a\u2028b\x0bc\x85d\n".encode())) == ["a\u2028b\x0bc\x85d"]


def test_lines_that_are_not_utf_8_are_known(tmp_path):
    lines = read_lines(written(tmp_path / "mixed", b"good\nb\xe4d\n\xff\xfe\n"))
    assert [isinstance(line, Undecodable) for line in lines] == [False, True, True]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"\n\r\n \n", "is empty"),
        (b"\0\1\2", "no text, but has bytes of 0"),
        (PACKED[:-12], "cannot be read to its end"),
        (PACKED[:20] + b"damage" + PACKED[30:], "cannot be read"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, data, says):
    with pytest.raises(InputError, match=says):
        read_lines(written(tmp_path / "bad.txt", data))
    with pytest.raises(InputError, match="is not there"):
        read_lines(tmp_path / "nowhere")


def test_pairs_line_by_line(tmp_path):
    one = written(tmp_path / "a.en", b"one\n\n three  four \nb\xe4d\nfive\n")
    other = written(tmp_path / "a.de", b"eins\nzwei\ndrei\tvier\nschlecht\n\n")
    pairs, aside = read_pairs([str(one), str(other)])
    assert list(zip(pairs.sources, pairs.targets, pairs.lines, strict=True)) == [
        ("one", "eins", 1),
        ("three four", "drei vier", 3),
    ]
    assert {(item.what, item.why) for item in aside} == {
        ("2 lines of a.en and a.de (2, 5)", "empty, on one side or both"),
        ("1 line of a.en and a.de (4)", "not UTF-8"),
    }
    written(other, b"eins\n")
    with pytest.raises(InputError, match=r"has 5 lines and '.*a.de' 1; they should go together"):
        read_pairs([str(one), str(other)])
    with pytest.raises(InputError, match="3 files are given"):
        read_pairs(["a", "b", "c"])


def test_pairs_in_columns(tmp_path):
    table = written(tmp_path / "t.tsv", "Hi.\t嗨。\tCC-BY\nRun!\t跑吧\nno translation\n".encode())
    pairs, aside = read_pairs([str(table)])
    assert (pairs.sources, pairs.targets) == (["Hi.", "Run!"], ["嗨。", "跑吧"])
    assert aside[0].what == "1 line of t.tsv (3)"
    with pytest.raises(InputError, match="no two columns"):
        read_pairs([str(written(tmp_path / "one.tsv", b"alone\nalone\n"))])
    with pytest.raises(InputError, match="no pair of sentences that can be used"):
        read_pairs([str(written(tmp_path / "e.tsv", b"a\t\n\tb\n"))])


def test_a_split_puts_what_has_one_source_into_one_part(tmp_path):
    lines = "".join(f"s{number % 50}\tt{number}\n" for number in range(200))
    pairs, _ = read_pairs([str(written(tmp_path / "t.tsv", lines.encode()))])
    train, held = split_pairs(pairs, 0.2, seed=0)
    assert len(train) + len(held) == 200
    assert len(set(held.sources)) == 10
    assert not set(train.sources) & set(held.sources)
    assert held.lines == split_pairs(pairs, 0.2, seed=0)[1].lines != split_pairs(pairs, 0.2, seed=1)[1].lines
    with pytest.raises(InputError, match="two at least are needed"):
        split_pairs(pairs.at([0, 50]), 0.2, seed=0)


def test_parts_that_stand_beside(tmp_path):
    for name in ("train.en.gz", "train.de.gz", "val.en", "val.de", "test_2016.en.gz", "test_2016.de.gz", "notes.en"):
        (tmp_path / name).touch()
    train = [str(tmp_path / "train.en.gz"), str(tmp_path / "train.de.gz")]
    assert beside(train, "validation") == [str(tmp_path / "val.en"), str(tmp_path / "val.de")]
    assert beside(train, "test") == [str(tmp_path / "test_2016.en.gz"), str(tmp_path / "test_2016.de.gz")]
    assert beside([str(tmp_path / "notes.en")] * 2, "test") is None
    (tmp_path / "val.de").unlink()
    assert beside(train, "validation") is None


SENTENCES = ["Ein Mädchen fährt Rad.", "Der Hund läuft.", "Ein Hund fährt Rad!"] * 5


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_what_is_encoded_is_decoded_again(tmp_path, kind):
    words = Vocabulary.learned(SENTENCES, kind, 400)
    tokens = words.encode(SENTENCES)
    assert all(one[-1] == END and END not in one[:-1] for one in tokens)
    assert words.decode(tokens) == SENTENCES
    names = words.names()
    assert "".join(names[token] for token in tokens[0]).strip() == f"{SENTENCES[0]}<end>"
    assert len(words.names()) == len(words)
    names = words.names()
    assert "".join(names[token] for token in tokens[0][:-1]).strip() == SENTENCES[0]
    words.write(tmp_path / "t.json")
    again = Vocabulary.read(tmp_path / "t.json")
    assert again.encode(SENTENCES) == tokens


def test_special_tokens_in_a_text_are_text():
    words = Vocabulary.learned(SENTENCES, "bpe", 400)
    (tokens,) = words.encode(["<end> <pad>"])
    assert tokens.count(END) == 1
    assert words.decode([tokens]) == ["<end> <pad>"]


def test_any_text_has_bytes_and_unknown_characters_are_known():
    strange = "日本 ☃ \U0001f600"
    pieces = Vocabulary.learned(SENTENCES, "bpe", 300)
    assert pieces.decode(pieces.encode([strange])) == [strange]
    assert pieces.unknown([strange]) == []
    letters = Vocabulary.learned(SENTENCES, "characters", 300)
    assert letters.unknown([strange, "Hund☃"]) == ["日", "本", "☃", "\U0001f600"]
    assert letters.encode(["☃"])[0] == [UNKNOWN, END]


def test_a_damaged_tokenizer_is_named(tmp_path):
    with pytest.raises(InputError, match="is no tokenizer"):
        Vocabulary.read(written(tmp_path / "t.json", b"{}"))


def test_dates_are_dates():
    """Every pair is one that Babel gives, no text stands for two dates, and no part has another's."""
    parts = pair_sources["dates"](0)
    assert (len(parts.train), len(parts.held), len(parts.later)) == (20_000, 1_000, 1_000)
    texts = [*parts.train.sources, *parts.held.sources, *parts.later.sources]
    assert len(set(texts)) == len(texts)
    assert all(len(one) == 10 and one[4] == one[7] == "-" for one in parts.train.targets)
    assert pair_sources["dates"](0).train.sources == parts.train.sources
    assert pair_sources["dates"](1).train.sources != parts.train.sources


def test_no_date_is_written_as_another_is():
    """In any of the languages and styles, over every day of a year."""
    from datetime import date, timedelta

    from babel.dates import format_date

    from vitrail.data.dates import LOCALES, STYLES

    seen = {}
    for day in (date(2023, 1, 1) + timedelta(days=number) for number in range(365)):
        for locale in LOCALES:
            for style in STYLES:
                assert seen.setdefault(format_date(day, style, locale=locale), day) == day
