"""Shrinking as a whole: each step is measured, stays if it pays, and what comes of it is a run like any other."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from sentences import SMALL as PAIRS
from sentences import write_pairs
from texts import TAGS, TEXT, write_tags, write_text
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import vitrail as vt
from vitrail.errors import InputError
from vitrail.files import read_json
from vitrail.runs import Run
from vitrail.shrink import shrink
from vitrail.shrink.asked import Asked
from vitrail.shrink.costs import Costs, peak
from vitrail.shrink.lighter import Quantize
from vitrail.shrink.plan import ORDER, chosen
from vitrail.shrink.shrinking import Shrinking
from vitrail.shrink.steps import Goals, History, Step, Worth, pays, read_step
from vitrail.trainer import train
from vitrail.training import Interrupted
from vitrail.weights import Weights, read
from vitrail.weights.onnx import save_onnx

SMALL = {"model.width": 32, "model.depth": 4, "model.heads": 4, "model.hidden": 64, "train.keep": 2}
FREE = 100.0  # points that may be lost: all


@pytest.fixture(scope="module")
def run(once):
    """A model of the digits that knows something."""
    return (
        once("shrunk", lambda folder: train("digits", out=folder / "run", epochs=6, settings=SMALL, quiet=True)) / "run"
    )


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Memory is measured in processes of their own, and time in many rounds, which takes long: here it does not."""
    monkeypatch.setattr("vitrail.shrink.costs.SECONDS", 0.1)
    monkeypatch.setattr("vitrail.shrink.costs.peak", lambda _: None)


def shrunk(run, out, *ways, **options):
    options = {"max_drop": FREE, "minutes": 0.1, "quiet": True, **options}
    made = shrink(run, out=out, ways=ways, **options)
    return made, read_json(out / "shrink.json")


def real(model):
    """Parameters and multiply-adds, counted on a real pass, with attention as plain products, which are all counted."""
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(model.example())
    return sum(p.numel() for p in model.parameters()), counter.get_total_flops() // 2


@pytest.mark.parametrize(
    ("way", "field", "value"),
    [
        ("image=6", "image", 6),
        ("heads=0.5", "heads", None),
        ("neurons=0.5", "hidden", None),
        ("layers=1", "depth", 3),
        ("distil=0.5", "depth", 2),
        ("distil=width=16,depth=2", "width", 16),
        ("distil=resnet-small,width=8,units=[1,2]", "units", (1, 2)),
        ("factor=0.4", "factors", None),
        ("merge=2", "merge", 2),
        ("image=6+layers=1+neurons=0.5", "depth", 3),
        ("quantize=4", "depth", 4),
    ],
)
def test_every_way_gives_a_run_like_any_other(run, tmp_path, way, field, value):
    made, state = shrunk(run, tmp_path / "small", way)
    original, step = state["steps"]
    folder = Run(tmp_path / "small" / "steps" / step["folder"])  # also where it was undone
    config, before = folder.weights().config, Run(run).weights().config
    found = getattr(config, field)
    assert found == value if value is not None else found != getattr(before, field)
    assert all(getattr(config, name) == getattr(before, name) for name in ("channels", "classes"))
    parameters, adds = real(folder.weights().model())
    assert (step["costs"]["parameters"], step["costs"]["multiply_adds"]) == (parameters, adds)
    assert step["costs"]["bytes"] == (folder.path / "model.safetensors").stat().st_size
    assert step["worth"]["value"] == pytest.approx(folder.evaluate().values["accuracy"], abs=1e-9)
    assert step["drop"] == pytest.approx(100 * (original["worth"]["value"] - step["worth"]["value"]))
    assert made.evaluate().values["accuracy"] == pytest.approx(
        (step if step["kept"] else original)["worth"]["value"], abs=1e-9
    )
    assert not (folder.path / "checkpoints").exists()
    assert [one.name for one in (tmp_path / "small" / "steps").iterdir()] == [step["folder"]]
    again = train("digits", weights=tmp_path / "small", out=tmp_path / "again", epochs=1, quiet=True)  # learns on
    assert again.result["accuracy"] > 0.3


