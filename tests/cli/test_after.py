"""After training: evaluate and predict, as a user runs them."""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from corpus import good, write_bad, write_classes
from PIL import Image
from processes import vitrail

COUNTS = {"ant": 30, "bee": 30, "cow": 30}


@pytest.fixture(scope="module")
def trained(once):
    """A model of three colours, and the folder it learned from."""

    def make(folder):
        write_classes(folder / "all", COUNTS)
        ran = vitrail("train", folder / "all", "--out", folder / "run", "--epochs", "12", "--json")
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["accuracy"] == 1.0

    return once("colours", make)


def test_evaluate_says_what_training_said(trained):
    found = json.loads(vitrail("evaluate", trained / "run", "--json").stdout)
    assert found["tested"] == 18
    assert found["accuracy"] == 1.0
    scores = json.loads((trained / "run" / "scores.json").read_text())
    assert found["loss"] == pytest.approx(scores["loss"], abs=1e-6)
    text = vitrail("evaluate", trained / "run").stdout
    assert "accuracy     100.00% (18 of 18 test pictures)" in text
    assert "top 5" not in text  # of three classes
    assert (found["part"], found["trained on"], found["top5"]) == ("test", 0, None)
    assert "calibration" in text


def test_evaluate_on_other_pictures(trained, tmp_path):
    """Classes are matched by name; what is unknown or unreadable is said and left out."""
    write_classes(tmp_path, COUNTS)
    write_bad(tmp_path / "ant")
    write_classes(tmp_path, {"dog": 2})
    ran = vitrail("evaluate", trained / "run", tmp_path, "--json")
    found = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert found["tested"] == 90
    assert found["accuracy"] == 1.0
    assert {"what": str(tmp_path / "ant" / "cut.jpg"), "why": "cut short", "unreadable": True} in found["aside"]
    assert len(found["aside"]) == found["set aside"] > len(ran.stderr.splitlines())
    assert "of class 'dog', which the model does not know" in ran.stderr
    assert found["part"] == "all"


def test_pictures_that_were_trained_on_are_known_again(trained, tmp_path):
    """Also under other names, and pixel for pixel alone."""
    for number, file in enumerate(sorted((trained / "all" / "ant").iterdir())):
        (tmp_path / "ant").mkdir(exist_ok=True)
        shutil.copy(file, tmp_path / "ant" / f"other{number}.png")
    write_classes(tmp_path, {"bee": 5}, seed=99)
    ran = vitrail("evaluate", trained / "run", tmp_path, "--json")
    assert json.loads(ran.stdout)["trained on"] == 24
    assert "warning: 24 of the 35 were also trained on: the numbers are too good." in ran.stderr


def test_a_folder_may_have_the_name_of_a_source(trained, tmp_path):
    write_classes(tmp_path / "pictures", {"ant": 2, "bee": 3}, seed=5)
    found = json.loads(vitrail("evaluate", trained / "run", "pictures", "--json", cwd=tmp_path).stdout)
    assert (found["part"], found["tested"]) == ("all", 5)


def test_a_table_of_validation_and_test_is_measured_on_its_test_part(trained, tmp_path):
    write_classes(tmp_path, {"ant": 4, "bee": 4}, seed=6)
    rows = [f"{f},{f.parent.name},{'val' if int(f.stem) < 3 else 'test'}" for f in sorted(tmp_path.rglob("*.png"))]
    (tmp_path / "t.csv").write_text("path,label,split\n" + "\n".join(rows))
    found = json.loads(vitrail("evaluate", trained / "run", tmp_path / "t.csv", "--json").stdout)
    assert (found["part"], found["tested"]) == ("test", 2)


def test_an_empty_folder_among_others_is_said_first(trained, tmp_path):
    (tmp_path / "none").mkdir()
    ran = vitrail("predict", trained / "run", trained / "all" / "ant" / "000.png", tmp_path / "none")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert "is a folder with no file in it" in ran.stderr


def test_the_digits_are_split_as_the_run_split_them(tmp_path):
    words = ("--set", "data.seed=7", "--epochs", "1")
    assert vitrail("train", "digits", "--out", tmp_path / "run", *words).returncode == 0
    own = json.loads(vitrail("evaluate", tmp_path / "run", "--json").stdout)
    assert (own["part"], own["tested"]) == ("test", 360)
    named = json.loads(vitrail("evaluate", tmp_path / "run", "digits", "--json").stdout)
    assert named["trained on"] == own["trained on"] == 0
    assert named["loss"] == own["loss"]


def test_three_parts(tmp_path):
    """Validated on val/ while training; measured on test/ at the end, and val/ when it is named."""
    for name, count, seed in (("train", 8, 0), ("val", 3, 1), ("test", 5, 2)):
        write_classes(tmp_path / "all" / name, {"ant": count, "bee": count}, seed=seed)
    ran = vitrail("train", tmp_path / "all", "--out", tmp_path / "run", "--epochs", "2")
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"validation accuracy [\d.]+% \(\d of 6\), run in", ran.stdout)
    assert "16 pictures to train on, 6 to validate on" in ran.stderr
    assert "all/test, for the end: `vitrail evaluate RUN` measures on it" in ran.stderr
    assert "test accuracy" not in ran.stdout + ran.stderr + (tmp_path / "run" / "report.html").read_text()
    for words, part, tested in (((), "test", 10), ((tmp_path / "all",), "test", 10)):
        found = json.loads(vitrail("evaluate", tmp_path / "run", *words, "--json").stdout)
        assert (found["part"], found["tested"]) == (part, tested)
    assert json.loads(vitrail("evaluate", tmp_path / "run", tmp_path / "all" / "val", "--json").stdout)["tested"] == 6
    assert json.loads((tmp_path / "run" / "config.json").read_text())["result"]["part"] == "validation"
    shutil.rmtree(tmp_path / "all" / "test")
    gone = vitrail("evaluate", tmp_path / "run")
    assert gone.returncode == 1
    assert "are no longer in" in gone.stderr


