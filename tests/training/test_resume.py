"""A run that is killed loses nothing: taken up again, it ends to the bit as if it had never been stopped."""

import json
import os
import resource
import shutil
import signal
import time

import pytest
import torch
from corpus import write_classes
from killing import children_left, environment, kill_at, kill_often, newest, run, same, start
from processes import vitrail

from vitrail.errors import InputError
from vitrail.runs import Run
from vitrail.training.checkpoint import Checkpoints, Lock, unpack


@pytest.fixture(scope="module")
def whole(once):
    """A run that nobody stopped."""
    return once("whole", lambda folder: run(folder / "run")) / "run"


def test_killed_at_any_moment(tmp_path, whole):
    out = tmp_path / "run"
    assert kill_often(out, 8, seed=0) >= 5
    assert "going on after step" in run(out, "--resume")
    same(out, whole)
    assert len(list((out / "checkpoints").iterdir())) <= 4  # two, and what says that they are complete


@pytest.mark.parametrize("what", ["fsync", "replace"])
def test_killed_at_each_file_that_is_written(tmp_path, whole, what):
    """The record of the data, the recipe, the log begun anew, a checkpoint, its mark: as each is synced or renamed."""
    out = tmp_path / "run"
    for number in (1, 2, 3, 4, 5, 2, 6, 3, 7):
        kill_at(out, what, number)
    assert "going on after step" in run(out, "--resume")
    same(out, whole)


def test_killed_with_two_processes(tmp_path):
    run(tmp_path / "whole", "--processes", "2")
    out = tmp_path / "run"
    assert kill_often(out, 2, 1, "--processes", "2") >= 1
    run(out, "--resume", "--processes", "2")
    same(out, tmp_path / "whole")


def begun(out, process):
    """Wait for its first checkpoint."""
    deadline = time.monotonic() + 120
    while newest(out) == 0 and time.monotonic() < deadline:
        assert process.poll() is None, process.said()
        time.sleep(0.01)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(tmp_path, whole, name):
    process = start(tmp_path / "run", "--set", "train.checkpoint=0")
    begun(tmp_path / "run", process)
    process.send_signal(getattr(signal, name))
    status, said = process.wait(60), process.said()
    assert status == 130, said
    assert "and saved; go on with:" in said
    assert "Traceback" not in said
    run(tmp_path / "run", "--resume")
    same(tmp_path / "run", whole)


def test_ctrl_c_stops_all_processes_and_nothing_is_lost(tmp_path):
    """To the launcher alone, as a terminal or a service would end it; the command it gives goes on with both."""
    process = start(tmp_path / "run", "--processes", "2", "--set", "train.checkpoint=0")
    begun(tmp_path / "run", process)
    process.send_signal(signal.SIGINT)
    status, said = process.wait(60), process.said()
    assert status == 130, said
    assert said.strip().endswith(f"vitrail train --resume --out {tmp_path / 'run'}")
    assert "Traceback" not in said
    assert children_left(tmp_path / "run") == []
    assert Run(tmp_path / "run").checkpoints.newest() is not None
    ran = vitrail("train", "--resume", "--out", tmp_path / "run")  # with two processes, as it was begun
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("going on after step") == 1


def test_a_run_does_not_go_on_with_other_pictures(tmp_path):
    write_classes(tmp_path / "all", {"ant": 10, "bee": 10})
    words = ["train", tmp_path / "all", "--out", tmp_path / "run", "--epochs", "1"]
    assert vitrail(*words).returncode == 0
    write_classes(tmp_path / "all", {"ant": 12}, seed=5)
    ran = vitrail(*words, "--resume")
    assert ran.returncode == 1
    assert "the data are not those that the run" in ran.stderr


def test_a_run_in_use_is_left_alone(tmp_path):
    process = start(tmp_path / "run", "--set", "train.checkpoint=0")
    begun(tmp_path / "run", process)
    second = start(tmp_path / "run", "--resume")
    status, said = second.wait(120), second.said()
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert status == 1
    assert f"is in use by another process (number {process.pid})" in said


