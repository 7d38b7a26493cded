"""ps-sync in motion: backup tasks, tasks that die, leave and come back, and the end of training."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from byhand import Batch, assert_close, assert_descended, descend, examples
from inprocess import Cluster, cluster, job_of, single, workload

from headway.engines.tensorflow import updater
from headway.engines.tensorflow.barrier import Action, Barrier, Message
from headway.engines.tensorflow.initial import Values
from headway.engines.tensorflow.merge import Calls, Merge
from headway.engines.tensorflow.strategies import ps_sync
from headway.engines.tensorflow.strategies.ps_sync import PsSync
from headway.engines.tensorflow.trainer import Disconnected, StepResult, Stopped

v1 = tf.compat.v1


# --- backup tasks -----------------------------------------------------------------------------------------------------
def test_two_of_three_a_late_gradient_is_dropped_and_its_task_goes_on(tmp_path: Path) -> None:
    strategy = {"kind": "ps-sync", "aggregate": 2}
    with cluster(tmp_path, job_of(2, 3, {"chief": 30}, strategy=strategy, workload=workload(10))) as run:
        chief, fast, slow = run.names
        values: Values = run.values()

        def batches(**numbers: int) -> list[Batch]:
            return [examples(run.job, {"c": chief, "f": fast, "s": slow}[key], batch) for key, batch in numbers.items()]

        results = run.steps(2, chief, fast)
        assert [one.accepted for each in results.values() for one in each] == [1] * 4
        values = descend(descend(values, batches(c=0, f=0)), batches(c=1, f=1))
        assert_descended(run.values(), values)

        [late] = run.steps(1, slow)[slow]
        assert (late.step, late.num_steps, late.accepted) == (2, 1, 0)
        assert_descended(run.values(), values)

        results = run.steps(1, slow, fast)
        assert [(one.step, one.accepted) for each in results.values() for one in each] == [(3, 1)] * 2
        values = descend(values, batches(s=1, f=2))  # ten examples each: fewer than the usual update has
        [late] = run.steps(1, chief)[chief]
        assert (late.step, late.accepted) == (3, 0)
        assert_descended(run.values(), values)
        updates = run.updates()
    assert [sorted(update["tasks"]) for update in updates] == [[chief, fast], [chief, fast], [fast, slow]]
    assert [update["examples"] for update in updates] == [40, 40, 20]
    assert [update["dropped"] for update in updates] == [[], [], [slow]]


def test_two_of_three_at_their_own_pace_and_every_gradient_is_counted_once(tmp_path: Path) -> None:
    strategy = {"kind": "ps-sync", "aggregate": 2}
    with cluster(tmp_path, job_of(1, 3, strategy=strategy, workload=workload())) as run:

        def train(name: str) -> list[StepResult]:
            results: list[StepResult] = []
            while not results or results[-1].step < 60:
                try:
                    results.append(run.trainers[name].step(1))
                except Stopped:
                    return results
            run.trainers[name].leave("steps")  # an end for all of them
            return results

        begun = {name: run.go(train, name) for name in run.names}
        results = {name: run.result(future) for name, future in begun.items()}
        updates = run.updates()
    assert [update["step"] for update in updates] == list(range(1, len(updates) + 1))
    assert {(len(update["tasks"]), len(set(update["tasks"])), update["examples"]) for update in updates} == {(2, 2, 40)}
    contributed = Counter(name for update in updates for name in update["tasks"])
    dropped = Counter(name for update in updates for name in update["dropped"])
    for name, own in results.items():
        assert sum(one.accepted for one in own) == contributed[name]
        assert sum(not one.accepted and one.step < len(updates) for one in own) == dropped[name]
        assert all(one.step < later.step for one, later in itertools.pairwise(own))
    assert dropped.total() > 5


def test_a_snapshot_is_of_one_step_while_others_go_on(tmp_path: Path) -> None:
    """Adam counts its updates on the last server, the global step is on the first."""
    strategy = {"kind": "ps-sync", "aggregate": 2}
    settings = workload(optimizer={"name": "adam", "learning_rate": 0.01})
    with cluster(tmp_path, job_of(2, 3, strategy=strategy, workload=settings)) as run:

        def train(name: str) -> None:
            with pytest.raises(Stopped):
                while True:
                    run.trainers[name].step(1)

        begun = [run.go(train, name) for name in run.workers]
        found = [run.trainers[run.chief].snapshot() for _ in range(15)]
        run.tell(do="close", reason="enough seen")
        for future in begun:
            run.result(future)
    for snapshot in found:
        assert snapshot.values["beta2_power"] == pytest.approx(0.999 ** (snapshot.step + 1), rel=1e-5)
    assert len({snapshot.step for snapshot in found}) > 5, "others went on in between"


def test_a_slow_answer_to_a_pause_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the snapshot would not be of one step, and the late answer would be taken for that to the next gradient."""

    class Slow(Barrier):
        def hear(self, message: Message, task: int, number: int = 0) -> list[Action]:
            if message == Message.PAUSED and not self.is_paused:
                time.sleep(0.6)
            return super().hear(message, task, number)

    with cluster(tmp_path, job_of(1, 2, strategy="ps-sync", workload=workload())) as run:
        monkeypatch.setattr(ps_sync, "WELCOME_SECONDS", 0.2)
        monkeypatch.setattr(run.barrier, "__class__", Slow)
        run.values()
        results = run.steps(3)
        assert {(one.step, one.accepted) for own in results.values() for one in own} == {(1, 1), (2, 1), (3, 1)}


