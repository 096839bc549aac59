"""What a student is taught."""

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import vitrail as vt
from vitrail.data import Batch, Normalise
from vitrail.data.batches import UNASKED
from vitrail.errors import InputError
from vitrail.runs import Run
from vitrail.tasks.language.examples import continue_text, fill_text
from vitrail.tasks.pictures.model import as_given, taught_at
from vitrail.tasks.teaching import Lessons, _relation, answers_alike, hidden_alike, layers_of, watched

SHAPE = {"image": 8, "patch": 4, "channels": 1, "heads": 4, "classes": 5}


def net(**fields):
    return vt.build("vit", **{**SHAPE, "width": 16, "depth": 2, **fields})


def own(logits):
    return F.cross_entropy(logits, torch.tensor([0, 3]))


def test_answers_are_hintons_formula():
    s, t = torch.randn(4, 7), torch.randn(4, 7)
    p, q = (t / 3).softmax(1), (s / 3).softmax(1)
    torch.testing.assert_close(answers_alike(s, t, 3.0), 9 * (p * (p / q).log()).sum(1).mean())
    assert float(answers_alike(t, t)) == pytest.approx(0, abs=1e-6)


def test_hidden_states_that_a_map_can_tell_cost_nothing():
    s = torch.randn(8, 9, 6, dtype=torch.float64)
    t = s @ torch.randn(6, 11, dtype=torch.float64) + 3
    assert float(hidden_alike(s, t)) < 1e-3
    noise = torch.randn(8, 9, 11, dtype=torch.float64)
    assert float(hidden_alike(s, noise)) > 0.5


def test_hidden_states_are_compared_in_float32_in_a_training_in_bf16():
    """In streams of real ViTs some numbers are a thousand times as large as others: too far apart for bf16."""
    torch.manual_seed(0)
    s = torch.randn(64, 9, 24) * torch.logspace(-1, 2, 24) + 5
    t = s @ torch.randn(24, 24)
    exact = hidden_alike(s, t)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(hidden_alike(s, t), exact)
        inside = _relation(s, s, 4, None)
    assert torch.equal(inside, _relation(s, s, 4, None))


def test_a_weight_of_nothing_teaches_nothing():
    student, x = net(), torch.randn(2, 1, 8, 8)
    lessons = Lessons(net(width=24, depth=3), weight=0.0)
    assert torch.equal(lessons.loss(student, x, own, forward=student), own(student(x, shortest=True)))


def test_a_teacher_of_its_own_kind_has_nothing_more_to_teach():
    student, x = net(), torch.randn(16, 1, 8, 8)
    lessons = Lessons(student, weight=1.0, hidden=1.0, relations=1.0)
    loss = lessons.loss(student, x, lambda logits: logits.sum(), forward=student)
    assert loss.item() == pytest.approx(0, abs=2e-3)


@pytest.mark.parametrize("how", [{"weight": 1.0}, {"hidden": 1.0}, {"relations": 1.0}])
def test_what_is_taught_is_learned(how):
    """Each lesson alone brings a narrower, shallower student nearer to its teacher in what it is about."""
    teacher, student, x = net(width=24, depth=3), net(), torch.randn(16, 1, 8, 8)
    with torch.no_grad():
        for parameter in teacher.parameters():
            parameter.normal_(std=0.3)
    lessons = Lessons(teacher, **{"weight": 0.0, **how})
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)

    def loss():
        return lessons.loss(student, x, lambda logits: 0 * logits.sum(), forward=student)

    first = loss().item()
    for _ in range(60):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < 0.6 * first
    assert all(p.grad is None for p in teacher.parameters())


def test_the_distillation_token_learns_what_the_teacher_decides():
    teacher, student, x = net(), net(pool="distilled"), torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.normal_(std=0.3)
    lessons = Lessons(teacher, weight=0.25, hard=True)
    apart, decided = student(x, apart=True), teacher(x).argmax(-1)
    expected = 0.75 * own(apart[:, 0]) + 0.25 * F.cross_entropy(apart[:, 1], decided)
    torch.testing.assert_close(lessons.loss(student, x, own, forward=student), expected)


@pytest.mark.parametrize("fields", [{"layer_drop": 0.5}, {"merge": [0, 2]}])
def test_layers_that_are_dropped_and_tokens_that_are_merged(fields):
    """Layers that did not run are not compared; merged tokens are, one by one."""
    teacher, student, x = net(width=24, depth=3), net(**fields).train(), torch.randn(16, 1, 8, 8)
    lessons = Lessons(teacher, hidden=1.0, relations=1.0)
    for _ in range(8):
        loss = lessons.loss(student, x, lambda logits: logits.square().mean(), forward=student)
        assert torch.isfinite(loss)
        loss.backward()


def test_the_teacher_is_given_what_it_wants():
    student, x, seen = net(), torch.randn(2, 1, 8, 8), []
    teacher = net()
    teacher.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    Lessons(teacher, given=lambda images: 2 * images + 1).loss(student, x, own, forward=student)
    torch.testing.assert_close(seen[0], 2 * x + 1)


