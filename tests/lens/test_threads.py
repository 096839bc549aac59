"""One model, looked at and changed by several threads at once: each has its own calls, and a copy has nothing of it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier

import torch
from drawing import numbers

import vitrail as vt

SHAPE = {"image": 12, "patch": 4, "width": 24, "depth": 3, "heads": 3, "hidden": 29, "classes": 7}


def vit():
    return vt.build("vit", **SHAPE).double().eval()


def images(seed):
    return numbers(2, 3, 12, 12, seed=seed)


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_hooks_with_kwargs) for m in model.modules())


def together(count, work):
    """work(number, wait) in so many threads, which wait for each other where they say so."""
    barrier = Barrier(count)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda number: work(number, lambda: barrier.wait(20)), range(count)))


@torch.no_grad()
def test_each_thread_records_its_own_calls():
    model = vit()

    def work(number, wait):
        with vt.record(model) as trace:
            wait()
            for _ in range(number + 1):
                model(images(number))
            wait()
        return trace

    for number, trace in enumerate(together(4, work)):
        assert trace.calls() == number + 1
        with vt.record(model) as alone:
            model(images(number))
        for call in range(number + 1):
            assert torch.equal(trace.q(1, call), alone.q(1))
        assert torch.equal(trace.residual(), alone.residual())
    assert hooks(model) == 0


@torch.no_grad()
def test_an_edit_changes_its_own_thread_alone():
    """Also for who takes the shortest way, which an edit closes, to the bit."""
    model = vit()
    plain, shortest = model(images(0)), model(images(0), shortest=True)

    def work(number, wait):
        if number % 2:
            wait()
            answers = model(images(0)), model(images(0), shortest=True)
            wait()
            return answers
        with vt.edit(model) as edits:
            edits.silence(None, heads=[0, 1, 2])
            wait()
            answers = model(images(0)), model(images(0), shortest=True)
            wait()
        return answers

    silent, bystander, also_silent, _ = together(4, work)
    assert torch.equal(bystander[0], plain)
    assert torch.equal(bystander[1], shortest)
    assert not torch.allclose(silent[0], plain)
    assert torch.equal(silent[0], also_silent[0])
    assert torch.equal(model(images(0)), plain)


@torch.no_grad()
def test_a_thread_that_is_given_the_context_is_seen():
    """As servers do who hand a call to a pool."""
    model = vit()
    with vt.record(model) as trace, ThreadPoolExecutor(1) as pool:
        pool.submit(model, images(0)).result()
        assert trace.names() == []
        pool.submit(copy_context().run, model, images(0)).result()
    assert trace.calls() == 1


@torch.no_grad()
def test_a_copy_has_nothing_of_an_edit():
    model = vit()
    plain = model(images(0))
    with vt.edit(model) as edits, vt.record(model) as trace:
        edits.silence(None, heads=[0, 1, 2])
        copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))  # noqa: S301
        for other in (copied, pickled):
            assert torch.equal(other(images(0)), plain)
            assert hooks(other) == 0
        assert trace.names() == []
    for other in (copied, pickled):
        assert torch.equal(other(images(0)), plain)


@torch.no_grad()
def test_lenses_that_are_closed_in_another_order():
    model = vit()
    plain = model(images(0))
    first, second = vt.edit(model), vt.record(model)
    edits, trace = first.__enter__(), second.__enter__()
    edits.pattern(0, torch.zeros_like)
    changed = model(images(0))
    first.__exit__(None, None, None)
    assert torch.equal(model(images(0)), plain)
    second.__exit__(None, None, None)
    model(images(0))
    assert not torch.equal(changed, plain)
    assert trace.calls() == 2
    assert hooks(model) == 0