# --- tasks come and go ------------------------------------------------------------------------------------------------
def test_a_task_that_dies_after_arriving_and_joins_again_counts_once(tmp_path: Path) -> None:
    _, expected = single(tmp_path, 4, batch_size=40)
    with cluster(tmp_path, job_of(2, 2, strategy="ps-sync", workload=workload())) as run:
        chief, worker = run.names
        run.steps(2)
        waiting = run.step(worker)
        run.wait_until_arrived(worker)
        run.trainers[worker].close()
        with pytest.raises(Disconnected):
            run.result(waiting)
        send_rubbish(run)
        assert run.start(worker, own_steps=2)[worker].step == 2
        again = run.step(worker)
        barrier = run.barrier
        run.wait_for("the second gradient", lambda: barrier._dropped == [1])
        run.wait_until_arrived(worker)
        [result] = run.steps(1, chief)[chief]
        assert (result.step, result.accepted) == (3, 1)
        second = run.result(again)
        assert (second.step, second.num_steps, second.accepted) == (3, 1, 0)
        run.steps(1)
        assert_close(run.values(), expected)
        assert [update["dropped"] for update in run.updates()] == [[], [], [worker], []]


def send_rubbish(run: Cluster) -> None:
    """What a worker leaves on a server when it is killed while it sends."""
    exchange = run.trainers["worker/0"]._exchange  # type: ignore[attr-defined]
    queue = exchange.gradients[1][0]
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        same = tf.queue.FIFOQueue(-1, queue.dtypes, queue.shapes, shared_name="gradients_1_on_0")
        sent = same.enqueue([tf.fill(shape, 1e6) for shape in queue.shapes])
        session = v1.Session(run.trainers["chief/0"]._server.target)  # type: ignore[attr-defined]
        before = session.run(same.size())  # a gradient that was announced stays where it is
        session.run(sent)
        assert session.run(same.size()) == before + 1
        session.close()


def test_a_task_that_leaves_is_not_waited_for_and_may_come_back(tmp_path: Path) -> None:
    with cluster(tmp_path, job_of(2, 3, strategy="ps-sync", workload=workload())) as run:
        chief, stays, leaves = run.names
        values: Values = run.values()
        waiting = [run.step(chief), run.step(stays)]
        run.wait_until_arrived(chief, stays)
        run.tell(do="leave", task=leaves)  # as the launcher does when it gives a task up
        assert [run.result(future).step for future in waiting] == [1, 1]
        values = descend(values, [examples(run.job, name, 0) for name in (chief, stays)])
        assert_descended(run.values(), values)

        assert run.start(leaves)[leaves].step == 1
        waiting = [run.step(chief), run.step(stays)]
        run.wait_until_arrived(chief, stays)
        assert [one.step for one in run.steps(1, leaves)[leaves]] == [2]
        values = descend(values, [examples(run.job, name, 1) for name in run.names])
        assert_descended(run.values(), values)

        run.trainers[leaves].leave("steps_per_task")
        run.steps(1, chief, stays)
        values = descend(values, [examples(run.job, name, 2) for name in (chief, stays)])
        assert_descended(run.values(), values)
        assert [update["examples"] for update in run.updates()] == [40, 60, 40]