def test_a_teacher_looks_at_pictures_of_its_own_size():
    """A student of smaller pictures learns what its teacher says of them enlarged; token by token it cannot be so."""
    grown = F.interpolate(x := torch.rand(3, 1, 8, 8), (16, 16), mode="bicubic", antialias=True)
    plain = Normalise((0.0,), (1.0,))
    assert torch.equal(as_given(x, size=(16, 16), ours=plain, theirs=plain), grown)
    assert as_given(x, size=(8, 8), ours=plain, theirs=plain) is x
    assert taught_at((16, 16), (8, 8), inside=False) == (16, 16)
    assert taught_at((16, 16), (8, 8), inside=True) == (8, 8)
    assert taught_at((16, 16), (8, 4), inside=False) == (8, 4)


def test_layers_learn_from_layers_evenly():
    assert layers_of(2, 12) == [(0, 5), (1, 11)]
    assert layers_of(12, 12, 3) == [(3, 3), (7, 7), (11, 11)]


def test_tokens_that_are_not_the_same_are_said():
    student, x = net(), torch.randn(2, 1, 8, 8)
    for fields in ({"patch": 2}, {"registers": 1, "pool": "mean"}):
        with pytest.raises(InputError, match="tokens"):
            Lessons(net(**fields), hidden=1.0).loss(student, x, own, forward=student)
    with pytest.raises(InputError, match=r"train\.batch"):
        Lessons(net(), hidden=1.0).loss(student, x, own, forward=student)


def vitrail(*words):
    return subprocess.run(
        [sys.executable, "-m", "vitrail", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_a_run_teaches_a_smaller_one(tmp_path):
    small = ["--set", "model.width=16", "--set", "model.depth=1", "--set", "model.heads=2"]
    assert vitrail("train", "digits", "--out", tmp_path / "big", "--epochs", 2).returncode == 0
    ran = vitrail("train", "digits", "--out", tmp_path / "small", "--epochs", 2, *small, "--teacher", tmp_path / "big")
    assert ran.returncode == 0, ran.stderr
    assert Run(tmp_path / "small").recipe.teacher.path == str(tmp_path / "big")
    assert Run(tmp_path / "small").weights().normalise == Run(tmp_path / "big").weights().normalise
    hard = vitrail(
        "train", "digits", "--out", tmp_path / "x", "--teacher", tmp_path / "big", "--set", "teacher.hard=true"
    )
    assert "model.pool=distilled" in hard.stderr
    alone = vitrail("train", "digits", "--out", tmp_path / "x", "--set", "teacher.weight=0.3")
    assert "--teacher RUN" in alone.stderr
    other = vitrail("train", "digits", "--out", tmp_path / "y", "--teacher", tmp_path / "nothing")
    assert other.returncode == 1
    assert "nothing" in other.stderr


WORDS = {"tokens": 30, "length": 12, "heads": 4, "depth": 2, "width": 16}


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_texts_are_taught_as_pictures_are(name):
    """The own loss and the teacher's answers weighed; a teacher of the same kind has nothing to teach."""
    student, teacher = (vt.build(name, **{**WORDS, "width": width}).eval() for width in (16, 24))
    for parameter in [*student.parameters(), *teacher.parameters()]:
        parameter.data.normal_(std=0.3)
    tokens = torch.randint(1, 30, (6, 12))
    rows = torch.rand(6, 12) < 0.5
    targets = torch.where(rows, tokens, UNASKED) if name == "bert" else tokens
    lose, how = (fill_text, {"rows": rows}) if name == "bert" else (continue_text, {})
    batch = Batch(tokens, targets, 1)
    own, said, taught = lose(student, batch), student(tokens, **how), teacher(tokens, **how)
    expected = 0.3 * own + 0.7 * answers_alike(said, taught, 2.0)
    torch.testing.assert_close(Lessons(teacher, weight=0.7, temperature=2.0).beside(student, batch, lose), expected)
    assert torch.equal(Lessons(teacher, weight=0.0).beside(student, batch, lose), own)
    same = Lessons(student, weight=1.0, hidden=1.0, relations=1.0).beside(student, batch, lose)
    assert same.item() == pytest.approx(0, abs=2e-3)


@pytest.mark.parametrize("how", [{"hidden": 1.0}, {"relations": 1.0}])
def test_padding_and_what_comes_later_teach_nothing(how):
    """What is inside is compared of tokens that are there, as they see each other: of a batch that is longer, with
    padding, as much as of the tokens alone.
    """
    teacher, student = (vt.build("bert", **{**WORDS, "width": width, "pad": 0}).eval() for width in (24, 16))
    for parameter in [*student.parameters(), *teacher.parameters()]:
        parameter.data.normal_(std=0.3)
    tokens = torch.randint(1, 30, (8, 6))
    longer = F.pad(tokens, (0, 5))
    lessons = Lessons(teacher, **{"weight": 0.0, **how})
    both = [lessons.beside(student, Batch(x, x, 1), lambda call, b: call(b.inputs).sum() * 0) for x in (tokens, longer)]
    torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)
    assert both[0].item() > 1e-3


def test_relations_of_a_causal_model_are_to_what_it_may_see():
    model = vt.build("gpt", **WORDS).eval()
    with watched(model.blocks, [], relations=True) as seen, torch.no_grad():
        model(torch.randint(30, (2, 12)))
    relation = _relation(seen.q, seen.k, 4, seen.mask).exp()
    assert float(relation.triu(1).max()) == 0
    torch.testing.assert_close(relation.sum(-1), torch.ones(2, 4, 12))
