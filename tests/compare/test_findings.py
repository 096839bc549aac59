"""What is said of numbers: against SciPy, statsmodels' way of many tests, and curves that cross by construction."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from vitrail.compare.cells import DONE, Cell, Result, read_result
from vitrail.compare.experiments import Arm, Experiment, over_fractions
from vitrail.compare.findings import Findings
from vitrail.files import write_json
from vitrail.report.compare import write_comparison
from vitrail.report.compare_table import narrow_tables_of, table_of
from vitrail.tasks.task import Metric

PLACES = (0.01, 0.1, 1.0)
STEPS = 70
ACCURACY = Metric("accuracy", percent=True)


def findings(values, noise=0.002, seeds=7, places=PLACES, metric=ACCURACY, **fields):
    """Of arms by their values at each place, and noise of its own for each cell."""
    draw, arms = np.random.default_rng(0), [Arm(name) for name in values]
    results = [
        Result(
            Cell(arm, seed, at, arm.name),
            {metric.name: values[arm.name][number] + float(draw.normal(scale=noise)), "other": float(seed)},
            parameters=10,
            multiply_adds=10**6,
            seconds=1.0,
            steps=STEPS,
            moments=[(step, {"off": step + seed}) for step in (0, STEPS)] if arm.name == "one" else (),
        )
        for arm in arms
        for number, at in enumerate(places)
        for seed in range(seeds)
    ]
    return Findings(Experiment("x", "Which?", arms, **fields), over_fractions(places), results, metric)


def test_differences_are_paired_and_corrected_for_how_many_there_are():
    """By SciPy's paired test and SciPy-free Holm: each sorted p times how many are left, none below the one before."""
    found = findings({"one": (0.5, 0.6, 0.7), "two": (0.5, 0.605, 0.75), "three": (0.499, 0.6, 0.7)})
    first = found.arms[0]
    expected = {}
    for at in PLACES:
        for arm in found.arms[1:]:
            one, other = (list(found.of(each, at).values()) for each in (first, arm))
            expected[arm.name, at] = stats.ttest_rel(other, one).pvalue
    order, least = sorted(expected, key=expected.get), 0.0
    for number, key in enumerate(order):
        least = max(least, min(1.0, (len(order) - number) * expected[key]))
        (apart,) = [one.difference for one in found.contrasts if (one.arm, one.at) == key]
        assert apart.p_value == pytest.approx(expected[key])
        assert apart.corrected == pytest.approx(least)
        assert apart.differs == (least < 0.05)
    (clear,) = [line for line in found.sentences() if line.startswith("two is better than one at")]
    assert re.search(r"\b1: \+\d\.\d\d points \(\+", clear)


def test_an_arm_may_be_set_against_another_than_the_first():
    """Whose own numbers are subtracted; and against the first, where that is not there."""
    arms = {"one": (0.5,), "two": (0.6,), "three": (0.65,)}
    plain = findings(arms, places=(1.0,))
    arms_against = [Arm(name, against="two" if name == "three" else "gone") for name in arms]
    found = replace(plain, experiment=replace(plain.experiment, arms=arms_against))
    assert [(one.arm, one.against) for one in found.contrasts] == [("two", "one"), ("three", "two")]
    two, three = (found.of(arm, 1.0) for arm in found.arms[1:])
    expected = stats.ttest_rel(list(three.values()), list(two.values())).pvalue
    assert found.contrasts[1].difference.p_value == pytest.approx(expected)
    assert [line.partition(":")[0] for line in found.sentences()] == [
        "two is better than one",
        "three is better than two",
    ]


def test_what_seeds_cannot_tell_is_called_so():
    """One seed alone, or seeds that change nothing."""
    (line,) = findings({"one": (0.5,), "two": (0.6,)}, places=(1.0,), seeds=1).sentences()
    assert line == "One seed does not tell this difference from noise; give --seeds 3 or more."
    (line,) = findings({"one": (0.5,), "two": (0.6,), "three": (0.7,)}, noise=0.0, places=(1.0,)).sentences()
    assert line == "Seeds do not tell these 2 differences from noise: they are the same with each seed."


def test_of_a_loss_less_is_better():
    found = findings({"one": (2.0,), "two": (1.5,)}, places=(1.0,), metric=Metric("nats", higher=False))
    (line,) = found.sentences()
    assert line.startswith("two is better than one: -0.5")


def test_curves_cross_where_one_is_better_on_each_side_by_more_than_noise():
    found = findings({"one": (0.9, 0.9, 0.9), "two": (0.7, 0.9, 0.99), "three": (0.8999, 0.9, 0.9001)}, noise=0.004)
    said = [line for line in found.sentences() if "cross" in line]
    assert [line for line in said if line.startswith("one and two cross")]
    clear = {(one.one, one.other): one.clear for one in found.crossings}
    assert clear["one", "two"] is True
    assert clear.get(("one", "three")) in (None, False)
    (place,) = next(one.at for one in found.crossings if one.one == "one" and one.other == "two")[-1:]
    assert 0.01 < place < 1
    apart = findings({"one": (0.9, 0.9, 0.9), "two": (0.7, 0.8, 0.85)})
    assert apart.sentences()[-1] == "No two curves cross."


