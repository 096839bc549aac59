"""What is said while something lasts, where there is no terminal to draw on."""

import time

from vitrail.terminal import progress


def test_work_that_lasts_is_heard_of_and_work_that_does_not_is_not(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "SILENCE", 0.05)
    with progress.working("Thinking ..."):
        pass
    assert capsys.readouterr().err == ""
    with progress.working("Thinking ..."):
        time.sleep(0.4)
    said = capsys.readouterr().err.splitlines()
    assert 2 <= len(said) <= 8
    assert set(said) == {"Thinking ..."}


def test_parts_are_counted_while_one_of_them_lasts(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "SILENCE", 10.0)

    def items():
        yield from range(3)
        time.sleep(0.4)
        yield 3

    assert list(progress.counted("pictures", items(), 4)) == [0, 1, 2, 3]
    assert capsys.readouterr().err == "3 of 4 pictures\n"


def test_three_seconds_are_enough():
    assert progress.PATIENCE < 3


def test_spans_are_said_as_people_do():
    assert [progress.span(seconds) for seconds in (7, 89, 600, 9_000)] == ["7 s", "89 s", "10 min", "2.5 h"]
