"""The scripts of tests/scripts run without Headway: what Headway is to launch unchanged is right in itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import user_scripts
from parts import need
from user_scripts import Ended, Script, run_by_hand

# Making an environment, once, takes longer than any script.
pytestmark = [pytest.mark.system, pytest.mark.timeout(1200)]


def run(script: Script, folder: Path) -> dict[str, Ended]:
    """All that ought to end did so in order, and the servers served until then."""
    ended = run_by_hand(script, folder)
    for name, process in ended.items():
        expected = None if name.split("/")[0] in script.servers else 0
        assert process.code == expected, f"{name} ended with {process.code}:\n{process.output[-3000:]}"
    return ended


def assert_falls(losses: list[float], at_least: int) -> None:
    """From the first fifth to the last."""
    assert len(losses) >= at_least, losses
    part = max(1, len(losses) // 5)
    assert np.isfinite(losses).all()
    assert np.mean(losses[-part:]) < 0.7 * np.mean(losses[:part]), losses


@pytest.mark.parametrize("script", user_scripts.ALL, ids=lambda script: script.file)
def test_a_script_has_no_word_of_ours(script: Script) -> None:
    assert "headway" not in script.path.read_text(encoding="utf-8").lower()


def test_between_graph_replication_trains_in_both_workers_and_leaves_a_checkpoint(tmp_path: Path) -> None:
    ended = run(user_scripts.BETWEEN_GRAPH, tmp_path)
    told: list[tuple[float, float]] = []
    for name in ("worker/0", "worker/1"):
        steps, losses = ended[name].numbers(r"^step (\d+) loss"), ended[name].numbers(r"^step \d+ loss (\S+)$")
        assert len(steps) == 100
        assert steps == sorted(steps)
        told += zip(steps, losses, strict=True)
    assert max(told)[0] >= 198  # the step of both together, read while the other goes on
    assert_falls([loss for _, loss in sorted(told)], at_least=200)
    assert (tmp_path / "checkpoints" / "checkpoint").is_file()
    saved = {int(path.stem.split("-")[1]) for path in (tmp_path / "checkpoints").glob("model.ckpt-*.index")}
    assert 0 in saved
    assert max(saved) >= 100


def test_mirrored_workers_write_the_same_falling_loss_for_tensorboard(tmp_path: Path) -> None:
    run(user_scripts.MIRRORED, tmp_path)
    losses = [scalars(tmp_path / "logs" / f"worker-{index}", "loss") for index in (0, 1)]
    assert_falls(losses[0], at_least=80)
    assert losses[0] == pytest.approx(losses[1])  # it is summed over both


def test_a_coordinator_trains_on_workers_and_servers(tmp_path: Path) -> None:
    ended = run(user_scripts.PARAMETER_SERVER, tmp_path)
    assert_falls(ended["chief/0"].numbers(r"^step \d+ loss (\S+)$"), at_least=5)


def test_pytorchs_ddp_trains_alike_in_both_processes(tmp_path: Path) -> None:
    # Without GLOO_SOCKET_IFNAME: where the host's name has no address, gloo takes loopback by itself.
    ended = run(user_scripts.DDP, tmp_path)
    for name in ("worker/0", "worker/1"):
        assert_falls(ended[name].numbers(r"^epoch \d+ step \d+ loss (\S+)$"), at_least=20)
    assert (tmp_path / "model.pt").stat().st_size > 4 * (32 * 64 + 64 * 10)


def test_an_estimator_trains_and_evaluates_on_the_last_tensorflow_that_has_it(tmp_path: Path) -> None:
    need(None if sys.version_info < (3, 12) else "Python 3.11: TensorFlow 2.15 has no wheel for a newer one")
    ended = run(user_scripts.ESTIMATOR, tmp_path)
    assert_falls(ended["chief/0"].numbers(r"loss = (\S+), step = \d+"), at_least=5)
    assert ended["worker/0"].numbers(r"loss = (\S+), step = \d+")
    last = ended["evaluator/0"].numbers(r"Saving dict for global step 6\d\d: accuracy = ([\d.]+)")
    assert last, ended["evaluator/0"].output[-2000:]
    assert last[-1] > 0.8
    assert list((tmp_path / "model").glob("model.ckpt-6*.index"))
    assert list((tmp_path / "model" / "eval").glob("events.out.tfevents.*"))


def test_keras_fit_fails_in_keras_itself(tmp_path: Path) -> None:
    """The known limit that Headway's message names. When this fails, a newer Keras can do it: take the message away."""
    ended = run_by_hand(user_scripts.KERAS_FIT, tmp_path)
    for name, process in ended.items():
        assert process.code == 1, f"{name} ended with {process.code}:\n{process.output[-3000:]}"
        assert "ValueError: Attempt to convert a value (PerReplica:{" in process.output
        assert "with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>)" in process.output


def test_benchmark_lines_are_those_of_tf_cnn_benchmarks(tmp_path: Path) -> None:
    ended = run(user_scripts.BENCHMARK_LINES, tmp_path)
    rate = r"\d+\.\d \+/- \d+\.\d \(jitter = \d+\.\d\)"
    for name in ("worker/0", "worker/1"):
        assert ended[name].numbers(rf"^(\d+)\timages/sec: {rate}\t\d+\.\d{{3}}$") == [1, *range(10, 101, 10)]
        (total,) = ended[name].numbers(r"^total images/sec: (\d+\.\d\d)$")
        assert total > 0
    assert_falls(ended["worker/0"].numbers(rf"^\d+\timages/sec: {rate}\t(\S+)$"), at_least=11)


def scalars(folder: Path, tag: str) -> list[float]:
    """What TensorBoard reads, in a process of its own: its imports warn."""
    code = f"""
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray
read = EventAccumulator({str(folder)!r}, size_guidance={{"tensors": 0}}).Reload()
print(*(make_ndarray(event.tensor_proto).item() for event in read.Tensors({tag!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return [float(value) for value in done.stdout.split()]