def test_int8_answers_and_the_tensors_are_looked_into(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", "quantize")
    assert made.about["answers"] == "model.int8.onnx.gz"
    assert made.answering().format == "onnx"
    assert made.weights().format == "vitrail"
    step = state["steps"][1]
    assert step["costs"]["bytes"] == (tmp_path / "small" / "model.int8.onnx.gz").stat().st_size
    assert made.evaluate().values["accuracy"] == pytest.approx(step["worth"]["value"], abs=0.012)  # batches of others
    twice, after = shrunk(tmp_path / "small", tmp_path / "twice", "layers=1")  # what is shrunk again stays int8
    assert twice.answering().format == "onnx"
    assert twice.weights().config.depth == 3
    assert after["steps"][1]["costs"]["parameters"] < step["costs"]["parameters"]


def test_a_student_of_another_kind_learns_as_its_kind_does_and_has_kernels_of_bytes(run, tmp_path):
    ways, how = ("distil=cnn,root=small,width=8,units=[1,1]", "quantize"), {"train.epochs": 2}
    made, state = shrunk(run, tmp_path / "small", *ways, minutes=None, settings=how)
    student = Run(tmp_path / "small" / "steps" / state["steps"][1]["folder"])
    assert student.recipe.teacher.path == str(run.resolve())
    assert (student.recipe.optim.name, Run(run).recipe.optim.name) == ("adamw", "muon")
    assert made.weights().family == "cnn"
    assert made.answering().format == "onnx"
    whole, few = (step["costs"]["bytes"] for step in state["steps"][1:])
    assert few < whole / 2
    values = [step["worth"]["value"] for step in state["steps"][1:]]
    assert values[1] == pytest.approx(values[0], abs=0.02)


def test_what_costs_too_much_is_undone_and_tried_by_half(run, tmp_path, monkeypatch):
    """Layers after which nothing is fitted, nor learns, lose much: it is the original, and is said by how much."""
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.trains", False)
    monkeypatch.setattr("vitrail.shrink.making.FIT", 0.0)
    out = tmp_path / "small"
    goals = Goals(max_drop=0.1, speedup=50, minutes=10)
    asked = Shrinking(Asked(str(run), goals=goals, ways=("layers=3",)), out, quiet=True)
    made = asked.run()
    first, *steps = read_json(out / "shrink.json")["steps"]
    assert [step["name"] for step in steps] == ["layers=3", "layers=1"]
    assert [step["again"] for step in steps] == [False, True]
    assert all(step["costly"] and not step["kept"] and "0.1 may be lost" in step["why"] for step in steps)
    assert "nothing was found that pays" in asked.summary()
    assert read_json(out / "shrink.json")["missed"] == ["it is 1.00 times as fast, and 50 were wanted"]
    for name, tensor in Run(run).weights().state.items():
        assert torch.equal(made.weights().state[name], tensor)
    assert made.evaluate().values["accuracy"] == first["worth"]["value"]


def test_an_interrupted_shrinking_goes_on_where_it_was(run, tmp_path, monkeypatch):
    """Stopped in the middle of a training, it ends to the bit as one that nobody stopped."""
    two, how = ("neurons=0.75", "distil=0.5"), {"minutes": None, "max_drop": 0.2, "settings": {"train.epochs": 3}}
    whole, _ = shrunk(run, tmp_path / "whole", *two, **how)
    from vitrail.training.job import Job

    steps, seen = Job.steps, []

    def stopped(self, *_):
        for event in steps(self, stop=lambda: len(seen) == 40):
            seen.append(event)
            yield event

    monkeypatch.setattr(Job, "steps", stopped)
    with pytest.raises(Interrupted):
        shrunk(run, tmp_path / "small", *two, **how)
    monkeypatch.setattr(Job, "steps", steps)
    with pytest.raises(InputError, match="by adding --resume"):
        shrunk(run, tmp_path / "small", *two, **how)
    with pytest.raises(InputError, match="was begun as `vitrail shrink"):
        shrunk(run, tmp_path / "small", *two[:1], **how, resume=True)
    made, state = shrunk(run, tmp_path / "small", *two, **how, resume=True)
    other = read_json(tmp_path / "whole" / "shrink.json")
    assert [step["worth"]["value"] for step in state["steps"]] == [step["worth"]["value"] for step in other["steps"]]
    for name, tensor in whole.weights().state.items():
        assert torch.equal(made.weights().state[name], tensor)


def test_tickets_keep_their_zeros_and_a_random_one_stands_beside(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", "tickets=0.8", minutes=0.2)
    step = state["steps"][1]
    folder = tmp_path / "small" / "steps"
    tickets = {name: Run(folder / f"{step['folder']}{name}").weights().state for name in ("", ".random", ".round-3")}
    for name, tensor in tickets[""].items():
        assert torch.equal(tensor, tickets[".round-3"][name])
        if name.startswith("encoder.") and tensor.ndim > 1:
            assert torch.equal(tensor == 0, tickets[".random"][name] == 0)
    gone = sum(
        int((one == 0).sum()) for name, one in tickets[""].items() if name.startswith("encoder.") and one.ndim > 1
    )
    every = sum(one.numel() for name, one in tickets[""].items() if name.startswith("encoder.") and one.ndim > 1)
    assert gone / every == pytest.approx(0.8, abs=0.001)
    assert "a random ticket comes to" in step["done"]
    assert state["steps"][0]["costs"]["bytes"] > 1.7 * step["costs"]["bytes"]
    assert made.weights().config == Run(run).weights().config


def test_without_names_ways_are_chosen_and_kept_as_far_as_they_pay(run, tmp_path):
    made, state = shrunk(run, tmp_path / "small", minutes=0.3, max_drop=10.0)
    first, *steps = state["steps"]
    names = [step["name"].partition("=")[0] for step in steps]
    assert names[0] == "neurons"
    assert names[-1] == "quantize"
    assert all(step["kept"] or step["why"] for step in steps)
    last = [step for step in (first, *steps) if step["kept"]][-1]
    assert last["drop"] <= 10
    assert made.evaluate().values["accuracy"] == pytest.approx(last["worth"]["value"], abs=0.012)
    assert (tmp_path / "small" / "shrink.html").is_file()


def test_weights_and_data_that_are_named(tmp_path):
    """Weights of no run, measured on pictures that are named; without any, what needs none is done and said so."""
    from corpus import write_classes

    write_classes(tmp_path / "all", {"ant": 12, "bee": 12})
    learned = train(tmp_path / "all", out=tmp_path / "run", epochs=2, quiet=True)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors", "labels.json"):
        shutil.copyfile(learned.path / name, bare / name)
    _, state = shrunk(bare, tmp_path / "small", "layers=1", data=tmp_path / "all")
    assert state["steps"][0]["worth"]["value"] == learned.evaluate().values["accuracy"]
    assert state["measured on"] == {"part": "test", "examples": len(learned.evaluation_set())}
    assert Run(tmp_path / "small").evaluate().values  # which says what it was measured on
    _, state = shrunk(bare, tmp_path / "few", "quantize=4")
    assert state["metric"] is None
    assert state["steps"][1]["kept"]
    with pytest.raises(InputError, match="layers needs data"):
        shrunk(bare, tmp_path / "none", "layers=1")
    write_classes(tmp_path / "others", {"cat": 12, "dog": 12})
    with pytest.raises(InputError, match="has no head for the classes of the data, cat, dog; train it on them first"):
        shrunk(bare, tmp_path / "none", "layers=1", data=tmp_path / "others")


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        (["head"], "did you mean 'heads'"),
        (["heads="], "has no amount behind the ="),
        (["heads=2"], "give the share that goes"),
        (["layers=4"], "4 layers cannot go, since there are 4"),
        (["layers=1.5"], "is no amount for layers"),
        (["merge=none"], "is no amount for merge"),
        (["quantize=9"], "give int8, or how many bits"),
        (["distil=5"], "is no amount for distil"),
        (["distil=widht=5"], "did you mean 'distil.width'"),
        (["distil=resnet-smal,width=8"], "did you mean 'resnet-small'"),
        (["distil=cnn,depth=8"], "'distil.depth'"),
        (["distil=gaussian"], "learn from no teacher"),
        (["distil=gpt"], "labels pictures"),
        (["patches=3"], "no ViT of plain patches"),
        (["patches=1.5"], "is no amount for patches"),
    ],
)
def test_what_cannot_be_is_said_at_once(run, tmp_path, ways, message):
    with pytest.raises(InputError, match=message):
        shrunk(run, tmp_path / "small", *ways)
    assert not (tmp_path / "small").exists()