def test_a_full_disk_gets_a_sentence_and_damages_nothing(tmp_path, whole):
    """No file may grow beyond some kilobytes: the first checkpoint that does not fit stops the run."""
    out = tmp_path / "run"
    process = start(out, "--set", "train.checkpoint=0")
    begun(out, process)
    while newest(out) < 20 and process.poll() is None:
        time.sleep(0.01)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    status, said = process.wait(60), process.said()
    assert status == 1, said
    assert "could not be written" in said
    assert "--resume" in said
    assert "Traceback" not in said
    assert Run(out).checkpoints.newest() is not None
    run(out, "--resume")
    same(out, whole)


def test_a_finished_run_is_measured_again_not_trained(tmp_path, whole):
    out = shutil.copytree(whole, tmp_path / "run")
    said = run(out, "--resume")
    assert "going on after step 276 of 276" in said
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "optim.lr=0.5"], "was begun with optim.lr=0.002, and is now asked for with 0.5"),
        (["--seed", "3"], "was begun with train.seed=0"),
        (["--set", "data.seed=5"], "was begun with data.seed=0"),
    ],
)
def test_a_run_goes_on_only_as_what_it_began_as(tmp_path, whole, words, says):
    process = start(shutil.copytree(whole, tmp_path / "run"), "--resume", *words)
    status, said = process.wait(60), process.said()
    assert status == 1
    assert says in said


def test_a_loss_that_is_not_finite_names_step_and_batch(tmp_path):
    process = start(tmp_path / "run", "--set", "optim.lr=1e18", "--set", "optim.muon=1e18", "--set", "optim.warmup=0.0")
    status, said = process.wait(60), process.said()
    assert status == 1
    assert "is nan at step" in said or "is inf at step" in said
    assert "(epoch 1, batch" in said
    assert "whose update was not made" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("left", [[], ["data.json"], ["data.json", ".recipe.json.17.part"], [".data.json.17.part"]])
def test_a_run_killed_before_it_began_begins_again(tmp_path, left):
    for name in left:
        (tmp_path / name).write_text("{")
    Run(tmp_path).check_free(resume=True)
    Run(tmp_path).check_free(resume=False)
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="is left alone"):
        Run(tmp_path).check_free(resume=True)


def test_what_the_first_process_refuses_the_others_do_not_repeat(tmp_path):
    run(tmp_path / "run", "--processes", "2", epochs=1)
    process = start(tmp_path / "run", "--processes", "2", "--resume", "--epochs", "1", "--set", "optim.lr=0.5")
    status, said = process.wait(120), process.said()
    assert status == 1
    assert said.count("was begun with optim.lr=0.002") == 1
    assert "Traceback" not in said


