"""allreduce: what the members compute together, and how they begin and end together.

One pair of processes goes through all cases of the arithmetic (`python test_engine_allreduce.py` is one member of it):
starting TensorFlow twice takes longer than all of them. The other tests are whole runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from harness import SYNTHETIC, Launched, launched, make_job

from headway import workloads
from headway.agent.agent import free_ports
from headway.engines.assignment import Assignment
from headway.record.files import to_json, write_atomically
from headway.record.folder import RunFolder
from headway.spec.cluster import Task
from headway.spec.job import Job

pytestmark = pytest.mark.real
MEMBERS = ("chief/0", "worker/0")
BOTH = {"chief": 1, "worker": 1}
# Even, so that both tasks' batches of a step are together exactly a batch of twice the size of `single`.
DATA = {**SYNTHETIC, "size": 400}
SOFTMAX = {"model": {"name": "softmax", "init": "normal"}, "dataset": DATA}
CNN = {"model": {"name": "mnist_cnn", "dropout": 0.0}, "dataset": DATA}
NORMED = {"model": {"name": "mnist_cnn", "dropout": 0.0, "batch_norm": True}, "dataset": DATA}
EVERYTHING = {
    "name": "momentum",
    "learning_rate": 0.2,
    "weight_decay": 0.01,
    "clip": {"norm": 0.5},
    "schedule": {"kind": "cosine", "steps": 10, "warmup": 2},
}


class Case(NamedTuple):
    workload: dict[str, Any]
    calls: tuple[int, ...] = (1,) * 12
    """Steps in each call of the chief; beyond the end of the first epoch, which has 10."""
    worker_calls: tuple[int, ...] | None = None
    """Of the worker, where it asks for others."""
    strategy: Any = "allreduce"
    worker_batch: int | None = None
    equals_single: bool = True
    joined_batch: int = 40
    devices: int = 1
    """Of the chief; the worker has one more, for its batch to be split unevenly."""

    def job(self) -> Job:
        job = make_job(workload=self.workload, strategy=self.strategy, cluster=BOTH).model_dump(mode="json")
        job["cluster"]["worker"]["batch_size"] = self.worker_batch
        if self.devices > 1:
            job["cluster"]["chief"]["devices"], job["cluster"]["worker"]["devices"] = self.devices, self.devices + 1
        return Job.model_validate(job)


CASES = {
    # First: the first case's devices are those that the processes have to the end.
    "devices": Case({**CNN, "optimizer": EVERYTHING}, calls=(1,) * 4, devices=2),
    **{
        name: Case({**SOFTMAX, "optimizer": {"name": name, "learning_rate": 0.02}})
        for name in ("sgd", "momentum", "adagrad", "adam", "rmsprop")
    },
    "everything": Case({**CNN, "optimizer": EVERYTHING}, calls=(1,) * 4),
    "several": Case({**SOFTMAX, "steps_per_call": 4}, calls=(4, 4, 1, 3, 2), worker_calls=(4, 4, 1, 4, 2)),
    # 41 examples, all of them in every step: 21 of one task, 20 of the other.
    "remainder": Case(
        {**SOFTMAX, "dataset": {**DATA, "size": 41}, "batch_size": None, "global_batch_size": 41}, joined_batch=41
    ),
    "bfloat16": Case(SOFTMAX, strategy={"kind": "allreduce", "transfer": "bfloat16"}, equals_single=False),
    "unequal": Case(SOFTMAX, worker_batch=5, equals_single=False),
    "normed": Case(NORMED, calls=(1,), worker_batch=5, equals_single=False),
}


class Trained(NamedTuple):
    values: dict[str, Any]
    results: list[dict[str, Any]]
    devices: list[str] = []  # noqa: RUF012 - only of the case that asks for several


# --- a member's process ---------------------------------------------------------------------------------------
def assignment(folder: str | Path, task: str, cluster: dict[str, list[str]] | None = None) -> Assignment:
    name = Task.parse(task)
    config = {"cluster": cluster, "task": {"type": name.role, "index": name.index}}
    environment = {"HEADWAY_RUN": str(folder), "HEADWAY_TASK": task}
    return Assignment(environment | ({"TF_CONFIG": json.dumps(config)} if cluster else {}))


def member(
    task: str, cluster: dict[str, list[str]], folders: dict[str, str], cases: Mapping[str, Case] = CASES
) -> None:
    """Go through all cases; leave variables and results of each in its folder."""
    from tensorflow.python.eager import context

    from headway.engines.tensorflow.strategies.allreduce import AllReduce

    ring = None
    for name, folder in folders.items():
        case = cases[name]
        trainer = AllReduce(assignment(folder, task, cluster), ring)
        ring = trainer.ring
        started = trainer.start(0)
        assert (started.how, started.step, started.generation) == (None if task == "worker/0" else "fresh", 0, 1)
        calls = case.worker_calls if task == "worker/0" and case.worker_calls else case.calls
        if name == "devices":
            context.enable_run_metadata()
        results = [trainer.step(num_steps)._asdict() for num_steps in calls]
        trainer.leave("steps")
        if name == "devices":
            (Path(folder) / f"{Task.parse(task).slug}.devices").write_text(json.dumps(used_devices("Conv2D")))
        path = Path(folder) / Task.parse(task).slug
        values: dict[str, Any] = trainer.snapshot().values
        np.savez(path.with_suffix(".npz"), **values)
        write_atomically(path.with_suffix(".json"), json.dumps(results))  # last: who sees it finds all of it


def used_devices(kind: str) -> list[str]:
    """On which devices operations of this kind were, of all that ran since run metadata was asked for."""
    from tensorflow.python.eager import context

    graphs = context.export_run_metadata().partition_graphs
    context.disable_run_metadata()
    return sorted({node.device for graph in graphs for node in graph.node if kind in node.op})


if __name__ == "__main__":
    member(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
    os._exit(0)  # as a task ends: TensorFlow's server has no stop


# --- what the members computed ---------------------------------------------------------------------------------
def folder_of(root: Path, job: Job) -> RunFolder:
    folder = RunFolder.create(root, "case")
    folder.job_file.write_text(to_json({"format": 1, "resolved": job.model_dump(mode="json")}))
    return folder


class Members:
    """Both members' processes, which go through all cases while the test does something else: `script` calls `member`
    with them. Use as a context manager."""

    def __init__(self, root: Path, script: str, cases: Mapping[str, Case], limit: float = 100) -> None:
        self._root = root
        self._deadline = time.monotonic() + limit
        self._folders = {name: folder_of(root, case.job()).path for name, case in cases.items()}
        ports = free_ports(2, None, None)
        cluster = {Task.parse(name).role: [f"127.0.0.1:{port}"] for name, port in zip(MEMBERS, ports, strict=True)}
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "TF_CPP_MIN_LOG_LEVEL": "1"}
        folders = json.dumps({name: str(folder) for name, folder in self._folders.items()})
        self._processes = []
        for name in MEMBERS:
            with (root / f"{Task.parse(name).slug}.log").open("wb") as log:
                command = [sys.executable, script, name, json.dumps(cluster), folders]
                self._processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def __enter__(self) -> Members:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def trained(self, case: str) -> dict[str, Trained]:
        """What came out of a case, as soon as both have made it."""
        folder = self._folders[case]
        results = {name: folder / f"{Task.parse(name).slug}.json" for name in MEMBERS}
        while not all(path.exists() for path in results.values()):
            codes = [process.poll() for process in self._processes]
            if any(codes) or codes == [0, 0] or time.monotonic() > self._deadline:
                logs = "\n".join(path.read_text()[-3000:] for path in self._root.glob("*.log"))
                pytest.fail(f"no results of {case}; the members' exit codes are {codes}:\n{logs}")
            time.sleep(0.1)
        return {
            name: Trained(
                dict(np.load(path.with_suffix(".npz"))),
                json.loads(path.read_text()),
                json.loads(path.with_suffix(".devices").read_text()) if case == "devices" else [],
            )
            for name, path in results.items()
        }


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Trained]]:
    """Of each case, what each member ended with."""
    with Members(tmp_path_factory.mktemp("allreduce"), __file__, CASES) as members:
        return {case: members.trained(case) for case in CASES}


def initial_of(job: Job) -> dict[str, Any]:
    from headway.engines.tensorflow.initial import initial_values
    from headway.engines.tensorflow.problem import Problem

    return initial_values(Problem(job), job.seed, None)


def single_on_joined_batches(root: Path, case: Case, num_steps: int) -> Trained:
    from headway.engines.tensorflow.strategies.single import Single

    workload = {**case.workload, "batch_size": case.joined_batch, "global_batch_size": None, "steps_per_call": 1}
    trainer = Single(assignment(folder_of(root, make_job(workload=workload)).path, "chief/0"))
    trainer.start(0)
    results = [trainer.step(1)._asdict() for _ in range(num_steps)]
    return Trained(trainer.snapshot().values, results)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.equals_single])
def test_equals_single_on_the_joined_batches(name: str, trained: dict[str, dict[str, Trained]], tmp_path: Path) -> None:
    chief, worker = (trained[name][member] for member in MEMBERS)
    steps = int(chief.values["global_step"])
    single = single_on_joined_batches(tmp_path, CASES[name], steps)
    assert chief.values.keys() == single.values.keys()
    for variable, value in single.values.items():
        np.testing.assert_allclose(chief.values[variable], value, rtol=2e-4, atol=2e-6, err_msg=variable)
    for variable, value in initial_of(CASES[name].job()).items():
        assert np.abs(single.values[variable] - value).max() > 1e-3, f"{variable} has not learnt anything"
    if name != "several":
        sizes = [CASES[name].job().batch_size_of(Task.parse(member)) for member in MEMBERS]
        pairs = zip(chief.results, worker.results, strict=True)
        both = [np.average([one["loss"], other["loss"]], weights=sizes) for one, other in pairs]
        np.testing.assert_allclose(both, [result["loss"] for result in single.results], rtol=1e-4)
        for one, other in zip(chief.results, single.results, strict=True):
            assert one["penalty"] == (None if other["penalty"] is None else pytest.approx(other["penalty"], rel=1e-4))


@pytest.mark.parametrize("name", CASES)
def test_members_stay_equal_to_the_last_bit(name: str, trained: dict[str, dict[str, Trained]]) -> None:
    chief, worker = (trained[name][member] for member in MEMBERS)
    for variable, value in chief.values.items():
        np.testing.assert_array_equal(value, worker.values[variable], err_msg=variable)
    for field in ("step", "num_steps", "accepted"):
        assert [result[field] for result in chief.results] == [result[field] for result in worker.results]


def test_every_device_of_a_member_computes(trained: dict[str, dict[str, Trained]]) -> None:
    chief, worker = (trained["devices"][name].devices for name in MEMBERS)
    assert chief == [f"/job:chief/replica:0/task:0/device:CPU:{number}" for number in range(2)]
    assert worker == [f"/job:worker/replica:0/task:0/device:CPU:{number}" for number in range(3)]


def test_a_call_has_as_many_steps_as_all_members_ask_for(trained: dict[str, dict[str, Trained]]) -> None:
    results = trained["several"]["chief/0"].results
    assert [result["num_steps"] for result in results] == [4, 4, 1, 3, 2]
    assert [result["step"] for result in results] == [4, 8, 9, 12, 14]
    assert all(result["accepted"] == result["num_steps"] and result["staleness"] is None for result in results)
    assert all(0 < result["input_seconds"] < 1 for result in results)


def test_bfloat16_rounds_only_what_travels(trained: dict[str, dict[str, Trained]], tmp_path: Path) -> None:
    rounded = trained["bfloat16"]["chief/0"].values["softmax/weights"]
    exact = single_on_joined_batches(tmp_path, CASES["bfloat16"], 12).values["softmax/weights"]
    largest = np.abs(rounded - exact).max()
    assert 1e-6 < largest < 1e-2
    assert rounded.dtype == np.float32


def batches_of(case: Case) -> Iterator[list[tuple[Any, Any]]]:
    """The examples of each step, of one member after the other."""
    from headway.engines.tensorflow.input import index_batches

    job = case.job()
    source = workloads.dataset("synthetic").load(job.training.dataset, Path(), "train")
    assert isinstance(source, tuple)
    features, labels = source
    indices = [
        index_batches(len(features), job.batch_size_of(task), seed=job.seed, task_number=number, num_tasks=2)
        for number, task in enumerate(job.cluster.training_tasks())
    ]
    for chosen in zip(*(dataset.as_numpy_iterator() for dataset in indices), strict=True):
        yield [(features[each], labels[each]) for each in chosen]


def test_unequal_batches_count_by_their_examples(trained: dict[str, dict[str, Trained]]) -> None:
    """By hand: softmax regression with gradient descent on the joined batch of 20 + 5."""
    case = CASES["unequal"]
    job = case.job()
    values = initial_of(job)
    weights, bias = values["softmax/weights"].astype(np.float64), values["softmax/bias"].astype(np.float64)
    for batches, _ in zip(batches_of(case), case.calls, strict=False):
        assert [len(labels) for _, labels in batches] == [20, 5]
        x = np.concatenate([features for features, _ in batches]).reshape(25, -1).astype(np.float64)
        y = np.eye(4)[np.concatenate([labels for _, labels in batches])]
        likely = np.exp(x @ weights + bias)
        error = likely / likely.sum(axis=1, keepdims=True) - y
        weights, bias = weights - 0.1 * x.T @ error / 25, bias - 0.1 * error.mean(axis=0)
    got = trained["unequal"]["worker/0"].values
    np.testing.assert_allclose(got["softmax/weights"], weights, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got["softmax/bias"], bias, rtol=1e-4, atol=1e-5)


def test_batch_statistics_are_averaged_over_the_members(trained: dict[str, dict[str, Trained]]) -> None:
    """By hand: the first normalisation's moving averages after one step, of batches of 20 and 5."""
    case = CASES["normed"]
    job = case.job()
    values = initial_of(job)
    mean, variance = np.zeros(32), np.zeros(32)
    for features, _ in next(batches_of(case)):
        padded = np.pad(features[..., 0], ((0, 0), (2, 2), (2, 2)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), axis=(1, 2))
        before = np.einsum("nhwij,ijf->nhwf", windows, values["conv1/weights"][:, :, 0]) + values["conv1/bias"]
        share = len(features) / 25
        mean += share * before.mean(axis=(0, 1, 2))
        variance += share * before.reshape(-1, 32).var(axis=0, ddof=1)
    for member in MEMBERS:
        got = trained["normed"][member].values
        np.testing.assert_allclose(got["norm1/moving_mean"], 0.01 * mean, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(got["norm1/moving_variance"], 0.99 + 0.01 * variance, rtol=1e-5)


# --- whole runs -----------------------------------------------------------------------------------------------
def last_step(run: Launched, name: str, **where: Any) -> int:
    steps = run.events(name, "step", **where)
    return steps[-1]["step"] if steps else 0


def test_a_run_that_loses_a_member_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    job = make_job(
        strategy="allreduce",
        cluster=BOTH,
        workload={"steps_per_call": 5, "stop": {"steps": 1003}, "dataset": DATA},
        checkpoint={"steps": 100, "seconds": None, "keep": 100},
    )
    with launched(tmp_path, job, start=False) as run:
        run.start("chief/0")
        run.wait_for("the chief", lambda: run.events("chief/0", "ready"))
        run.start("worker/0")
        run.wait_for("a checkpoint", lambda: run.events("chief/0", "checkpoint"))
        run.processes[Task("worker", 0)].send_signal(signal.SIGSTOP)  # so that the end does not come before the kill
        run.kill("worker/0")
        # It notices at once if it waits for the worker's numbers. If it waits for the worker to fetch its own, nothing
        # tells it; then it waits until the launcher, which knows of the death, ends it.
        with suppress(AssertionError):
            run.wait_for("the chief to notice", lambda: run.events("chief/0", "disconnected"), seconds=5)
        time.sleep(0.5)
        at_death = last_step(run, "chief/0")
        saved = run.events("chief/0", "checkpoint")[-1]["step"]
        assert run.processes[Task("chief", 0)].poll() is None, "it waits to be ended"
        run.kill("chief/0")
        run.start(own_steps=at_death)
        run.finish()
        for name in MEMBERS:
            [joined] = run.events(name, "joined", attempt=1)
            assert (joined["step"], joined["generation"]) == (saved, 2)
            [done] = run.events(name, "done")
            assert (done["reason"], done["step"]) == ("steps", 1003)
            steps = run.events(name, "step", attempt=1)
            assert [event["step"] for event in steps] == [*range(saved + 5, 1001, 5), 1001, 1002, 1003]
        [restored] = run.events("chief/0", "initialized", attempt=1)
        assert (restored["how"], restored["checkpoint"]) == ("restored", f"step-{saved:08d}")
        [variables] = run.events("chief/0", "variables", attempt=1)
        assert {row["device"] for row in variables["placement"]} == {"chief/0"}
        assert {row["name"] for row in variables["placement"]} == {"global_step", "softmax/weights", "softmax/bias"}
        [finished] = run.events("chief/0", "finished")
        assert finished["step"] == 1003
        # The batches of a step are the same whoever computes it again: so is the loss.
        first = {event["step"]: event["loss"] for event in run.events("chief/0", "step", attempt=0)}
        again = {event["step"]: event["loss"] for event in run.events("chief/0", "step", attempt=1)}
        for number in first.keys() & again.keys():
            assert again[number] == pytest.approx(first[number], rel=1e-5)


def test_all_members_end_at_the_step_at_which_one_is_stopped(tmp_path: Path) -> None:
    job = make_job(strategy="allreduce", cluster=BOTH, workload={"stop": {"steps": 10**9}}, export=False)
    with launched(tmp_path, job) as run, launched(tmp_path, job, start=False) as lonely:
        lonely.start("chief/0")
        run.wait_for("steps", lambda: last_step(run, "worker/0") >= 20)
        run.tell("worker/0", do="stop", reason="a test")
        run.finish()
        [chief], [worker] = (run.events(name, "done") for name in MEMBERS)
        assert worker["reason"] == "stopped: a test"
        assert chief["reason"] == "stopped: the others have ended training"
        assert chief["step"] == worker["step"] == last_step(run, "chief/0") == last_step(run, "worker/0")
        [finished] = run.events("chief/0", "finished")
        assert finished["step"] == chief["step"]
        assert not run.events("chief/0", "disconnected")

        # Meanwhile another chief waits for a worker that never comes; it can be stopped too.
        lonely.wait_for("the lonely chief", lambda: lonely.events("chief/0", "ready"))
        assert not lonely.events("chief/0", "joined")
        lonely.tell("chief/0", do="stop", reason="nobody comes")
        lonely.tell("chief/0", do="finalize")
        assert lonely.wait_exit("chief/0", 20) == 0
        [done] = lonely.events("chief/0", "done")
        assert (done["reason"], done["step"]) == ("stopped: nobody comes", 0)
