"""The record: readable after a crash at any point, the same sealed or not, and never more trusting than it must be."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headway
from headway.errors import Busy, FormatError, HeadwayError, NotFound
from headway.launch.prepare import create_run, history, read_job
from headway.record.files import EventWriter, to_json, write_atomically
from headway.record.folder import FORMAT, RunFolder
from headway.record.query import query
from headway.record.reader import read_events, read_json
from headway.record.run import Run
from headway.record.seal import result, seal
from headway.record.tables import TABLES, is_sealed
from headway.spec import Task
from headway.spec.load import parse_job

CHIEF, WORKER = Task("chief", 0), Task("worker", 0)


def new_run(root: Path, name: str = "a-run", **settings: Any) -> RunFolder:
    job = {
        "name": name,
        "workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 8}},
        "strategy": "ps-async",
        "cluster": {"chief": 1, "worker": 1, "ps": 1},
        "expose": "cluster",
    }
    return create_run(parse_job({**job, **settings}), root)


def row(t: float, step: int, **fields: Any) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "step",
        "attempt": 0,
        "generation": 1,
        "step": step,
        "own_step": step,
        "num_steps": 1,
        "seconds": 0.5,
        "input_seconds": 0.1,
        "loss": 1.0,
        "staleness": [0],
        "examples": 100,
        "warmup": False,
        "accepted": 1,
        "penalty": None,
        **fields,
    }


def write_rows(folder: RunFolder, task: Task, rows: list[dict[str, Any]]) -> None:
    with folder.events(task).open("a", encoding="utf-8") as file:
        file.writelines(to_json(one) + "\n" for one in rows)


@pytest.fixture
def trained(tmp_path: Path) -> RunFolder:
    """Chief: a warm-up step, then one step every 0.5 s from t=100; the worker the same from t=101."""
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100, 1, warmup=True), *(row(100.5 + 0.5 * k, 2 + 2 * k) for k in range(4))])
    write_rows(folder, WORKER, [row(101, 3, warmup=True), *(row(101.5 + 0.5 * k, 5 + 2 * k) for k in range(2))])
    write_rows(folder, WORKER, [row(102.5, 9, staleness=[2], loss=math.nan)])
    with folder.events(CHIEF).open("a") as file:
        file.write(to_json({"t": 103, "kind": "evaluation", "step": 9, "accuracy": 0.75, "loss": 0.5}) + "\n")
        file.write(to_json({"t": 103.5, "kind": "finished", "step": 9, "accuracy": 0.75, "loss": 0.5}) + "\n")
    facts = folder.facts()
    folder.write_facts({**facts, "state": "finished", "launches": [{"started": 98.0, "ended": 104.0}]})
    return folder


# --- files ---------------------------------------------------------------------------------------------------
def test_a_file_cut_at_any_byte_gives_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(path)
    events = [
        writer.write("step", loss=0.25 * k, note="größer", flag=False, nested={"a": [1, {"b": k}]}) for k in range(3)
    ]
    writer.close()
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert list(read_events(path)) == events[: sum(end <= cut for end in ends)], cut


def test_a_successor_writes_on_after_a_torn_line_at_any_byte(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    first = EventWriter(path)
    event = first.write("step", loss=0.5, nested={"a": {"b": 1}}, flag=True)
    first.close()
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        second = EventWriter(path)
        after = second.write("ready")
        second.close()
        found = list(read_events(path))
        assert found[0] == event
        assert found[-1] == after
        assert len(found) in (2, 3), cut  # 3: only the line's end was missing, so that nothing was lost


@pytest.mark.parametrize("damage", [b"garbage\n", b'{"t": 1, "kind" 5}\n', b"[1]\n", b'\x00\x00\x00\x00\n{"t"'])
def test_damage_elsewhere_is_an_error_that_names_the_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"t": 1.0, "kind": "a"}\n' + damage + b'{"t": 2.0, "kind": "b"}\n')
    with pytest.raises(FormatError, match=r"line 2"):
        list(read_events(path))


def test_a_killed_writer_loses_at_most_the_rows_that_may_wait(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    code = (
        "import sys, time; from pathlib import Path; from headway.record.files import EventWriter\n"
        f"writer = EventWriter(Path({str(path)!r}))\n"
        "writer.write('ready')\n"
        "print('go', flush=True)\n"
        "for k in range(10**6): writer.write('step', later=True, k=k); time.sleep(0.001)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(1.5)
        killed_at = time.time()
        process.send_signal(signal.SIGKILL)
    last = list(read_events(path))[-1]
    assert last["kind"] == "step"
    assert killed_at - last["t"] < 1.0


def test_atomic_writes_leave_no_half_file(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, "old")
    with pytest.raises(TypeError):
        write_atomically(path, object())  # type: ignore[arg-type]
    assert path.read_text() == "old"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "folder", "new")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "folder", path]


def test_a_newer_format_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"format": FORMAT + 1}))
    with pytest.raises(FormatError, match="newer Headway"):
        read_json(tmp_path / "run.json", FORMAT)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(FormatError, match="damaged"):
        read_json(tmp_path / "run.json", FORMAT)


# --- folders -------------------------------------------------------------------------------------------------
def test_runs_are_found_by_name_beginning_path_and_last(tmp_path: Path) -> None:
    one, two = new_run(tmp_path, "one"), new_run(tmp_path, "two")
    assert RunFolder.find(tmp_path, one.name).path == one.path
    assert RunFolder.find(tmp_path, "tw").path == two.path
    assert RunFolder.find(tmp_path, "last").path == two.path
    assert RunFolder.find(Path("nowhere"), str(one.path)).path == one.path
    new_run(tmp_path, "two")
    with pytest.raises(NotFound, match="could be any of"):
        RunFolder.find(tmp_path, "tw")
    with pytest.raises(NotFound, match="no run 'three'"):
        RunFolder.find(tmp_path, "three")


def test_one_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    good, bad = new_run(tmp_path, "good"), new_run(tmp_path, "bad")
    (bad.path / "run.json").write_text("{torn")
    done = subprocess.run(
        [sys.executable, "-m", "headway", "runs", "--runs", str(tmp_path), "-o", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert [run["run"] for run in json.loads(done.stdout)] == [good.name]
    assert "damaged" in done.stderr


def test_a_run_is_held_by_one_launcher_and_freed_by_its_death(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    code = (
        "import sys, time; from pathlib import Path; from headway.record.folder import RunFolder\n"
        f"RunFolder(Path({str(folder.path)!r})).hold(); print('held', flush=True); time.sleep(60)\n"
    )
    folder.write_facts({**folder.facts(), "state": "running"})
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert folder.facts()["state"] == "running"
        with pytest.raises(Busy, match="running already"):
            folder.hold()
        process.kill()
    assert folder.facts()["state"] == "interrupted"
    os.close(folder.hold())


def test_the_record_holds_no_variable_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2-do-not-store")
    folder = new_run(tmp_path)
    stored = "".join(path.read_text() for path in folder.path.rglob("*") if path.is_file())
    assert "hunter2" not in stored
    assert "MY_SECRET_TOKEN" not in stored


def test_the_resolved_job_carries_the_reason_of_every_chosen_value(tmp_path: Path) -> None:
    run = Run(new_run(tmp_path))
    assert {"path", "value", "reason"} == set(run.choices[0])
    assert any(choice["path"] == "cluster.worker.threads.intra_op" for choice in run.choices)
    assert run.environment["packages"]["numpy"]


# --- tables --------------------------------------------------------------------------------------------------
def test_a_sealed_run_reads_as_it_did_before(trained: RunFolder) -> None:
    before = {table: repr(Run(trained).rows(table)) for table in TABLES}
    assert not is_sealed(trained)
    seal(trained)
    assert is_sealed(trained)
    assert {table: repr(Run(trained).rows(table)) for table in TABLES} == before


def test_a_run_that_goes_on_is_no_longer_sealed(trained: RunFolder) -> None:
    seal(trained)
    write_rows(trained, WORKER, [row(110, 11)])
    assert not is_sealed(trained)
    assert len(Run(trained).rows("steps")) == 10


def test_unsealed_tables_skip_torn_lines(trained: RunFolder) -> None:
    with trained.events(WORKER).open("a") as file:
        file.write('{"t": 103.0, "kind": "step", "step": 1')
    assert len(Run(trained).rows("steps")) == 9
    EventWriter(trained.events(WORKER)).close()  # a restarted worker begins a new line after the torn one
    write_rows(trained, WORKER, [row(110, 11)])
    assert len(Run(trained).rows("steps")) == 10
    with trained.events(WORKER).open("a") as file:
        file.write("damage\n")
    with pytest.raises(FormatError, match=r"worker-0.jsonl"):
        Run(trained).rows("steps")


def test_a_loss_that_is_not_a_number_stays_one(trained: RunFolder) -> None:
    for _ in range(2):
        losses = [one["loss"] for one in Run(trained).rows("steps") if one["task"] == "worker/0"]
        assert math.isnan(losses[-1])
        seal(trained)


def test_tables_are_numpy_columns(trained: RunFolder) -> None:
    steps = headway.load(trained.path).table("steps")
    assert steps["step"].tolist() == [1, 2, 4, 3, 6, 5, 8, 7, 9]
    assert steps["seconds"].mean() == 0.5


def test_a_run_without_events_is_readable(tmp_path: Path) -> None:
    run = Run(new_run(tmp_path))
    assert run.rows("steps") == []
    summary = run.summary()
    assert (summary["steps"], summary["steps_per_s"], summary["accuracy"]) == (0, None, None)
    assert run.state == "interrupted"


# --- figures -------------------------------------------------------------------------------------------------
def test_the_figures_are_those_computed_by_hand(trained: RunFolder) -> None:
    summary = Run(trained).summary()
    # The window begins at 101 (the worker's first step after warm-up) and ends at 102.5; five steps lie in it.
    assert summary["steps_per_s"] == pytest.approx(5 / 1.5)
    assert summary["task_steps_per_s"] == summary["steps_per_s"]
    assert summary["examples_per_s"] == pytest.approx(500 / 1.5)
    assert (summary["effective_batch"], summary["dropped"], summary["spread"], summary["penalty"]) == (
        100,
        0,
        None,
        None,
    )
    assert summary["steps"] == 9
    assert summary["asked_steps"] == 8
    assert summary["accuracy"] == 0.75
    assert summary["seconds"] == 6.0
    assert summary["training_seconds"] == pytest.approx(3.0)
    chief, worker = summary["tasks"]
    assert (chief["gradients"], worker["gradients"]) == (5, 4)
    assert (chief["examples"], worker["examples"]) == (500, 400)
    assert chief["share"] == pytest.approx(5 / 9)
    assert chief["step_seconds"] == 0.5
    assert chief["input_share"] == pytest.approx(0.2)
    assert summary["staleness"]["histogram"] == {"0": 8, "2": 1}
    assert summary["staleness"]["max"] == 2
    assert summary["staleness"]["gradients"] == 9


def test_the_time_between_two_launches_is_nobodys(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100 + 0.5 * k, k) for k in range(20)])
    write_rows(folder, CHIEF, [row(3700 + 0.5 * k, 20 + k, attempt=1) for k in range(20)])
    launches = [{"started": 90.0, "ended": 111.0}, {"started": 3690.0, "ended": 3711.0}]
    folder.write_facts({**folder.facts(), "launches": launches})
    summary = Run(folder).summary()
    assert summary["steps_per_s"] == pytest.approx(2.0)
    assert summary["training_seconds"] == pytest.approx(20.0)
    assert summary["seconds"] == pytest.approx(42.0)
    left = history(folder, read_job(folder))
    assert left.trained_seconds == pytest.approx(20.0)
    assert (left.step, left.attempts[CHIEF], left.own_steps[CHIEF]) == (39, 1, 40)


def test_the_accuracy_is_the_exported_models_not_that_of_an_evaluator_who_lags_behind(trained: RunFolder) -> None:
    late = {"t": 200.0, "kind": "evaluation", "step": 5, "accuracy": 0.5, "loss": 2.0}
    trained.events(Task("evaluator", 0)).write_text(to_json(late) + "\n")
    summary = Run(trained).summary()
    assert (summary["accuracy"], summary["evaluated_step"]) == (0.75, 9)


def test_a_run_that_diverged_is_listed_and_shown(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100 + k, k, loss=math.nan) for k in range(3)])
    diverged = {"t": 110.0, "kind": "evaluation", "step": 3, "accuracy": 0.1, "loss": math.inf, "num_examples": 9}
    folder.events(Task("evaluator", 0)).write_text(to_json(diverged) + "\n")
    folder.write_facts({**folder.facts(), "state": "finished", "launches": [{"started": 98.0, "ended": 104.0}]})
    seal(folder)
    figures = result(Run(folder))
    assert math.isnan(figures["train_loss"])
    assert math.isinf(figures["loss"])
    for command in (["runs"], ["show", "last"], ["runs", "-o", "json"]):
        done = subprocess.run(
            [sys.executable, "-m", "headway", *command],
            env={**os.environ, "HEADWAY_RUNS": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "inf" in done.stdout.lower()


def test_input_that_cannot_be_seen_is_null_and_never_zero(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100 + k, k, input_seconds=None, num_steps=4) for k in range(3)])
    assert Run(folder).summary()["tasks"][0]["input_share"] is None


def test_after_a_rollback_the_reached_step_is_the_newest_generations(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(100, 50), row(101, 30, generation=2), row(102, 31, generation=2)])
    assert Run(folder).summary()["steps"] == 31


def test_the_stored_result_is_the_computed_one(trained: RunFolder) -> None:
    seal(trained)
    assert to_json(result(Run(trained))) == to_json(Run(trained).summary())


# --- queries -------------------------------------------------------------------------------------------------
def test_sql_sees_all_runs_sealed_or_not(trained: RunFolder, tmp_path: Path) -> None:
    other = new_run(tmp_path, "other")
    write_rows(other, CHIEF, [row(100, 1)])
    seal(trained)
    runs = headway.load_all(tmp_path)
    columns, rows = query("select run, count(*) as n from steps group by run order by n", runs)
    assert columns == ["run", "n"]
    assert rows == [(other.name, 1), (trained.name, 9)]
    assert query("select accuracy from runs order by all", runs)[1] == [(0.75,), (None,)]
    assert query("select kind from events", runs)[1] == [("finished",)]


def test_sql_over_no_runs_is_empty() -> None:
    assert query("select * from steps", [])[1] == []


def test_sql_reads_nothing_but_the_runs(trained: RunFolder, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    for sql in (f"select * from read_text('{secret}')", f"copy (select 1) to '{tmp_path}/out.csv'"):
        with pytest.raises(HeadwayError, match="query"):
            query(sql, [Run(trained)])
    assert not (tmp_path / "out.csv").exists()


def test_a_wrong_query_says_which_tables_there_are(trained: RunFolder) -> None:
    with pytest.raises(HeadwayError, match="Tables: runs, steps"):
        query("select * from stepps", [Run(trained)])