def test_the_plan_counts_what_is_there(tmp_path):
    """Also where some of it could not be read."""
    write_classes(tmp_path / "all", {"ant": 30, "bee": 2})
    write_bad(tmp_path / "all" / "ant")
    words = ("--epochs", "1", "--set", "data.bad=0.9", "--json")
    ran = vitrail("train", tmp_path / "all", "--out", tmp_path / "run", *words)
    assert ran.returncode == 0, ran.stderr
    *planned, counted = re.findall(r"([\d,]+) pictures to train on", ran.stderr)
    assert set(planned) == {"28"}, "before they were decoded"
    assert counted == str(json.loads((tmp_path / "run" / "data.json").read_text())["train"]) == "24"


def test_predict_a_file_a_folder_and_standard_input(trained):
    first = trained / "all" / "bee" / "000.png"
    lines = vitrail("predict", trained / "run", first, trained / "all" / "cow", "--json").stdout.splitlines()
    answers = [json.loads(line) for line in lines]
    assert len(answers) == 31
    assert [one["answers"][0]["label"] for one in answers] == ["bee"] + ["cow"] * 30
    for one in answers:
        chances = [answer["probability"] for answer in one["answers"]]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) == pytest.approx(1)
    piped = json.loads(
        vitrail("predict", trained / "run", "-", "--json", "--top", "1", given=first.read_bytes()).stdout
    )
    assert piped["answers"] == [{"label": "bee", "probability": pytest.approx(answers[0]["answers"][0]["probability"])}]
    text = vitrail("predict", trained / "run", first, "--top", "2").stdout
    assert text.startswith(f"{first}  bee ")
    assert text.count("%") == 2


def test_predictions_as_a_table_from_a_list_or_a_table(trained, tmp_path):
    files = [trained / "all" / "bee" / "000.png", trained / "all" / "cow" / "001.png"]
    lines = vitrail("predict", trained / "run", *files, "--json", "--top", "1").stdout.splitlines()
    expected = [(one["file"], one["answers"][0]) for one in map(json.loads, lines)]
    names = "".join(f"{file}\n" for file in files).encode()
    (tmp_path / "some.csv").write_text("id,path\n" + "".join(f"{n},{file}\n" for n, file in enumerate(files)))
    for words, given in ((files, b""), (["--list"], names), ([tmp_path / "some.csv"], b"")):
        ran = vitrail("predict", trained / "run", *words, "--csv", "--top", "1", given=given)
        assert ran.returncode == 0, ran.stderr
        head, *rows = csv.reader(ran.stdout.splitlines())
        assert head == ["file", "label", "probability"]
        assert [(file, label) for file, label, _ in rows] == [(file, one["label"]) for file, one in expected]
        assert [float(row[2]) for row in rows] == pytest.approx([one["probability"] for _, one in expected], abs=1e-6)
    assert "name pictures or folders" in vitrail("predict", trained / "run").stderr


def test_a_bad_file_does_not_stop_the_others(trained, tmp_path):
    names = write_bad(tmp_path)
    for name, data in good().items():
        (tmp_path / name).write_bytes(data)
    ran = vitrail("predict", trained / "run", tmp_path, tmp_path / "nowhere.png", "--json")
    answers = {json.loads(line)["file"]: json.loads(line) for line in ran.stdout.splitlines()}
    assert ran.returncode == 1
    assert sum("error" in one for one in answers.values()) == len(names) + 1
    assert sum("answers" in one for one in answers.values()) == len(good())
    assert f"{len(names) + 1} of the pictures could not be read" in ran.stderr


def test_a_turned_picture_is_the_same_picture(trained, tmp_path):
    """EXIF rotation is applied: the answer to a picture does not change with how it is stored."""
    with Image.open(trained / "all" / "ant" / "000.png") as image:
        image.load()
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "plain.png")
    image.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "turned.png", exif=exif.tobytes())
    lines = vitrail("predict", trained / "run", tmp_path, "--json").stdout.splitlines()
    plain, turned = (json.loads(line)["answers"] for line in lines)
    assert plain == turned


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.json", "needs the run's config.json beside it; give its whole folder"),
        ("model.safetensors", "model.safetensors' is not there; the run may not have finished"),
    ],
)
def test_a_run_with_a_part_missing_gets_a_sentence(trained, tmp_path, name, sentence):
    _but(name, trained / "run", tmp_path)
    ran = vitrail("predict", tmp_path, trained / "all")
    assert ran.returncode == 1
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_run_without_names_of_its_classes_answers_in_numbers(trained, tmp_path):
    _but("labels.json", trained / "run", tmp_path)
    names = json.loads((trained / "run" / "labels.json").read_text())
    with_names, without = (vitrail("predict", run, trained / "all", "--json") for run in (trained / "run", tmp_path))
    assert "the classes have no names here" in without.stderr
    for named, numbered in zip(with_names.stdout.splitlines(), without.stdout.splitlines(), strict=True):
        answers = [answer["label"] for answer in json.loads(named)["answers"]]
        assert [names[int(answer["label"])] for answer in json.loads(numbered)["answers"]] == answers


def _but(missing: str, run: Path, folder: Path) -> None:
    for file in {"labels.json", "config.json", "model.safetensors"} - {missing}:
        (folder / file).write_bytes((run / file).read_bytes())