def test_closed_everybody_is_told_and_only_the_chief_opens_it_again(tmp_path: Path) -> None:
    with cluster(tmp_path, job_of(1, 2, strategy="ps-sync", workload=workload())) as run:
        chief, worker = run.names
        run.steps(1)
        before = run.values()
        by_the_launcher = partial(run.tell, do="close", reason="asked to")
        by_a_task = partial(run.trainers[worker].leave, "steps")
        for close in (by_the_launcher, by_a_task):
            waiting = run.step(chief)
            run.wait_until_arrived(chief)
            close()
            with pytest.raises(Stopped, match="at step 1"):
                run.result(waiting)
            with pytest.raises(Stopped, match="at step 1"):
                run.steps(1, worker)
            with pytest.raises(Stopped, match="at step 1"):
                run.start(worker)
            assert_close(run.values(), before, rtol=0, atol=0)
            assert run.start(chief)[chief].step == 1
            assert run.start(worker)[worker].step == 1
        run.steps(1)
        assert [update["step"] for update in run.updates()] == [1, 2]


def test_tasks_that_are_there_before_the_updater_say_again_that_they_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ps_sync, "WELCOME_SECONDS", 0.1)
    heard: list[list[int] | None] = []

    def reply(trainer: PsSync, task: int, echo: int) -> list[int] | None:
        heard.append(listen(trainer, task, echo))
        return heard[-1]

    listen = PsSync._reply
    monkeypatch.setattr(PsSync, "_reply", reply)
    _, expected = single(tmp_path, 2, batch_size=40)
    with cluster(tmp_path, job_of(1, 2, strategy="ps-sync", workload=workload()), start=False) as run:
        starting = [run.go(run.trainers[name].start, 0) for name in run.names]
        run.wait_for("two who got no answer, twice", lambda: len(heard) >= 4)
        assert not any(heard)
        run.start_updater()
        assert [run.result(future).step for future in starting] == [0, 0]
        run.steps(2)
        assert_close(run.values(), expected)


def test_who_keeps_the_others_waiting_is_said_until_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater, "BLOCKED_SECONDS", 0.3)
    with cluster(tmp_path, job_of(1, 3, strategy="ps-sync", workload=workload())) as run:
        chief, first, second = run.names

        def blocked(step: int, *missing: str, times: int = 1) -> list[dict[str, Any]]:
            def found() -> list[dict[str, Any]]:
                return [each for each in run.events("blocked") if (each["step"], each["missing"]) == (step, [*missing])]

            run.wait_for("the word", lambda: len(found()) >= times)
            return found()

        waiting = run.step(chief)
        said = blocked(0, first, second, times=2)  # again: the launcher may not have known whom to blame
        assert said[1]["seconds"] > said[0]["seconds"] + 0.2
        also = run.step(first)
        blocked(0, second)
        run.steps(1, second)
        run.result(waiting), run.result(also)
        run.wait_for("its end", lambda: bool(run.events("unblocked")))
        [unblocked] = run.events("unblocked")
        assert unblocked["step"] == 1
        assert unblocked["seconds"] > said[1]["seconds"]

        waiting = run.step(chief)
        blocked(1, first, second)
        run.tell(do="close", reason="asked to")
        with pytest.raises(Stopped):
            run.result(waiting)
        count = len(run.events("blocked"))
        time.sleep(0.7)
        assert len(run.events("blocked")) == count, "nobody waits for an update any more"


