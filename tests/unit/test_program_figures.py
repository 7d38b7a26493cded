"""Figures of a user's own program, live and of its record: what is not known is not claimed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from supervising import World

from headway.launch.messages import TaskExited, TaskStarted
from headway.launch.nodes import Nodes
from headway.launch.prepare import create_run
from headway.launch.status import Status
from headway.record.files import EventWriter
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.spec import Task
from headway.spec.load import parse_job

WORKERS = [Task("worker", index) for index in range(4)]


# --- the record ------------------------------------------------------------------------------------------------------
def record(
    root: Path,
    speaking: int,
    examples: int | None = None,
    strategy: str | None = None,
    num_tasks: int = 4,
    ps: int = 0,
    source: str | None = "headway.log()",
    again: int = 0,
    **workload: Any,
) -> dict[str, Any]:
    """A run of four workers whose first ones tell of 100 steps, ten in a second, after one that begins. `again`: steps
    that they make twice, after a restart."""
    settings: dict[str, Any] = {"workload": {"command": "x", **workload}, "cluster": {"worker": num_tasks}}
    if ps:
        settings["cluster"]["ps"] = ps
    if strategy:
        settings["strategy"] = strategy
    folder = create_run(parse_job(settings), root)
    folder.write_facts({**folder.facts(), "state": "finished", "launches": [{"started": 1000.0, "ended": 1100.0}]})
    for task in WORKERS[:speaking]:
        writer = EventWriter(folder.events(task))
        for number, step in enumerate([*range(51), *range(51 - again, 101)]):
            row: dict[str, Any] = {
                "step": step,
                "own_step": number + 1,
                "num_steps": 1,
                "accepted": 1,
                "generation": 0,
                "attempt": int(number > 50 and again > 0),
            }
            timing: dict[str, Any] = {
                "t": 1010 + number / 10 + task.index / 1000,
                "seconds": 0.1 if number else 0.0,
                "warmup": number < 10,
            }
            told: dict[str, Any] = {"loss": 1 / (step + 1), "examples": examples, "source": source}
            writer.write("step", **row, **timing, **told)
        writer.close()
    return Run(folder).summary()


@pytest.mark.parametrize("speaking", [1, 2, 4])
@pytest.mark.parametrize("steps", ["global", "own"])
def test_silent_ranks_of_a_synchronous_program_use_examples_too(tmp_path: Path, speaking: int, steps: str) -> None:
    figures = record(tmp_path, speaking, examples=32, report={"steps": steps})
    assert figures["strategy"] == "allreduce"
    assert figures["steps_per_s"] == pytest.approx(10, rel=0.02)
    assert figures["examples_per_s"] == pytest.approx(4 * 32 * 10, rel=0.02)
    assert figures["train_loss"] == pytest.approx(1 / 101)  # the last one reported


@pytest.mark.parametrize("strategy", ["ps-sync", "allreduce"])
def test_a_batch_size_says_the_same_as_examples_do(tmp_path: Path, strategy: str) -> None:
    figures = record(tmp_path, 1, strategy=strategy, ps=int(strategy == "ps-sync"), batch_size=32)
    assert figures["examples_per_s"] == pytest.approx(4 * 32 * 10, rel=0.02)


def test_a_program_with_servers_claims_nothing_of_its_steps(tmp_path: Path) -> None:
    figures = record(tmp_path, 4, ps=1, batch_size=32)
    assert (figures["strategy"], figures["examples_per_s"]) == ("program", None)
    assert any("strategy=ps-async or strategy=ps-sync" in warning for warning in figures["warnings"])
    said = record(tmp_path, 4, ps=1, strategy="ps-async", batch_size=32)
    assert said["examples_per_s"] == pytest.approx(32 * 10, rel=0.02)
    told = record(tmp_path, 4, ps=1, examples=8)  # each of its own, since its last report
    assert told["examples_per_s"] == pytest.approx(4 * 8 * 10, rel=0.02)


@pytest.mark.parametrize(("strategy", "ps", "batch"), [("allreduce", 0, 128), ("ps-async", 1, 128)])
def test_steps_that_are_made_again_change_no_batch(tmp_path: Path, strategy: str, ps: int, batch: int) -> None:
    figures = record(tmp_path, 4, examples=32, strategy=strategy, ps=ps, again=30)
    assert figures["effective_batch"] == pytest.approx(batch)


def test_rows_from_before_sources_were_named_claim_no_batch_of_every_task(tmp_path: Path) -> None:
    """Each had a whole batch for every global step, also where a step took one task's alone."""
    figures = record(tmp_path, 4, examples=32, strategy="ps-async", ps=1, source=None, batch_size=32)
    assert figures["effective_batch"] == 32
    assert record(tmp_path, 4, examples=32, source=None, batch_size=32)["effective_batch"] == 128


def test_rates_of_some_tasks_alone_are_said_to_be_theirs(tmp_path: Path) -> None:
    figures = record(tmp_path, 2, ps=1, strategy="ps-async", report={"steps": "own"})
    assert figures["steps_per_s"] == pytest.approx(20, rel=0.02)
    assert any(
        "steps of worker/2, worker/3: rates are those of worker/0, worker/1" in one for one in figures["warnings"]
    )