def test_models_that_a_way_does_not_fit(run, tmp_path):
    text = vt.build("gpt", tokens=11, width=24, depth=2, heads=4, length=12)
    vt.save(text, tmp_path / "gpt", task="language")
    for way, message in (("quantize", "int8 is of models that label pictures"), ("merge=1", "merged in a ViT")):
        with pytest.raises(InputError, match=message):
            shrunk(tmp_path / "gpt", tmp_path / "small", way)
    save_onnx(read(run), tmp_path / "model.onnx")
    with pytest.raises(InputError, match="is an ONNX file"):
        shrunk(tmp_path / "model.onnx", tmp_path / "small")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="is left alone"):
        shrunk(run, tmp_path / "there", "layers=1")
    assert [one.name for one in (tmp_path / "there").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(("name", "width"), [("text", 8), ("tags", 8)])
def test_a_fresh_student_of_text_learns_from_its_teacher(texts, tmp_path, name, width):
    """It has its teacher's tokens, and its recipe says who taught it."""
    way, how = f"distil=width={width},depth=1,heads=1", {"train.steps": 3}
    _, state = shrunk(texts / name, tmp_path / "small", way, minutes=None, settings=how)
    student = Run(tmp_path / "small" / "steps" / state["steps"][1]["folder"])
    assert student.recipe.teacher.path == str((texts / name).resolve())
    assert student.weights().config.width == width
    tokens = [(one / "tokenizer.json").read_bytes() for one in (student.path, texts / name)]
    assert tokens[0] == tokens[1]


def test_a_shrinking_goes_on_only_with_the_original_that_it_began_with(run, tmp_path):
    shrunk(run, tmp_path / "small", "quantize=8")
    state = read_json(tmp_path / "small" / "shrink.json")
    state["steps"][0]["worth"]["value"] -= 0.1  # as if the run had been trained on since
    (tmp_path / "small" / "shrink.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match=r"is not what it was when this shrinking began: its number was \d"):
        shrunk(run, tmp_path / "small", "quantize=8", resume=True)


SIZES = {
    "text": {"model.depth": 2},
    "tags": {"model.depth": 2},
    "words": {"model.decoder": 2},
}


@pytest.fixture(scope="module")
def texts(once):
    """Models of text, of tags and of translating, that know nothing much."""

    def make(folder):
        given = {
            "text": (write_text(folder / "some.txt"), TEXT),
            "tags": (write_tags(folder / "words.txt"), TAGS),
            "words": (write_pairs(folder, 60), PAIRS),
        }
        for name, (data, settings) in given.items():
            train(data, out=folder / name, settings={**settings, **SIZES[name], "train.steps": 4}, quiet=True)

    return once("shrunk-texts", make)


@pytest.mark.parametrize("name", ["text", "tags", "words"])
def test_models_of_text(texts, tmp_path, name):
    """Layers of each go, matrices become eight bits, and what comes of it is measured as any other run is."""
    settings = {"train.steps": 3}
    made, state = shrunk(texts / name, tmp_path / "small", "layers=1", "quantize=8", minutes=None, settings=settings)
    original, layers, packed = state["steps"]
    config, before = made.weights().config, Run(texts / name).weights().config
    field = "decoder" if name == "words" else "depth"
    assert (getattr(before, field), getattr(config, field)) == (2, 1)
    assert packed["costs"]["bytes"] < 0.6 * layers["costs"]["bytes"]
    assert layers["costs"]["parameters"] == sum(p.numel() for p in made.weights().model().parameters())
    low, high = packed["worth"]["interval"]
    assert low - 1e-9 <= packed["worth"]["value"] <= high + 1e-9
    test = "McNemar" if name == "words" else "paired bootstrap"
    assert packed["worth"]["comparison"]["test"].startswith(test)
    metric = state["metric"]["name"]
    if name != "words":  # which is measured by beams afterwards, and greedily here
        assert made.evaluate().values[metric] == pytest.approx(packed["worth"]["value"], rel=1e-4)
    assert original["worth"]["value"] == pytest.approx(Run(texts / name).result[metric], rel=1e-4)


def test_a_translator_runs_as_eight_bits(texts, tmp_path):
    """Its steps are files' that say nearly what its tensors say; shrunk again it stays so."""
    original = Run(texts / "words").copy(tmp_path / "words", "cp")
    weights, draw = original.weights(), torch.Generator().manual_seed(0)
    strong = {name: one + 0.2 * torch.randn(one.shape, generator=draw) for name, one in weights.state.items()}
    original.derive(original.path, replace(weights, state=strong), "noise")  # so that tokens differ
    made, state = shrunk(original.path, tmp_path / "small", "quantize")
    assert (
        made.about["answers"] == ["encoder.int8.onnx.gz", "step.int8.onnx.gz"] == [file.name for file in made.answers]
    )
    assert state["steps"][1]["costs"]["bytes"] == sum(file.stat().st_size for file in made.answers)
    assert type(made.answering().model()).__name__ == "OnnxSeq2Seq"
    copied = made.copy(tmp_path / "copy", "cp")
    assert made.evaluate(beam=1).outputs == copied.evaluate(beam=1).outputs
    tokens = torch.randint(5, 20, (3, 6), generator=draw)
    with torch.no_grad():
        exact, found = (one.model()((tokens, tokens)) for one in (original.weights(), made.answering()))
    assert 0 < (found - exact).std() / exact.std() < 0.1
    twice, _ = shrunk(made.path, tmp_path / "twice", "layers=1", minutes=None, settings={"train.steps": 2})
    assert twice.answering().config.decoder == 1
    assert type(twice.answering().model()).__name__ == "OnnxSeq2Seq"
    copied.answers[0].unlink()
    assert copied.answers == []  # and its tensors answer
    assert copied.answering().state


def test_what_translators_run_as_eight_bits():
    """Those that say token by token with plain attention; that are to be small alone are packed."""
    original = Step(0, "original", "", Costs(1, 1, 100, None), (), (1.0, 1.0))
    history = History(original, skipped=[(name, "") for name in ORDER])

    def last(goals=None, **fields):
        model = vt.build("seq2seq", source=9, target=9, width=8, depth=1, heads=2, **fields)
        weights = Weights("here", "vitrail", "seq2seq", model.config, dict(model.state_dict()))
        return str(chosen(history, goals or Goals(), weights, data=True))

    assert last() == last(Goals(speedup=2.0)) == "quantize=int8"
    assert last(Goals(compression=3.5)) == "quantize=8"
    assert {last(position="rotary"), last(kernel="linear"), last(parallel=True)} == {"quantize=8"}
    assert str(Quantize("int8").milder(Weights("here", "vitrail", "seq2seq", None, {}))) == "quantize=8"


def test_a_tagger_keeps_its_head_on_data_that_is_named(texts, tmp_path):
    _, state = shrunk(texts / "tags", tmp_path / "small", "quantize=8", data=texts / "words.txt")
    held = Run(tmp_path / "small" / "steps" / "00-original").weights().state
    for name, tensor in Run(texts / "tags").weights().state.items():
        assert torch.equal(held[name], tensor)
    assert state["steps"][0]["worth"]["value"] == pytest.approx(Run(texts / "tags").result["accuracy"])


def test_a_text_model_by_itself_is_packed(texts, tmp_path):
    _, state = shrunk(texts / "text", tmp_path / "small", minutes=0.05, settings={"train.steps": 2})
    assert state["steps"][-1]["name"] == "quantize=8"


def test_what_does_not_fit_what_is_left_is_said_and_the_others_go_on(run, tmp_path):
    """Layers twice, where one is left after the first; and the page says what was not tried."""
    few = {"train.epochs": 1}
    _, state = shrunk(run, tmp_path / "small", "layers=3", "layers=3", "quantize=4", minutes=None, settings=few)
    assert [step["name"] for step in state["steps"]] == ["original", "layers=3", "quantize=4"]
    assert state["skipped"] == [["layers", "3 layers cannot go, since there are 1; one stays."]]
    assert "Not tried" in (tmp_path / "small" / "shrink.html").read_text()


def test_an_original_that_nothing_pays_for_stays_as_it_is(run, tmp_path):
    """Also one that is packed, and runs as an ONNX file."""
    shrunk(run, tmp_path / "small", "quantize")
    made, state = shrunk(tmp_path / "small", tmp_path / "same", "merge=1", max_drop=0.0)
    if not state["steps"][1]["kept"]:
        for name in ("model.safetensors", "model.int8.onnx.gz"):
            assert (made.path / name).read_bytes() == (tmp_path / "small" / name).read_bytes()
        assert made.about["answers"] == "model.int8.onnx.gz"
    with pytest.raises(InputError, match="has no checkpoint to go on from"):
        train(out=made.path, resume=True, quiet=True)


def test_settings_that_do_not_fit_are_said_before_anything_is_made(run, tmp_path):
    with pytest.raises(InputError, match=r"did you mean 'train\.epochs'"):
        shrunk(run, tmp_path / "small", "layers=1", settings={"train.epoch": 3})
    assert not (tmp_path / "small" / "steps").exists()


def test_a_costly_step_without_a_half_is_followed_by_the_next_once(run, tmp_path, monkeypatch):
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.trains", False)
    monkeypatch.setattr("vitrail.shrink.cutting.Layers.milder", lambda *_: None)
    _, state = shrunk(run, tmp_path / "small", "layers=3", "quantize=8", "quantize=4", max_drop=1.0, minutes=5)
    names = [(step["name"], step["again"]) for step in state["steps"][1:]]
    assert names[:3] == [("layers=3", False), ("quantize=8", False), ("quantize=4", False)]


def test_from_the_command_line(run, tmp_path, invoke):
    status, out, err = invoke(
        "shrink", run, "--out", tmp_path / "small", "--way", "layers=1", "--way", "quantize=8", "--max-drop", "100"
    )
    assert status == 0, err
    assert "layers=1" in out
    assert "times smaller" in out
    assert "shrink.html" in err
    status, out, err = invoke("shrink", run, "--out", tmp_path / "small")
    assert status == 1
    assert "by adding --resume" in err
    status, out, err = invoke("shrink", run, "--out", tmp_path / "other", "--way", "quantize=4", "--json")
    assert status == 0, err
    assert json.loads(out)["steps"][1]["name"] == "quantize=4"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1440, "light")])
