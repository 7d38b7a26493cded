"""The strategies with servers are right: equal to one process on the joined batches, and to sums made by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from byhand import assert_close, assert_descended, assert_moved, examples, softmax_by_hand, statistics_by_hand
from inprocess import CNN, DATA, Cluster, cluster, job_of, single, workload

from headway.engines.tensorflow import checkpoint, placement
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.input import index_batches
from headway.spec.cluster import Task

v1 = tf.compat.v1
STEPS = 8


# --- equal to one process ---------------------------------------------------------------------------------------------
def case(tasks: int, servers: int, placement: str, name: str, **optimizer: Any) -> Any:
    """Readable in the list of tests, and short here."""
    settings = {"name": name, "learning_rate": 0.05, **optimizer}
    return pytest.param(tasks, servers, placement, settings, id=f"{name}-{tasks}-tasks-{servers}-{placement}")


CASES = [
    case(2, 1, "partitioned", "sgd"),
    case(3, 2, "partitioned", "sgd", schedule={"kind": "linear", "steps": 6, "warmup": 3}, weight_decay=0.1),
    case(2, 2, "partitioned", "momentum", schedule={"kind": "piecewise", "at": [3, 6]}, clip={"norm": 0.5}),
    case(3, 1, "greedy", "momentum", schedule={"warmup": 5}, clip={"value": 0.02}),
    case(2, 2, "greedy", "adagrad", schedule={"kind": "exponential", "steps": 4}, weight_decay=0.1),
    case(3, 3, "round_robin", "adagrad", clip={"value": 0.02}),
    case(2, 1, "round_robin", "adam", schedule={"kind": "cosine", "steps": 7, "warmup": 3}, clip={"norm": 0.5}),
    case(3, 2, "partitioned", "adam", weight_decay=0.1, clip={"norm": 0.5}),
    case(2, 2, "round_robin", "rmsprop", schedule={"kind": "linear", "steps": 20, "end": 0.1}, clip={"value": 0.02}),
    case(3, 3, "partitioned", "rmsprop", schedule={"kind": "piecewise", "at": [4], "warmup": 2}, weight_decay=0.1),
]


@pytest.mark.parametrize(("tasks", "servers", "how", "optimizer"), CASES)
def test_parameters_and_slots_equal_those_of_one_process_on_the_joined_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, servers: int, how: str, optimizer: dict[str, Any]
) -> None:
    monkeypatch.setattr(placement, "SMALLEST_PART", 64)  # so that these 36 rows are split
    alone, expected = single(tmp_path, STEPS, batch_size=20 * tasks, optimizer=optimizer)
    strategy = {"kind": "ps-sync", "placement": how}
    with cluster(tmp_path, job_of(servers, tasks, strategy=strategy, workload=workload(optimizer=optimizer))) as run:
        results, found = run.steps(STEPS), run.values()
        rows, updates = run.trainers[run.chief].placement(), run.updates()
    assert_close(found, expected)
    check_placement(rows, servers, how)
    for number, one in enumerate(alone):
        seen = [result[number] for result in results.values()]
        assert {result.step for result in seen} == {number + 1}
        assert [(result.accepted, result.num_steps, result.staleness) for result in seen] == [(1, 1, None)] * tasks
        assert np.mean([result.loss for result in seen]) == pytest.approx(one.loss, rel=1e-5)
        if optimizer.get("weight_decay"):
            assert one.penalty is not None
            assert [result.penalty for result in seen] == [pytest.approx(one.penalty, rel=1e-5)] * tasks
        else:
            assert {one.penalty, *(result.penalty for result in seen)} == {None}
    assert [(sorted(each["tasks"]), each["examples"]) for each in updates] == [(sorted(results), 20 * tasks)] * STEPS

    if tasks > 2:  # all optimizers have been here with two
        return
    strategy["kind"] = "ps-async"  # with one task it is the same
    job = job_of(servers, 1, strategy=strategy, workload=workload(20 * tasks, optimizer=optimizer))
    with cluster(tmp_path, job) as run:
        stepped, found = run.steps(STEPS)["chief/0"], run.values()
    assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert [result._replace(staleness=None, input_seconds=0, loss=0) for result in stepped] == [
        result._replace(staleness=None, input_seconds=0, loss=0) for result in alone
    ]
    assert [result.staleness for result in stepped] == [[0]] * STEPS
    np.testing.assert_allclose([result.loss for result in stepped], [result.loss for result in alone], rtol=1e-6)


def check_placement(rows: list[dict[str, Any]], servers: int, how: str) -> None:
    """Where the case says that variables are, they are."""
    weights = [(row["device"], row["shape"], row.get("part")) for row in rows if row["name"] == "softmax/weights"]
    if how == "partitioned" and servers > 1:
        assert sorted(device for device, _, _ in weights) == [f"ps/{number}" for number in range(servers)]
        assert [shape for _, shape, _ in weights] == [[36 // servers, 4]] * servers
        assert [part for _, _, part in weights] == [f"{number}/{servers}" for number in range(servers)]
    else:
        assert weights == [("ps/0", [36, 4], None)]
    used = {row["device"] for row in rows if row["name"].startswith("softmax")}
    assert len(used) == min(servers, 2 if how != "partitioned" else servers)


def test_a_network_in_parts_with_several_steps_in_one_call(tmp_path: Path) -> None:
    """The CNN is split as in real life; each call makes four steps, all inside the graph."""
    settings: dict[str, Any] = {"model": CNN, "optimizer": {"name": "momentum", "learning_rate": 0.01}}
    _, expected = single(tmp_path, STEPS, batch_size=40, **settings)
    job = job_of(2, 2, strategy="ps-sync", workload=workload(steps_per_call=4, **settings))
    with cluster(tmp_path, job) as run:
        results, found = run.steps(2, num_steps=4), run.values()
        parts = {row["name"]: row["part"] for row in run.trainers[run.chief].placement() if "part" in row}
    assert {"conv2/weights", "dense/weights", "dense/weights/Momentum"} <= parts.keys()
    for own in results.values():
        assert [(one.step, one.num_steps, one.accepted) for one in own] == [(4, 4, 4), (8, 4, 4)]
    assert_close(found, expected, atol=1e-5)


def test_a_schedule_counts_every_step_of_a_call(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "optimizer": {"name": "sgd", "learning_rate": 0.1, "schedule": {"kind": "linear", "steps": 8, "warmup": 4}}
    }
    _, expected = single(tmp_path, STEPS, **settings)
    for kind, servers in (("single", 0), ("ps-async", 2), ("ps-sync", 2)):
        job = job_of(servers, 1, strategy=kind, workload=workload(steps_per_call=4, **settings))
        with cluster(tmp_path, job) as run:
            run.steps(2, num_steps=4)
            assert_close(run.values(), expected)


def test_a_checkpoint_of_two_servers_restores_on_three_on_one_and_on_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "SMALLEST_PART", 64)
    settings = workload(40, optimizer={"name": "adam", "learning_rate": 0.05})
    with cluster(tmp_path, job_of(2, 1, strategy="ps-sync", workload=settings)) as run:
        run.steps(3)
        saved = run.trainers[run.chief].snapshot()
        run.steps(3)
        expected = run.values()
    for kind, servers in (("ps-sync", 3), ("ps-async", 1), ("single", 0)):
        with cluster(tmp_path, job_of(servers, 1, strategy=kind, workload=settings), start=False) as run:
            checkpoint.write(run.folder.checkpoints, saved, keep=1)
            if kind == "ps-sync":
                run.start_updater()
            [started] = run.start(own_steps=3).values()
            assert (started.how, started.step, started.generation) == ("restored", 3, 2)
            assert_close(run.values(), saved.values, rtol=0, atol=0)
            run.steps(3)
            assert_close(run.values(), expected, rtol=1e-6)


def test_batches_in_a_graph_begin_where_they_are_asked_to() -> None:
    expected = [batch.numpy() for batch in itertools.islice(index_batches(240, 70, seed=1), 11)]
    with tf.Graph().as_default(), v1.Session() as session:
        first = v1.placeholder(tf.int64, [])
        batches = v1.data.make_initializable_iterator(index_batches(240, 70, seed=1, first_batch=first))
        following = batches.get_next()
        for number in (0, 1, 3, 4, 9):  # 3 begins in the first epoch and ends in the second
            session.run(batches.initializer, {first: number})
            np.testing.assert_array_equal([session.run(following) for _ in range(2)], expected[number : number + 2])


# --- equal to sums made by hand ---------------------------------------------------------------------------------------
def test_unlike_batches_count_by_their_examples_and_clipping_and_decay_apply_once_to_their_mean(tmp_path: Path) -> None:
    optimizer = {"name": "sgd", "learning_rate": 0.1, "weight_decay": 0.2, "clip": {"norm": 1.5}}
    sizes = {"chief": 30, "worker": 10}
    with cluster(tmp_path, job_of(2, 3, sizes, strategy="ps-sync", workload=workload(optimizer=optimizer))) as run:
        values: Values = run.values()
        results = run.steps(4)
        for number in range(4):
            own = {name: examples(run.job, name, number) for name in run.names}
            for name, batch in own.items():
                assert results[name][number].loss == pytest.approx(softmax_by_hand(values, [batch])[0], rel=1e-5)
                penalty = 0.2 / 2 * np.sum(np.square(values["softmax/weights"]))
                assert results[name][number].penalty == pytest.approx(penalty, rel=1e-5)
            _, gradients = softmax_by_hand(values, list(own.values()))
            gradients["softmax/weights"] += 0.2 * values["softmax/weights"]
            norm = np.sqrt(sum(np.sum(np.square(gradient)) for gradient in gradients.values()))
            assert norm > 1.5, "there is something to clip"
            values = {name: values[name] - 0.1 * gradient * 1.5 / norm for name, gradient in gradients.items()}
        assert_descended(run.values(), values)
        assert [update["examples"] for update in run.updates()] == [50] * 4


@pytest.mark.parametrize("tasks", [2, 3])
def test_a_global_batch_with_a_remainder_equals_one_process_on_the_whole_of_it(tmp_path: Path, tasks: int) -> None:
    """All 41 examples are in every step: shared out over tasks, as the global batch is, or in one process."""
    optimizer = {"name": "momentum", "learning_rate": 0.05, "weight_decay": 0.1, "clip": {"norm": 0.5}}
    settings: dict[str, Any] = {"dataset": {**DATA, "size": 41}, "optimizer": optimizer}
    alone, expected = single(tmp_path, STEPS, batch_size=41, **settings)
    job = job_of(2, tasks, strategy="ps-sync", workload=workload(None, global_batch_size=41, **settings))
    sizes = [job.batch_size_of(task) for task in job.cluster.training_tasks()]
    assert sizes == {2: [21, 20], 3: [14, 14, 13]}[tasks]
    with cluster(tmp_path, job) as run:
        results, found, updates = run.steps(STEPS), run.values(), run.updates()
    assert_close(found, expected)
    for number, one in enumerate(alone):
        losses = [results[name][number].loss for name in run.names]
        assert np.average(losses, weights=sizes) == pytest.approx(one.loss, rel=1e-5)
    assert [update["examples"] for update in updates] == [41] * STEPS


@pytest.mark.parametrize("sizes", [{"chief": 8, "worker": 8}, {"chief": 12, "worker": 4}], ids=["like", "unlike"])
def test_moving_averages_of_ps_sync_take_the_mean_over_tasks_once_per_step(
    tmp_path: Path, sizes: dict[str, int]
) -> None:
    settings = workload(model={**CNN, "batch_norm": True})
    with cluster(tmp_path, job_of(2, 2, sizes, strategy="ps-sync", workload=settings)) as run:
        for number in range(2):
            before = run.values()
            run.steps(1)
            said = [statistics_by_hand(before, examples(run.job, name, number)[0]) for name in run.names]
            weights = [run.job.batch_size_of(Task.parse(name)) for name in run.names]
            mean = {name: np.average([each[name] for each in said], axis=0, weights=weights) for name in said[0]}
            assert_moved(before, run.values(), mean)


def test_moving_averages_of_ps_async_take_each_tasks_batch(tmp_path: Path) -> None:
    settings = workload(8, model={**CNN, "batch_norm": True})
    with cluster(tmp_path, job_of(2, 2, strategy="ps-async", workload=settings)) as run:
        for number, name in itertools.product(range(2), run.names):
            before = run.values()
            run.steps(1, name)
            assert_moved(before, run.values(), statistics_by_hand(before, examples(run.job, name, number)[0]))


def test_pulling_ahead_computes_with_variables_that_are_older_by_one_own_update(tmp_path: Path) -> None:
    """Each batch is the whole data, so what each step computed with follows from its staleness."""
    settings = workload(dataset={**DATA, "size": 20})
    with cluster(tmp_path, job_of(2, 1, strategy={"kind": "ps-async", "pull_ahead": 1}, workload=settings)) as run:
        steps: list[Values] = [run.values()]
        results = run.steps(12)[run.chief]
        for result in results:
            assert result.staleness in ([0], [1])
            used = steps[-1 - result.staleness[0]]
            loss, gradients = softmax_by_hand(used, [examples(run.job, run.chief, 0)])
            assert result.loss == pytest.approx(loss, rel=1e-3)
            steps.append({name: steps[-1][name] - 0.1 * gradient for name, gradient in gradients.items()})
        assert_descended(run.values(), steps[-1])
    assert [1] in [result.staleness for result in results]


@pytest.mark.parametrize("pull_ahead", [0, 1])
@pytest.mark.parametrize(("tasks", "servers", "how", "optimizer"), CASES[::3])
def test_going_in_turn_changes_nothing_for_a_task_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tasks: int,
    servers: int,
    how: str,
    optimizer: dict[str, Any],
    pull_ahead: int,
) -> None:
    monkeypatch.setattr(placement, "SMALLEST_PART", 64)
    del tasks
    _, expected = single(tmp_path, STEPS, optimizer=optimizer)
    strategy = {"kind": "ps-async", "placement": how, "exchange": "in_turn", "pull_ahead": pull_ahead}
    for per_call in (1, 4):
        settings = workload(optimizer=optimizer, steps_per_call=per_call)
        with cluster(tmp_path, job_of(servers, 1, strategy=strategy, workload=settings)) as run:
            results = run.steps(STEPS // per_call, num_steps=per_call)[run.chief]
            found = run.values()
        assert results[-1].step == STEPS
        if not pull_ahead:
            assert_close(found, expected, rtol=1e-6, atol=1e-7)
            assert [value for result in results for value in result.staleness or ()] == [0] * STEPS


@pytest.mark.parametrize("direction", ["pull", "push"])
def test_who_goes_in_turn_waits_while_another_has_it(tmp_path: Path, direction: str) -> None:
    """Somebody takes the turn at the second server, and gives it back; in between nobody's step ends. What was waited
    for does not make a gradient older: the variables are read when it is the task's turn."""
    strategy = {"kind": "ps-async", "exchange": "in_turn"}
    with cluster(tmp_path, job_of(2, 2, strategy=strategy, workload=workload())) as run:
        run.steps(2)
        with somebody_elses_turn(run, "/job:ps/task:0", direction):
            held = [run.go(run.steps, 1, name) for name in run.names]
            assert not wait(held, 1.0).done
        results = [run.result(future)[name][0] for future, name in zip(held, run.names, strict=True)]
        assert sorted(result.step for result in results) == [5, 6]
        if direction == "pull":  # one after the other, unless one was past its pull
            assert max(value for result in results for value in result.staleness or ()) <= 1
        both = run.steps(10)
        assert sorted(result.step for found in both.values() for result in found) == list(range(7, 27))