def test_the_newest_complete_checkpoint_is_taken(tmp_path):
    """Not one that is half written, nor one whose bytes changed; and the last two are kept."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.newest() is None
    for step in (3, 5, 8, 13):
        checkpoints.save(step, {"weights": torch.full((4,), float(step))})
    assert checkpoints.complete() == [8, 13]
    step, data, _ = checkpoints.newest()
    assert (step, unpack(data)["weights"].tolist()) == (13, [13.0] * 4)
    path = tmp_path / "checkpoints" / "00000013.pt"
    path.write_bytes(path.read_bytes()[:-5])
    assert checkpoints.newest()[0] == 8
    assert checkpoints.newest()[2] == [str(path)]
    (tmp_path / "checkpoints" / "00000021.pt").write_bytes(b"half")  # without a mark
    assert checkpoints.newest()[0] == 8
    assert checkpoints.newest()[2] == [str(path)]
    (tmp_path / "checkpoints" / "00000008.json").write_text('{"step": 8')
    with pytest.raises(InputError, match=r"no checkpoint is whole: .*00000013.pt and .*00000008.pt do not hold"):
        checkpoints.newest()


def stopped(out):
    """A run that was asked to stop after some steps."""
    process = start(out, "--set", "train.checkpoint=0")
    begun(out, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert process.said().strip().endswith(f"vitrail train --resume --out {out}")
    return out


def test_damaged_checkpoints_stop_a_run_that_goes_on(tmp_path, whole):
    out = stopped(tmp_path / "run")
    paths = sorted((out / "checkpoints").glob("*.pt"))
    assert len(paths) == 2
    paths[-1].write_bytes(b"x" + paths[-1].read_bytes()[1:])
    said = run(out, "--resume")
    assert f"warning: {paths[-1]} is damaged, and the checkpoint before it is taken" in said
    same(out, whole)
    for path in (out / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes()[:-1])
    metrics = (out / "metrics.jsonl").read_bytes()
    ran = vitrail("train", "--resume", "--out", out)
    assert ran.returncode == 1
    assert "no checkpoint is whole" in ran.stderr
    assert (out / "metrics.jsonl").read_bytes() == metrics
    for path in (out / "checkpoints").glob("*.pt"):
        path.unlink()
    ran = vitrail("train", "--resume", "--out", out)
    assert ran.returncode == 1
    assert "no checkpoint is whole" in ran.stderr
    shutil.rmtree(out / "checkpoints")
    ran = vitrail("train", "--resume", "--out", out)
    assert ran.returncode == 1
    assert "is finished, and has no checkpoint to go on from" in ran.stderr
    assert (out / "metrics.jsonl").read_bytes() == metrics


def test_a_run_goes_on_without_its_options_typed_again(tmp_path, whole):
    """Neither what it is, nor any of thirty options, nor its number of processes."""
    stopped(tmp_path / "run")
    ran = vitrail("train", "--resume", "--out", tmp_path / "run", env=environment())
    assert ran.returncode == 0, ran.stderr
    same(tmp_path / "run", whole)
    ran = vitrail("train", "--resume", "--out", tmp_path / "run", "--set", "optim.lr=0.5")
    assert "was begun with optim.lr=0.002, and is now asked for with 0.5" in ran.stderr
    ran = vitrail("train", "--resume", "--out", tmp_path / "nowhere")
    assert "holds no run to go on with" in ran.stderr


def test_a_checkpoint_runs_no_code(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'harm'}",)

    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"harm": Harm()})
    with pytest.raises(Exception, match=r"Unsupported|weights_only|Weights only"):
        unpack(checkpoints.newest()[1])
    assert not (tmp_path / "harm").exists()


def test_a_lock_ends_with_its_holder(tmp_path):
    lock = Lock(tmp_path)
    with pytest.raises(InputError, match=rf"in use by another process \(number {os.getpid()}\)"):
        Lock(tmp_path)
    lock.release()
    Lock(tmp_path).release()


def test_the_record_of_a_run_says_what_it_was(whole):
    about = json.loads((whole / "recipe.json").read_text())
    assert about["processes"] == 1
    assert about["versions"]["torch"].startswith("2.13.0")
    assert " train digits --out " in about["command"]
    assert about["recipe"]["augment"]["mixup"] == 0.5


def test_half_precision_goes_on_as_it_would_have(tmp_path):
    """The scale of the loss is a part of the state: it has grown or shrunk by then."""
    words = ("--set", "train.precision=fp16", "--set", "train.checkpoint=0")
    run(tmp_path / "whole", *words, epochs=3)
    process = start(tmp_path / "run", *words, epochs=3)
    begun(tmp_path / "run", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    state = unpack(Run(tmp_path / "run").checkpoints.newest()[1])
    assert state["scaler"]["scale"] > 0
    run(tmp_path / "run", "--resume", *words, epochs=3)
    same(tmp_path / "run", tmp_path / "whole")