def test_the_page_opens_without_a_complaint(opened, run, tmp_path, width, scheme):
    shrunk(run, tmp_path / "small", "layers=1", "quantize=4", minutes=0.1)
    with opened(
        tmp_path / "small" / "shrink.html", viewport={"width": width, "height": 900}, color_scheme=scheme
    ) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        text = page.inner_text("main")
        assert "layers=1" in text
        assert "McNemar" in text
        assert page.locator("svg circle").count() == 6  # three steps at two batches


def test_memory_grows_with_the_model(tmp_path):
    """By more than the tensors of a large one; and of what is no model nothing is known."""
    sizes = []
    for depth in (1, 24):
        model = vt.build("vit", image=32, patch=8, channels=3, width=384, depth=depth, heads=6, classes=5)
        vt.save(model, tmp_path / str(depth))
        sizes.append((peak(Run(tmp_path / str(depth))), 4 * sum(p.numel() for p in model.parameters())))
    assert sizes[1][0] - sizes[0][0] > 0.8 * (sizes[1][1] - sizes[0][1])
    assert peak(Run(tmp_path / "none")) is None


def step(number, *, faster, drop, kept=True, size=100, name="layers=1"):
    from vitrail.shrink.costs import Costs, Time

    times = tuple(Time(batch, 1 / one, 1 / one, 1 / one) for batch, one in zip((1, 16), faster, strict=True))
    worth = Worth((90 - drop) / 100, (0.8, 0.95))
    return Step(number, name, "", Costs(1, 1, size, None), times, faster, worth, drop, kept=kept)