@contextmanager
def somebody_elses_turn(run: Cluster, server: str, direction: str) -> Iterator[None]:
    """In a session of its own, which ends when a queue on the same server gets something."""
    with tf.Graph().as_default():
        with tf.device(server):
            lock = tf.raw_ops.MutexLock(mutex=tf.raw_ops.MutexV2(shared_name=f"{direction}_in_turn"))
            signal = tf.queue.FIFOQueue(1, tf.bool, shared_name="somebody_has_it")
            end = tf.queue.FIFOQueue(1, tf.bool, shared_name="somebody_gives_it_back")
            with tf.control_dependencies([lock]):
                taken = signal.enqueue(True)
            with tf.control_dependencies([taken]):
                over = end.dequeue()
            with tf.control_dependencies([over]):
                given_back = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
            wait_for_it, give_back = signal.dequeue(), end.enqueue(True)
        with v1.Session(run.target()) as session:
            future = run.go(session.run, given_back)
            session.run(wait_for_it)
            yield
            session.run(give_back)
            future.result()


# --- what travels -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["ps-sync", "ps-async"])
def test_half_precision_on_the_wire_changes_little_and_servers_keep_all_digits(tmp_path: Path, kind: str) -> None:
    settings = workload(optimizer={"name": "momentum", "learning_rate": 0.05, "weight_decay": 0.01})
    tasks = 2 if kind == "ps-sync" else 1
    _, exact = single(tmp_path, STEPS, **{**settings, "batch_size": 20 * tasks})
    with cluster(tmp_path, job_of(2, tasks, strategy={"kind": kind, "transfer": "bfloat16"}, workload=settings)) as run:
        run.steps(STEPS)
        rounded = run.values()
    assert_close(rounded, exact, rtol=1e-2, atol=1e-2)
    weights = rounded["softmax/weights"]
    assert weights.dtype == np.float32
    assert not np.allclose(weights, exact["softmax/weights"], rtol=1e-6, atol=1e-7), "something was rounded"
    assert np.mean(weights == tf.cast(tf.cast(weights, tf.bfloat16), tf.float32)) < 0.1, "but not what is kept"


