"""One model, looked at and changed by several threads at once: each has its own calls, and a copy has nothing of it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Barrier

import torch
from drawing import numbers

import vitrail as vt
from vitrail.lens import layer_sites, methods

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
    torch.testing.assert_close(silent[1], silent[0])
    assert torch.equal(silent[0], also_silent[0])
    assert torch.equal(model(images(0)), plain)


@torch.no_grad()
def test_an_edit_sees_every_query_also_on_the_shortest_way():
    model, seen = vit(), []
    with vt.edit(model) as edits:
        edits.pattern(-1, lambda a: (seen.append(a.shape[2]), a)[1])
        model(images(0), shortest=True)
    assert seen == [10]


@torch.no_grad()
def test_nothing_is_lost_while_others_come_and_go():
    """Recordings begin and end while others call the model, which must neither lose a site nor fail."""
    model = vit()
    plain = model(images(0))

    def work(number, wait):
        wait()
        for _ in range(60):
            if number % 2:
                assert torch.equal(model(images(0)), plain)
            else:
                with vt.record(model) as trace:
                    model(images(0))
                assert len(trace.names()) == 3
                assert len(trace.sublayers()) == 6
        return True

    assert all(together(4, work))
    assert hooks(model) == 0


@torch.no_grad()
def test_a_call_that_saw_the_hook_of_a_recording_before_takes_none_from_the_next():
    """The hook is taken off and put on again between a bystander's look at it and its call."""
    model = vit()
    kernel = model.encoder[0].attention.f.kernel
    with vt.record(model):
        (hook,) = kernel._forward_hooks.values()
    with vt.record(model) as trace:
        q = numbers(1, 3, 5, 8)
        ThreadPoolExecutor(1).submit(hook, kernel, (q, q, q), q).result()  # without keyword arguments, as may happen
        model(images(0))
    assert len(trace.names()) == 3


def test_gradients_are_taken_by_several_threads():
    model = vit()
    alone = methods["gradcam"](model, images(0), 1)

    def work(_, wait):
        wait()
        return [methods["gradcam"](model, images(0), 1) for _ in range(10)]

    for maps in together(3, work):
        for one in maps:
            assert torch.equal(one, alone)


@torch.no_grad()
def test_a_trace_that_is_closed_is_full():
    model = vit()
    with vt.record(model) as trace:
        model(images(0))
        inside = copy_context()
    with vt.record(model):
        inside.run(model, images(0))
    assert trace.calls() == 1


@torch.no_grad()
def test_layers_that_share_weights_are_recorded_one_by_one():
    model = vit()
    model.encoder[1] = model.encoder[2] = model.encoder[0]
    with vt.record(model) as trace:
        model(images(0))
        model(images(1))
    assert trace.names() == layer_sites(model) == [f"encoder.{number}.attention" for number in range(3)]
    assert [trace.calls(number) for number in range(3)] == [2, 2, 2]
    stream = trace.residual("encoder", call=0)
    assert len(stream) == 7
    torch.testing.assert_close(model.answer(stream[-1]), model(images(0)))
    torch.testing.assert_close(stream[2], model.encoder[0](stream[0]))
    torch.testing.assert_close(stream[4], model.encoder[0](stream[2]))


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