def test_steps_are_written_and_read_again():
    one = step(1, faster=(2.0, 3.0), drop=0.1)
    assert read_step(json.loads(json.dumps(one.table()))) == one


def test_the_frontier_is_what_nothing_beats():
    steps = [step(1, faster=(2, 2), drop=0.5), step(2, faster=(3, 1.5), drop=0.2), step(3, faster=(2.5, 4), drop=2)]
    history = History(step(0, faster=(1, 1), drop=0, name="original"), steps)
    assert [one.number for one in history.frontier(1)] == [2, 0]
    assert [one.number for one in history.frontier(16)] == [3, 1, 2, 0]


def test_what_pays():
    before = step(1, faster=(2.0, 2.0), drop=0)
    assert pays(before, step(2, faster=(2.5, 2.0), drop=0))
    assert not pays(before, step(2, faster=(2.5, 1.5), drop=0))
    assert pays(before, step(2, faster=(2.0, 2.0), drop=0, size=50))
    assert not pays(before, step(2, faster=(1.0, 1.0), drop=0, size=50))
    assert pays(before, step(2, faster=(1.0, 1.0), drop=0, size=50), asked=True)
    assert not pays(before, step(2, faster=(2.0, 2.0), drop=0))


def test_goals_that_are_missed_are_told_by_how_much():
    goals = Goals(speedup=4, compression=8)
    first, now = step(0, faster=(1, 1), drop=0, size=800), step(1, faster=(5, 3.5), drop=0, size=90)
    assert goals.missed(first, now) == ["it is 3.50 times as fast, and 4 were wanted"]
    assert not goals.met(first, now)
    assert goals.met(first, now, ahead=(1.5, 1.0))