# --- a request that a server refuses for nothing (graph.was_refused) --------------------------------------------------
def refusing(
    call: Callable[..., Any], refusals: list[int], before: Callable[[], Any] = lambda: None
) -> Callable[..., Any]:
    """`call`, which a server refuses every third time, as TensorFlow says it. `before`: what is done all the same."""

    def maybe(*arguments: Any, **named: Any) -> Any:
        refusals.append(len(refusals))
        if len(refusals) % 3 == 0:
            before()
            raise tf.errors.AbortedError(
                None, None, "The same RunGraph (Worker) request was received twice. step_id: 1"
            )
        return call(*arguments, **named)

    return maybe


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("clip", [None, {"norm": 0.05}])
def test_refused_requests_are_made_again_and_every_step_is_there_once(
    tmp_path: Path, servers: int, clip: dict[str, float] | None
) -> None:
    """On three servers the others have made their part of the update when one refuses. Adam's state shows every part
    that was made twice or left out."""
    optimizer = {"name": "adam", "learning_rate": 0.01, "clip": clip}
    job = job_of(servers, 2, strategy="ps-sync", workload=workload(optimizer=optimizer))
    with cluster(tmp_path / "undisturbed", job) as run:
        run.steps(8)
        undisturbed = run.values()
    counts: list[list[int]] = [[], [], [], []]
    with cluster(tmp_path / "refused", job) as run:
        for trainer, count in zip(run.trainers.values(), counts, strict=False):
            # The task's own part of a refused step has begun: its batch is gone.
            [reads] = [each for each in trainer._graph.get_operations() if each.type == "IteratorGetNext"]
            trainer._calls[1] = refusing(trainer._calls[1], count, partial(trainer._session.run, list(reads.outputs)))
        assert run.updater is not None
        for session in run.updater._sessions:
            session.run = refusing(session.run, counts[2])
        run.steps(1)  # makes the update's calls
        merge = run.updater._merge
        for kind, calls in merge._calls.items():
            add_up, apply = ([refusing(call, counts[3]) for call in each] for each in (calls.add_up, calls.apply))
            merge._calls[kind] = Calls(add_up, apply, calls.finish and refusing(calls.finish, counts[3]))
        results = run.steps(7)
        updates, values = run.updates(), run.values()
    assert [[one.step for one in each] for each in results.values()] == [list(range(2, 9))] * 2
    assert all(one.accepted == 1 for each in results.values() for one in each)
    assert [update["step"] for update in updates] == list(range(1, 9))
    assert all(len(set(update["tasks"])) == 2 for update in updates)
    assert all(len(count) > 7 for count in counts)
    assert_close(values, undisturbed)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("aggregate", [1, 2])
def test_every_call_of_the_updater_is_of_one_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, aggregate: int
) -> None:
    """Else a part of what a server refuses might have been done by another one."""
    called: list[tuple[int, list[Any]]] = []
    original = Merge._call

    def call(merge: Merge, server: int, answer: list[Any], done: list[Any], needed: dict[str, Any]) -> Any:
        called.append((server, [*answer, *done, *needed.values()]))
        return original(merge, server, answer, done, needed)

    monkeypatch.setattr(Merge, "_call", call)
    settings = {
        "name": optimizer,
        "clip": {"norm": 0.05},
        "schedule": {"kind": "linear", "steps": 10},
    }
    strategy = {"kind": "ps-sync", "aggregate": aggregate}
    with cluster(
        tmp_path, job_of(3, 2, {"chief": 30}, strategy=strategy, workload=workload(optimizer=settings))
    ) as run:
        run.steps(2)
        assert run.updater is not None
        exchange = run.updater._exchange
        for moves in run.updater._moves:
            for operations in moves:
                called += [(server, [each]) for server, each in zip(exchange.used, operations, strict=True)]
        called += [(server, [each]) for server, each in zip(exchange.used, run.updater._forget, strict=True)]
        addresses = [session.sess_str.decode() for session in run.updater._sessions]
    assert len(set(addresses)) == 3
    assert {server for server, _ in called} == {0, 1, 2}
    for server, fetches in called:
        elsewhere = [each.name for each in closure(fetches) if each.device != exchange.devices[server]]
        assert not elsewhere, server


def closure(fetches: list[Any]) -> set[Any]:
    """Every operation that runs when these are fetched."""
    found: set[Any] = set()
    waiting = [getattr(each, "op", each) for each in fetches]
    while waiting:
        operation = waiting.pop()
        if operation not in found:
            found.add(operation)
            waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
    return found


def test_another_error_is_not_taken_for_a_refusal(tmp_path: Path) -> None:
    with cluster(tmp_path, job_of(1, 1, strategy="ps-async", workload=workload())) as run:
        trainer = run.trainers[run.chief]

        def aborted() -> Any:
            raise tf.errors.AbortedError(None, None, "Graph handle is not found")

        trainer._calls[1] = aborted
        with pytest.raises(Disconnected, match="not found"):
            trainer.step(1)