def test_what_was_not_counted_is_said_where_nothing_else_was(tmp_path: Path) -> None:
    for speaking in (0, 1):
        settings = {"workload": {"command": "x"}, "cluster": {"worker": 1}}
        folder = create_run(parse_job(settings), tmp_path)
        folder.write_facts({**folder.facts(), "state": "finished", "launches": [{"started": 1.0, "ended": 9.0}]})
        writer = EventWriter(folder.events(WORKERS[0]))
        for why, is_partial in (("it counts epochs", False), ("a second bar", True)):
            event: dict[str, Any] = {
                "source": "its output",
                "seen": "Epoch 1",
                "why": why,
                "is_partial": is_partial,
                "attempt": 0,
            }
            writer.write("not_counted", t=2.0, **event)
        if speaking:
            row: dict[str, Any] = {
                "step": 1,
                "own_step": 1,
                "num_steps": 1,
                "seconds": 0.1,
                "attempt": 0,
                "warmup": False,
            }
            writer.write("step", t=3.0, **row, source="its output")
        writer.close()
        said = [text for text in Run(folder).summary()["warnings"] if "not counted" in text]
        assert len(said) == 2 - speaking
        assert "a second bar" in said[-1]


# --- live ------------------------------------------------------------------------------------------------------------
class Live:
    """A program on workers of which some speak, ten steps in a second, and the status of its run."""

    def __init__(self, num_tasks: int = 4, **changes: Any) -> None:
        workload = {"command": "x", **changes.pop("workload", {})}
        cluster = {"worker": num_tasks, **changes.pop("cluster", {})}
        settings = {"strategy": "allreduce", **changes}
        self.world = World(workload=workload, cluster=cluster, measure={"warmup": 0}, **settings)
        job = self.world.supervisor.job
        nodes = Nodes(job, RunFolder(Path("run")), lambda _: None, lambda _, __: None, lambda work: work.close())
        facts = {"state": "running", "launches": [{"started": 1000.0}]}
        self.status = Status("run", facts, self.world.supervisor, nodes)
        self.world.wait(0.5)
        for task in self.world.supervisor.tasks:
            self.world.tell(TaskStarted(task, 0, 1))
            self.world.say(task, "ready", pid=1)
            if task.role == "worker":
                self.world.say(task, "joined", step=0, generation=0)

    def goes_on(self, seconds: float, speaking: int = 1, examples: int | None = None) -> None:
        for _ in range(round(seconds * 2)):
            self.world.wait(0.5, alive=list(self.world.supervisor.tasks))
            for task in WORKERS[:speaking]:
                step = self.world.supervisor.tasks[task].own_steps + 5
                row: dict[str, Any] = {"step": step, "num_steps": 5, "seconds": 0.5, "loss": None, "examples": examples}
                self.world.say(task, "step", generation=0, source="headway.log()", **row)
            self.status.look(self.world.now)

    def rates(self) -> tuple[Any, Any]:
        value = self.status.value()
        return value["steps_per_s"], value["examples_per_s"]

    def of(self, task: str) -> Any:
        return next(each["steps_per_s"] for each in self.status.value()["tasks"] if each["task"] == task)


@pytest.mark.parametrize("speaking", [1, 3, 4])
def test_live_examples_of_silent_ranks_count(speaking: int) -> None:
    by_size, by_told = Live(workload={"batch_size": 32}), Live()
    by_size.goes_on(5, speaking)
    by_told.goes_on(5, speaking, examples=5 * 32)
    assert by_size.rates() == by_told.rates() == (pytest.approx(10), pytest.approx(4 * 32 * 10))


def test_live_own_steps_of_a_synchronous_program_are_one_and_the_same() -> None:
    live = Live(workload={"report": {"steps": "own"}})
    live.goes_on(5, speaking=4)
    assert live.rates()[0] == pytest.approx(10)
    alone = Live(workload={"report": {"steps": "own"}}, strategy="ps-async", cluster={"ps": 1})
    alone.goes_on(5, speaking=4)
    assert alone.rates()[0] == pytest.approx(40)


def test_live_a_program_with_servers_claims_no_examples() -> None:
    live = Live(workload={"batch_size": 32}, strategy="program", cluster={"ps": 1})
    live.goes_on(5)
    assert live.rates() == (pytest.approx(10), None)


def test_a_task_that_is_done_or_stands_still_has_no_old_rate() -> None:
    live = Live(num_tasks=2, strategy="ps-async", cluster={"ps": 1})
    live.goes_on(5, speaking=2)
    assert live.of("worker/0") == live.of("worker/1") == pytest.approx(10)
    live.goes_on(5, speaking=1)  # worker/1 makes no step any more
    assert live.of("worker/0") == pytest.approx(10)
    assert 0 < live.of("worker/1") < 3
    live.goes_on(30, speaking=1)
    assert live.of("worker/1") < 0.2
    live.world.say(WORKERS[0], "done", reason="the command ended", step=1, own_steps=1)
    assert live.of("worker/0") is None
    live.world.tell(TaskExited(WORKERS[0], 0, 0))
    assert live.of("worker/0") is None


def test_a_loss_of_another_source_is_shown_live() -> None:
    live = Live(num_tasks=1, strategy="single")
    live.goes_on(1)
    live.world.say(WORKERS[0], "told", source="its output", step=7, loss=0.5)
    live.goes_on(1)
    loss = live.status.value()["tasks"][0]["loss"]
    assert loss is not None
    assert math.isclose(loss, 0.5)