@pytest.mark.parametrize(
    ("kind", "servers", "transfer"),
    [("ps-sync", 2, "float32"), ("ps-sync", 3, "bfloat16"), ("ps-async", 2, "bfloat16"), ("ps-async", 3, "float32")],
)
def test_the_e1_cnns_traffic_is_balanced_and_has_the_type_asked_for(
    tmp_path: Path, kind: str, servers: int, transfer: str
) -> None:
    settings = workload(2, model=CNN, dataset={"name": "synthetic", "size": 16, "test_size": 8})
    strategy = {"kind": kind, "transfer": transfer}
    with cluster(tmp_path, job_of(servers, 1, strategy=strategy, workload=settings)) as run:
        edges = traffic(run)
    places = [f"/job:ps/replica:0/task:{number}/device:CPU:0" for number in range(servers)]
    size = {"float32": 4, "bfloat16": 2}[transfer]
    for direction in (0, 1):  # pulled, pushed
        of_server = [sum(size for edge, (_, size) in edges.items() if edge[direction] == place) for place in places]
        print(f"{kind} {transfer}: {('pulled', 'pushed')[direction]} {of_server} bytes")
        assert max(of_server) < 1.1 * min(of_server)
        assert sum(of_server) == pytest.approx(size * 3_274_634, rel=1e-3)
    types = Counter[str]()
    for dtype, num_bytes in edges.values():
        types[dtype] += num_bytes
    assert types[transfer] > 0.999 * types.total()


