"""Steps that were made in vain, counted from the rows of a record that is written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from supervising import running
from test_record import CHIEF, WORKER, new_run, row, write_rows

from headway.launch.prepare import history, read_job
from headway.record.folder import RunFolder
from headway.record.lost import last_reached, made_again
from headway.record.run import Run
from headway.spec import Task

PS, RANKS = Task("ps", 0), (Task("worker", 0), Task("worker", 1))


def initialized(t: float, step: int, generation: int, how: str = "restored", attempt: int = 0) -> dict[str, Any]:
    return {"t": t, "kind": "initialized", "attempt": attempt, "how": how, "step": step, "generation": generation}


def lost(folder: RunFolder) -> int:
    folder.write_facts({**folder.facts(), "launches": [{"started": 0.0, "ended": 1000.0}]})
    return int(Run(folder).summary()["steps_lost"])


# --- the engine's own training -----------------------------------------------------------------------------------
def rolled_back(tmp_path: Path) -> RunFolder:
    """From 139 back to 20, and on to 60. No `rollback` was recorded: the launcher had heard of nothing."""
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [initialized(99, 0, 1, "fresh"), *(row(100 + step, step) for step in (50, 138))])
    write_rows(folder, WORKER, [row(100.5, 51), row(101.5, 139)])
    write_rows(folder, CHIEF, [initialized(200, 20, 2, attempt=1), row(201, 60, generation=2, attempt=1)])
    return folder


def test_steps_are_lost_from_the_highest_row_to_the_restored_step(tmp_path: Path) -> None:
    assert lost(rolled_back(tmp_path)) == 119


def test_a_generation_without_rows_loses_nothing_more(tmp_path: Path) -> None:
    folder = rolled_back(tmp_path)
    write_rows(folder, CHIEF, [initialized(300, 40, 3), initialized(310, 40, 4), row(311, 90, generation=4)])
    assert lost(folder) == 119 + 20


def test_adopted_variables_and_a_newer_checkpoint_lose_nothing(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [initialized(99, 0, 1, "fresh"), row(100, 50), initialized(150, 52, 1, "adopted", 1)])
    assert lost(folder) == 0
    write_rows(folder, CHIEF, [initialized(160, 55, 2), row(170, 70, generation=2)])  # a killed task's rows are missing
    assert lost(folder) == 0


def test_an_update_that_nobody_wrote_a_step_of_counts(tmp_path: Path) -> None:
    folder = new_run(tmp_path, strategy="ps-sync")
    write_rows(folder, CHIEF, [initialized(99, 0, 1, "fresh"), row(100, 10)])
    update = {"kind": "update", "attempt": 0, "tasks": ["chief/0"], "examples": 1, "dropped": [], "spread": 0.0}
    write_rows(folder, PS, [{"t": 101.0, "generation": 1, "step": 12, **update}])
    write_rows(folder, CHIEF, [initialized(110, 5, 2)])
    assert lost(folder) == 7


def test_the_clock_has_no_say(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [initialized(5000, 0, 1, "fresh"), row(5001, 50)])
    write_rows(folder, CHIEF, [initialized(100, 20, 2), row(101, 30, generation=2)])
    assert lost(folder) == 30
    assert history(folder, read_job(folder)).step == 30


# --- what the launcher says when it happens ----------------------------------------------------------------------
def test_what_lies_in_the_run_folder_counts_also_if_nobody_told_of_it(tmp_path: Path) -> None:
    folder = rolled_back(tmp_path)
    paths = [folder.events(task) for task in (CHIEF, WORKER, PS)]
    assert last_reached(folder.reader, paths, before=2) == (1, 139)
    assert last_reached(folder.reader, paths, before=3) == (2, 60)
    assert last_reached(folder.reader, paths, before=1) is None
    with paths[1].open("ab") as file:
        file.write(b'{"t": 1, "kind": "step", "gener')  # it died while it wrote
    assert last_reached(folder.reader, paths, before=2) == (1, 139)


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, WORKER, [row(100 + step, step) for step in range(1, 3000)])
    assert last_reached(folder.reader, [folder.events(WORKER)], before=2) == (1, 2999)


def test_the_recorded_rollback_says_so_too() -> None:
    world = running()
    world.say(CHIEF, "initialized", how="restored", step=4, generation=2, reached=(1, 30))
    assert world.note("rollback") == {"step_before": 30, "step": 4, "steps_lost": 26}
    # Nothing was recorded since: what an older generation reached was lost before.
    world.say(CHIEF, "initialized", how="restored", step=4, generation=3, reached=(1, 30))
    assert world.note("rollback") == {"step_before": 4, "step": 4, "steps_lost": 0}


# --- programs ----------------------------------------------------------------------------------------------------
def program(tmp_path: Path, cluster: dict[str, int], steps: str = "global") -> RunFolder:
    workload = {"command": "python train.py", "report": {"steps": steps}}
    strategy = "ps-async" if "ps" in cluster else "allreduce"
    return new_run(tmp_path, workload=workload, strategy=strategy, cluster=cluster)


def told(folder: RunFolder, task: Task, attempt: int, steps: range, own: int = 0) -> None:
    """As engines/command/reports.py writes it: the first report is where measuring begins."""
    rows = []
    for place, step in enumerate(steps):
        moved = steps.step if place else 1
        fields = {"attempt": attempt, "own_step": own + place, "num_steps": moved, "accepted": moved, "generation": 0}
        rows.append(row(100.0 * attempt + place, step, **fields))
    write_rows(folder, task, rows)


@pytest.mark.parametrize(("every", "first"), [(1, 31), (10, 31)])
def test_a_program_that_goes_back_to_its_checkpoint_makes_steps_again(tmp_path: Path, every: int, first: int) -> None:
    """Also one that tells of its first step, and then of every tenth."""
    folder = program(tmp_path, {"worker": 2})
    for task in RANKS:  # both say so, and it is counted once
        told(folder, task, 0, range(every, 101, every))
        told(folder, task, 1, range(first, 201, every), own=100)
    assert lost(folder) == 70


def test_steps_before_the_first_report_are_not_claimed(tmp_path: Path) -> None:
    """It may have begun at 30, or at 39: the record proves only that step 40 was made again."""
    folder = program(tmp_path, {"worker": 1})
    told(folder, RANKS[0], 0, range(10, 101, 10))
    told(folder, RANKS[0], 1, range(40, 201, 10), own=100)
    assert lost(folder) == 61


def test_ranks_that_did_not_come_as_far_lost_less_and_one_that_is_silent_says_nothing(tmp_path: Path) -> None:
    folder = program(tmp_path, {"worker": 3})
    for task, reached in zip(RANKS, (100, 98), strict=True):
        told(folder, task, 0, range(1, reached + 1))
        told(folder, task, 1, range(51, 121), own=100)
    assert lost(folder) == 50


def test_two_restarts_are_lost_twice(tmp_path: Path) -> None:
    folder = program(tmp_path, {"worker": 2})
    for attempt in range(3):
        for task in RANKS:
            told(folder, task, attempt, range(1, 41), own=40 * attempt)
    assert lost(folder) == 80


def test_a_worker_that_rejoins_at_the_global_step_loses_nothing(tmp_path: Path) -> None:
    folder = program(tmp_path, {"worker": 2, "ps": 1})
    told(folder, RANKS[0], 0, range(1, 201, 2))
    told(folder, RANKS[1], 0, range(2, 101, 2))
    told(folder, RANKS[1], 1, range(160, 201, 2), own=50)
    assert lost(folder) == 0


def test_where_each_counts_its_own_each_loses_its_own(tmp_path: Path) -> None:
    folder = program(tmp_path, {"worker": 2}, steps="own")
    for task in RANKS:
        told(folder, task, 0, range(1, 101))
        told(folder, task, 1, range(81, 121), own=100)
    assert lost(folder) == 40


def test_a_step_counts_as_often_as_one_task_made_it_again() -> None:
    assert made_again([]) == 0
    assert made_again([("a", 10, 20), ("b", 10, 20)]) == 10
    assert made_again([("a", 10, 20), ("b", 15, 30), ("a", 10, 12)]) == 2 + 10 + 10
    assert made_again([("a", 0, 5), ("b", 100, 105)]) == 10
    assert made_again([("a", 0, 10**18)]) == 10**18  # a record may say anything
