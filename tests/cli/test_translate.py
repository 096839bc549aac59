"""``vitrail train``, ``translate``, ``evaluate`` and ``explain`` on sentences, as a user runs them."""

import json
import signal
import subprocess
import sys
import time

import pytest
from processes import vitrail
from sentences import SMALL, pairs, write_pairs

import vitrail as vt


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backwards")
    files = write_pairs(folder, 1500)
    write_pairs(folder, 40, seed=1, name="val")
    return vt.train(files, out=folder / "run", settings=SMALL, epochs=12, quiet=True).path


def test_a_line_for_each_line_in_order(run, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_bytes(b"abcd\r\n\nhg\nb\xe4d\nabc" + b"a" * 200 + b"\n")
    ran = vitrail("translate", run, lines)
    assert ran.stdout.split("\n")[:5] == ["DCBA", "", "GH", "", ""]
    assert ran.returncode == 1
    for said in ("line 2: empty", "line 4: not UTF-8", "line 5: 204 tokens, and the model takes 128", "3 of 5 lines"):
        assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_scores_and_json(run):
    ran = vitrail("translate", run, "abcd", "--nbest", "3", "--beam", "4")
    rows = [line.split("\t") for line in ran.stdout.splitlines()]
    assert rows[0][1] == "DCBA"
    assert [float(row[0]) for row in rows] == sorted((float(row[0]) for row in rows), reverse=True)
    ran = vitrail("translate", run, "abcd", "", "a" * 300, "--json")
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert found[0]["translations"][0]["text"] == "DCBA"
    assert found[1] == {"source": "", "translations": [], "error": "empty"}
    assert found[2]["error"] == "301 tokens, and the model takes 128"


def test_standard_input_is_a_stream(run):
    """What is typed is translated before more is typed, and Ctrl-C loses no finished line."""
    command = [sys.executable, "-m", "vitrail", "translate", str(run), "--method", "greedy"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        process.stdin.write(b"abcd\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"DCBA\n"
        process.stdin.write(b"hg\nfe")
        process.stdin.flush()
        assert process.stdout.readline() == b"GH\n"
        process.stdin.close()
        assert process.stdout.read() == b"EF\n"
        assert process.wait() == 0


def test_an_interrupted_stream_has_given_what_was_done(run, tmp_path, request):
    """Ctrl-C in the midst of many lines: those that came out are the first, whole, and nothing is torn."""
    lines = tmp_path / "many.txt"
    lines.write_text("".join(f"{word}\n" for word, _ in pairs(30_000, seed=4)))
    command = [sys.executable, "-m", "vitrail", "translate", str(run), "-", "--beam", "3"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell may have had ignored, for all
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with lines.open("rb") as source:
        pipes = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, bufsize=0, **pipes)  # so that no line waits where communicate finds it not
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    done = (first + out).decode().splitlines(keepends=True)
    assert 1 <= len(done) < 30_000
    assert done[-1].endswith("\n")
    right = sum(line == f"{word[::-1].upper()}\n" for line, (word, _) in zip(done, pairs(30_000, seed=4), strict=False))
    assert right > 0.9 * len(done)
    assert b"Traceback" not in said
    assert process.returncode not in (0, 1)


def test_a_mark_at_the_start_of_a_stream_is_no_word(run):
    command = [sys.executable, "-m", "vitrail", "translate", str(run)]
    ran = subprocess.run(command, input=b"\xef\xbb\xbfabcd\r\n", capture_output=True, check=False)
    assert ran.stdout == b"DCBA\n"
    assert b"never seen" not in ran.stderr


def test_a_mistyped_file_is_noted(run):
    assert "'lines.txt' is no file here" in vitrail("translate", run, "lines.txt").stderr


def test_a_model_goes_to_hf_with_its_tokenizer(run, tmp_path):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    assert vitrail("convert", run, tmp_path / "hf", "--format", "hf").returncode == 0
    words = AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "hf").eval()
    said = theirs.generate(**words(["abcd"], return_tensors="pt", return_token_type_ids=False), max_new_tokens=9)
    assert words.decode(said[0], skip_special_tokens=True).replace(" ", "") == "DCBA"
    assert vitrail("convert", run, tmp_path / "own", "--format", "vitrail").returncode == 0
    assert vitrail("translate", tmp_path / "own", "abcd").stdout == "DCBA\n"


def test_evaluate_says_bleu_with_its_signature(run, tmp_path):
    ran = vitrail("evaluate", run)
    assert ran.returncode == 0, ran.stderr
    assert "tok:13a" in ran.stdout
    assert "exact match" in ran.stdout
    files = write_pairs(tmp_path, 30, seed=9, name="other")
    found = json.loads(vitrail("evaluate", run, *files, "--json").stdout)
    assert found["tested"] == 30
    assert found["bleu"]["low"] <= found["bleu"]["value"] <= found["bleu"]["high"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--method", "best"], "method 'best' is not known"),
        (["--nbest", "9", "--beam", "4"], "choose beam=9 or more"),
        (["--method", "parallel"], "leave it out: beam"),
    ],
)
def test_wrong_options_are_a_sentence(run, words, says):
    ran = vitrail("translate", run, "abcd", *words)
    assert ran.returncode == 1
    assert says in ran.stderr
    assert "Traceback" not in ran.stderr


def test_what_is_no_run_is_a_sentence(tmp_path):
    ran = vitrail("translate", tmp_path / "nowhere", "abcd")
    assert ran.returncode == 1
    assert "is not there" in ran.stderr
    vt.save(vt.build("vit-pico/2"), tmp_path / "vit")
    assert "is a vit, and translates nothing" in vitrail("translate", tmp_path / "vit", "abcd").stderr


def test_options_of_pictures_are_not_of_sentences(tmp_path):
    files = write_pairs(tmp_path, 20)
    assert "--image is of pictures" in vitrail("train", *files, "--image", "32").stderr
    assert "--data is of pictures" in vitrail("train", "dates", "--data", tmp_path).stderr


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("a.low", "b.up"), "'a.low' is not there"),
        (("recipe.toml", "train.low"), "is a recipe, and 'train.low' is given too"),
    ],
)
def test_files_that_make_no_pair_are_a_sentence(tmp_path, names, says):
    write_pairs(tmp_path, 20)
    (tmp_path / "recipe.toml").write_text("")
    ran = vitrail("train", *names, cwd=tmp_path)
    assert ran.returncode == 1
    assert says in ran.stderr