def test_what_has_no_number_is_said():
    """An arm that others are set against may have none, at a place or at all."""
    whole = findings({"one": (0.5, 0.6, 0.7), "two": (0.6, 0.7, 0.8), "three": (0.6, 0.7, 0.8)}, places=PLACES)
    some = [one for one in whole.results if one.cell.arm.name != "one" or one.cell.at != 0.1]
    found = replace(whole, results=some)
    assert found.sentences()[0] == "one has no number at fraction of the data 0.1: nothing is set against it there."
    assert {one.at for one in found.contrasts} == {0.01, 1.0}
    none = replace(whole, results=[one for one in whole.results if one.cell.arm.name != "one"])
    assert none.sentences()[0] == "one has no number; what is set against it is set against two."
    alone = replace(whole, results=[one for one in whole.results if one.cell.arm.name == "two"])
    assert alone.sentences() == ["one has no number."]
    pairs = [one for one in whole.results if one.cell.seed == 0 or one.cell.arm.name == "one"]
    said = replace(whole, results=pairs).sentences()
    assert "One seed does not tell these 6 differences from noise, which both arms have alone." in said


def test_a_number_that_is_none_is_left_out(tmp_path):
    cell = Cell(Arm("one"), 0, 1.0, "one")
    rest = dict.fromkeys(("parameters", "multiply_adds", "seconds", "steps", "epochs", "tested"), 1) | {"part": "test"}
    (tmp_path / cell.name).mkdir(parents=True)
    numbers = {"values": {"accuracy": 0.5, "loss": None}, "moments": [[0, {"off": None}], [1, {"off": 2.0}]], **rest}
    write_json(tmp_path / cell.name / DONE, numbers)
    found = Findings(
        Experiment("x", "Which?", [cell.arm]), over_fractions([1.0]), [read_result(cell, tmp_path)], ACCURACY
    )
    assert found.names == ["accuracy"]
    (followed,) = found.followed()
    assert followed.points == ((1.0, 2.0),)


def test_what_was_followed_is_a_mean_over_the_seeds(tmp_path):
    found = findings({"one": (0.5,), "two": (0.6,)}, places=(1.0,), seeds=5)
    (followed,) = found.followed()
    assert (followed.arm, followed.name, followed.points) == ("one", "off", ((0.0, 2.0), (1.0, STEPS + 2.0)))
    state = {
        **found.table(),
        "experiment": {"name": "x", "question": "Which?", "said": "", "notes": ["No one."]},
        "machine": {"processor": "p", "cores": 1},
        "when": "2026-01-01",
        "finished": True,
        "failed": {},
        "command": "vitrail compare x",
        "pictures": [],
    }
    page = write_comparison(tmp_path / "page.html", state).read_text()
    assert "one: off" in page
    assert "two: off" not in page
    assert "No one." in page
    assert "of their epochs" not in page
    results = [replace(one, part="test", tested=9) for one in found.results]
    cut = {**state, **replace(found, results=results).table(), "pace": 0.25}
    assert "All have 25% of their epochs" in write_comparison(tmp_path / "cut.html", cut).read_text()


def test_what_a_paper_has_stands_beside_it():
    found = findings({"one": (0.5,), "two": (0.6,)}, places=(1.0,), published={"two": 0.61})
    columns, rows = table_of(found.table())
    at = columns.index(">in the paper")
    assert [row[at] for row in rows] == ["", "61.00%"]
    plain, _ = table_of(findings({"one": (0.5,), "two": (0.6,)}, places=(1.0,)).table())
    assert ">in the paper" not in plain


def test_where_a_table_is_too_wide_it_has_a_row_for_each_place():
    """With the same means; and the same costs in a table of their own."""
    state = findings({"one": (0.5, 0.6, 0.7), "two": (0.4, 0.5, 0.6)}).table()
    columns, rows = table_of(state)
    (mean_columns, means), (cost_columns, costs) = narrow_tables_of(state)
    assert len(rows) == 2
    assert mean_columns == ["arm...", ">fraction of the data", ">accuracy"]
    assert [row[2] for row in means] == [mean for row in rows for mean in row[1:4]]
    assert [row[0] for row in means] == ["one", "", "", "two", "", ""]
    assert [row[1] for row in means] == 2 * ["0.01", "0.1", "1"]
    assert columns[-3:] == cost_columns[1:] == [">parameters", ">multiply-adds", ">seconds"]
    assert [row[1:] for row in costs] == [row[4:] for row in rows] == 2 * [["10", "1.0 M", "1"]]
    once = findings({"one": (0.5,), "two": (0.6,)}, places=(1.0,)).table()
    once["arms"][1]["multiply_adds"] = 640  # of a Gaussian for each class: nothing in millions
    assert [row[-2] for row in table_of(once)[1]] == ["1.0 M", "640"]
    (columns, rows), _ = narrow_tables_of(once)
    assert columns == ["arm...", ">accuracy"]
    assert [row[1] for row in rows] == [row[1] for row in table_of(once)[1]]


def test_the_numbers_are_a_line_for_each_cell(tmp_path):
    found = findings({"one": (0.5, 0.6, 0.7), "two": (0.5, 0.6, 0.7)}, seeds=2)
    found.write_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 3 * 2
    means = {
        (arm["name"], one["at"]): one["value"] for arm in found.table()["arms"] for one in arm["means"]["accuracy"]
    }
    for (name, at), value in means.items():
        own = [
            float(row["accuracy"]) for row in rows if row["arm"] == name and float(row["fraction of the data"]) == at
        ]
        assert value == pytest.approx(np.mean(own))