def traffic(run: Cluster) -> dict[tuple[str, str, str], tuple[str, int]]:
    """What one step of the chief sends between processes: (from, to, tensor) -> (type, bytes received).

    TensorFlow's trace of a step may miss a tensor, so steps are traced until each one has been seen."""
    trainer = run.trainers[run.chief]
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    types: dict[tuple[str, str, str], str] = {}
    found: dict[tuple[str, str, str], int] = {}
    for _ in range(30):
        trace = v1.RunMetadata()
        run.result(run.go(trainer._session.run, trainer._one_step, None, options, trace))
        for node in (node for graph in trace.partition_graphs for node in graph.node if node.op == "_Recv"):
            edge = tuple(node.attr[key].s.decode() for key in ("send_device", "recv_device", "tensor_name"))
            if edge[0] != edge[1]:
                types[edge] = tf.as_dtype(node.attr["tensor_type"].type).name
        for received in (node for device in trace.step_stats.dev_stats for node in device.node_stats):
            if received.node_name == "RecvTensor":
                _, _, name, _, sender, _, receiver = received.timeline_label.split()
                [output] = received.output
                found[sender, receiver, name] = output.tensor_description.allocation_description.requested_bytes
        if types.keys() <= found.keys():
            return {edge: (dtype, found[edge]) for edge, dtype in types.items()}
    raise AssertionError(f"never seen: {sorted(types.keys() - found.keys())}")