def test_a_killed_training_goes_on_bit_for_bit(tmp_path):
    files = write_pairs(tmp_path, 300)
    words = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    words += [
        "--epochs",
        "12",
        "--set",
        "train.checkpoint=0",
        "--set",
        "train.accumulate=2",
        "--set",
        "model.dropout=0.2",
    ]
    assert vitrail("train", *files, "--out", tmp_path / "whole", *words).returncode == 0
    command = [sys.executable, "-m", "vitrail", "train", *files, "--out", str(tmp_path / "run"), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "run" / "checkpoints").glob("*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    ran = vitrail("train", "--resume", "--out", tmp_path / "run")
    assert ran.returncode == 0, ran.stderr
    whole, again = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run"))
    assert whole == again


def test_two_processes_learn_what_one_does(tmp_path):
    files = write_pairs(tmp_path, 200)
    words = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    one = ("--epochs", "2", "--set", "train.accumulate=2")
    assert vitrail("train", *files, "--out", tmp_path / "one", *words, *one).returncode == 0
    ran = vitrail("train", *files, "--out", tmp_path / "two", *words, "--epochs", "2", "--processes", "2")
    assert ran.returncode == 0, ran.stderr
    both = [vt.run(tmp_path / name) for name in ("one", "two")]
    losses = [[line["loss"] for line in one.metrics() if "lr" in line] for one in both]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    measured = [one.result for one in both]
    assert measured[0]["tested"] == measured[1]["tested"] == 9
    assert measured[0]["bleu"] == pytest.approx(measured[1]["bleu"], abs=1e-3)
    held = [[line["loss"] for line in one.metrics() if "part" in line] for one in both]
    assert held[0] == pytest.approx(held[1], rel=1e-4)


def test_the_page_shows_who_looks_at_whom(run, tmp_path, opened):
    ran = vitrail("explain", run, "--text", "abcd", "--text", "hg", "--out", tmp_path / "pages", "--json")
    assert ran.returncode == 0, ran.stderr
    facts = json.loads(ran.stdout.splitlines()[0])
    assert facts["written"] == "DCBA"
    numbers = json.loads((tmp_path / "pages" / "abcd.json").read_text())
    cross = numbers["attention"]["cross"]  # of one layer
    assert [len(cross), len(cross[0]), len(cross[0][0]), len(cross[0][0][0])] == [1, 2, 5, 5]
    with opened(tmp_path / "pages" / "abcd.html") as page:
        said = page.locator("#readout").inner_text()
        assert said.startswith("cross, layer 1, mean of the heads, from “<begin>”: most to")
        mean = [sum(head[0][place] for head in cross[0]) / 2 for place in range(5)]
        words = ["a", "b", "c", "d", "<end>"]
        best = max(range(5), key=mean.__getitem__)
        assert f"most to “{words[best]}”, {100 * mean[best]:.1f}%" in said
        for key in ("ArrowRight", "]", "g", "g", "g", "m"):
            page.keyboard.press(key)
            page.wait_for_timeout(60)
            now = page.locator("#readout").inner_text()
            assert now != said, key
            said = now
        page.locator(".cell").nth(1).click()
        page.wait_for_timeout(60)
        assert "head 2" in page.locator("#readout").inner_text()
        assert "D" in page.locator("#lens").inner_text()
    again = vitrail("explain", run, "--text", "abcd", "--target", "DCBB", "--out", tmp_path / "other")
    assert "DCBB" in again.stdout
    assert "name pictures to explain" in vitrail("explain", run, "--out", tmp_path / "x").stderr
