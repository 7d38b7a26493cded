"""Where exactly a run begins to be doubtful, and what a verdict is made of."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_record import CHIEF, WORKER, new_run, row, write_rows
from test_record_distributions import finished, tell

from headway.bench import judge
from headway.bench.judge import Evidence, Load, Machine, _Look, evidence, judged, marks, rank_sum, unsteady, window
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.run import Run
from headway.record.seal import result


def seen(**changes: Any) -> Evidence:
    return Evidence(**{"step_seconds": {}, "made": {"chief/0": 50}, "ours": 1.5, **changes})


# --- load -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("others", "is_emulated", "loaded"),
    [(0.15, False, False), (0.17, False, True), (0.29, True, False), (0.31, True, True)],
)
def test_others_may_use_eight_hundredths_of_the_cores_and_beside_emulated_hosts_fifteen(
    others: float, is_emulated: bool, loaded: bool
) -> None:
    load = Load(2, busy=1.5 + 0.25 + 0.125 + others, conductor=0.25, emulation=0.125)
    assert ("loaded" in marks(seen(load=load, is_emulated=is_emulated))) == loaded


def test_a_hypervisor_may_take_three_hundredths_of_the_cores() -> None:
    assert marks(seen(load=Load(2, busy=1.5, stolen=0.06))) == {}
    assert marks(seen(load=Load(2, busy=1.5, stolen=0.07))) == {
        "loaded": "the hypervisor gave 0.07 of 2 CPUs to others"
    }


def test_a_quota_may_hold_back_for_two_hundredths_of_the_time() -> None:
    assert marks(seen(load=Load(2, throttled=0.02))) == {}
    assert marks(seen(load=Load(2, throttled=0.03))) == {
        "throttled": "a quota held this machine's processes back for 3% of the time"
    }


def test_a_core_that_was_too_hot_once_is_enough() -> None:
    assert marks(seen(load=Load(2, hot=1))) == {"throttled": "cores were slowed down for their heat, 1 times"}


def test_what_is_not_known_of_the_load_gives_no_mark() -> None:
    assert marks(seen(load=Load(2, busy=2.0), ours=None)) == {}
    assert marks(seen(load=Load(2, busy=None))) == {}
    assert marks(seen(load=None)) == {}


# --- drift ------------------------------------------------------------------------------------------------------------
def test_a_change_must_be_surer_than_once_in_a_thousand_runs() -> None:
    """Eight steps before and eight after that are all slower: 3.36 deviations; seven and seven: 3.13."""
    assert unsteady({"chief/0": drifting(8)}) == "chief/0: steps became 50% slower while it was measured"
    assert unsteady({"chief/0": drifting(7)}) is None
    assert unsteady({"chief/0": list(reversed(drifting(8)))}) == (
        "chief/0: steps became 33% faster while it was measured"
    )


def drifting(third: int, by: float = 1.5) -> list[float]:
    return [1.0] * third + [1.2] * third + [by] * third


def test_a_change_by_a_tenth_is_none() -> None:
    assert unsteady({"chief/0": drifting(20, by=1.09)}) is None
    assert unsteady({"chief/0": drifting(20, by=1.11)}) is not None
    assert unsteady({"chief/0": drifting(20, by=0.9)}) is None


def test_steps_that_take_no_time_have_no_drift() -> None:
    assert unsteady({"chief/0": [0.0] * 20 + [1.0] * 40}) is None
    assert unsteady({"chief/0": [0.5] * 20 + [1.0] * 40}) is not None, "less than a second is a time"


def test_every_task_is_looked_at() -> None:
    text = unsteady({"chief/0": [1.0] * 5, "worker/0": [1.0] * 30, "worker/1": drifting(10)})
    assert text is not None
    assert text.startswith("worker/1:")


def test_a_rank_sum_counts_deviations_from_chance() -> None:
    low, high = np.arange(8.0), np.arange(8.0, 16.0)
    assert rank_sum(low, high) == pytest.approx((100 - 68) / math.sqrt(8 * 8 * 17 / 12))
    assert rank_sum(high, low) == pytest.approx(-(100 - 68) / math.sqrt(8 * 8 * 17 / 12))
    assert rank_sum(np.array([1.0, 4.0]), np.array([2.0, 3.0])) == 0.0
    assert rank_sum(np.array([1.0, 2.0]), np.array([3.0])) == pytest.approx(1 / math.sqrt(2 * 4 / 12))
    assert rank_sum(np.array([]), np.array([1.0])) == 0.0
    assert rank_sum(np.array([1.0]), np.array([])) == 0.0
    assert rank_sum(np.ones(8), np.ones(8)) == 0.0, "equal values share their ranks"


def test_a_run_without_any_steps_is_short() -> None:
    assert marks(seen(made={}, asked_steps=1)) == {"short": "only 0 of 1 step measured"}
    assert marks(seen(made={}, asked_steps=None)) == {}


def test_each_reason_for_doubt_is_said_in_words() -> None:
    found = marks(seen(restarts=1, was_steady=False, contradictions=["a", "b"]))
    assert found == {
        "unsteady": "the step time was still changing when the warm-up had taken all the steps that it may",
        "restarted": "tasks were started again, 1 times",
        "inconsistent": "a; b",
    }


# --- a run ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def measured(tmp_path: Path) -> RunFolder:
    """Steps of the chief at 101, 102, ... 108 (the last six measured), of the worker half a second later."""
    folder = new_run(tmp_path, measure={"warmup": 2, "steps": 7})
    tell(folder, LAUNCHER, t=90.0, kind="launched", launch=0)
    tell(folder, CHIEF, t=99.0, kind="initialized", how="fresh", step=0, generation=1)
    for task, late in ((CHIEF, 0.0), (WORKER, 0.5)):
        rows = [row(100 + late + k, 2 * k, own_step=k, seconds=1.0, warmup=k <= 2) for k in range(1, 9)]
        write_rows(folder, task, rows)
    return finished(folder, 90.0, 120.0)


def test_what_is_measured_begins_when_the_last_task_has_left_its_warm_up(measured: RunFolder) -> None:
    assert window(Run(measured)) == (102.5, 108.5)


def test_a_run_that_was_all_warm_up_has_no_window(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    write_rows(folder, CHIEF, [row(101.0, 1, warmup=True)])
    assert window(Run(finished(folder, 90.0, 120.0))) is None


def test_evidence_counts_measured_steps_of_each_task(measured: RunFolder) -> None:
    found = evidence(Run(measured), result(Run(measured)), None)
    assert found.made == {"chief/0": 6, "worker/0": 6}
    assert found.step_seconds == {"chief/0": [1.0] * 6, "worker/0": [1.0] * 6}
    assert (found.asked_steps, found.was_steady, found.restarts, found.is_emulated) == (7, True, 0, False)
    assert marks(found)["short"] == "only 6 of 7 steps measured"


def test_the_last_warm_up_decides_whether_the_pace_was_steady(measured: RunFolder) -> None:
    for t, is_steady in ((103.0, True), (104.0, False)):
        tell(measured, LAUNCHER, t=t, kind="measuring", launch=0, is_steady=is_steady)
    assert not evidence(Run(measured), result(Run(measured)), None).was_steady


def test_a_verdict_has_the_value_the_marks_and_the_load(measured: RunFolder) -> None:
    machine = Machine(looks=[look(100.0, busy=10.0), look(110.0, busy=15.0)])
    found = judged(Run(measured), "steps_per_s", machine)
    assert found["value"] == pytest.approx(result(Run(measured))["steps_per_s"])
    assert found["marks"] == list(found["why"]) == ["short"]
    assert found["load"]["busy"] == pytest.approx(0.5)
    assert found["load"]["ours"] is None


def test_a_run_without_the_figure_has_failed_and_says_why(measured: RunFolder, tmp_path: Path) -> None:
    found = judged(Run(measured), "accuracy", Machine())
    assert found["state"] == "failed"
    assert "accuracy" in found["reason"]
    empty = finished(new_run(tmp_path, name="empty"), 90.0, 120.0)
    assert judged(Run(empty), "steps_per_s", Machine()) == {
        "state": "failed",
        "reason": "it gave no steps_per_s: nothing was measured",
    }


# --- the machine ------------------------------------------------------------------------------------------------------
def look(t: float, busy: float | None = None, **known: Any) -> _Look:
    fields = {"stolen": None, "throttled": {}, "hot": 0, "own": 0.0, "emulation": 0.0, **known}
    return _Look(t, busy, **fields)


def test_load_is_a_mean_from_the_look_before_to_the_look_after() -> None:
    machine = Machine(looks=[look(t, busy=t * t) for t in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)])
    for first, last, expected in ((1.0, 4.0, 5.0), (1.5, 3.5, 5.0), (-1.0, 2.0, 2.0), (3.0, 9.0, 8.0)):
        load = machine.between(first, last)
        assert load is not None
        assert load.busy == expected, (first, last)
        assert load.cores == len(os.sched_getaffinity(0))


def test_without_two_looks_no_load_is_known() -> None:
    assert Machine().between(0.0, 1.0) is None
    assert Machine(looks=[look(0.5, busy=1.0)]).between(0.0, 1.0) is None


def test_every_part_of_the_load_is_a_rate_and_heat_is_a_count() -> None:
    here, gone, new = Path("here"), Path("gone"), Path("new")
    machine = Machine(
        looks=[
            look(0.0, 1.0, stolen=1.0, throttled={here: 1.0, gone: 0.0}, hot=2, own=1.0, emulation=3.0),
            look(2.0, 4.0, stolen=2.0, throttled={here: 2.0, new: 9.0}, hot=5, own=1.5, emulation=4.0),
        ]
    )
    load = machine.between(0.0, 2.0)
    assert load == Load(len(os.sched_getaffinity(0)), 1.5, 0.5, 0.5, hot=3, conductor=0.25, emulation=0.5)


def test_emulated_hosts_that_are_gone_give_no_negative_load() -> None:
    machine = Machine(looks=[look(0.0, emulation=3.0, hot=4), look(1.0, emulation=0.5, hot=1)])
    load = machine.between(0.0, 1.0)
    assert load is not None
    assert (load.busy, load.stolen, load.throttled, load.hot, load.emulation) == (None, None, None, 0, 0.0)


def test_only_the_last_look_is_kept_between_runs() -> None:
    machine = Machine(looks=[look(0.0), look(1.0), look(2.0)])
    machine.forget()
    assert [each.t for each in machine.looks] == [2.0]


def test_work_is_all_that_is_not_idle_waiting_or_stolen(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    line = f"{ticks} {2 * ticks} {4 * ticks} 999 999 {8 * ticks} {16 * ticks} {32 * ticks} 999 999"
    cores = [f"cpu{core} {line}" for core in os.sched_getaffinity(0)]
    (tmp_path / "stat").write_text("\n".join([f"cpu  {line}", *cores]))
    machine = Machine(proc=tmp_path, groups=tmp_path, cpus=tmp_path)
    machine.look()
    assert machine.looks[0].busy == 31.0 * len(cores)
    assert machine.looks[0].stolen == 32.0 * len(cores)


@pytest.mark.parametrize("content", [None, "intr 1 2\n", "cpu 1 2 3 4 5 6 7\n"])
def test_counters_that_are_missing_are_not_known(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "stat").write_text(content)
    machine = Machine(proc=tmp_path, groups=tmp_path, cpus=tmp_path)
    machine.look()
    assert (machine.looks[0].busy, machine.looks[0].stolen) == (None, None)


def test_heat_is_counted_over_all_cores(tmp_path: Path) -> None:
    for core, text in enumerate(("3", "4", "rubbish")):
        folder = tmp_path / f"cpu{core}" / "thermal_throttle"
        folder.mkdir(parents=True)
        (folder / "core_throttle_count").write_text(text)
    machine = Machine(proc=tmp_path, groups=tmp_path, cpus=tmp_path)
    machine.look()
    assert machine.looks[0].hot == 7


def test_emulation_is_the_cpu_time_of_the_processes_that_emulate_and_of_no_others() -> None:
    words = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); sys.stdin.read()"
    before = judge._emulation()
    with contextlib.ExitStack() as stack:
        for name in (f"{judge.EMULATOR}.box", "another.program"):
            command = [sys.executable, "-c", words, name]
            child = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert child.stdout is not None
            child.stdout.readline()
        assert judge._emulation() - before == pytest.approx(0.35, abs=0.15), "one of them, with its start"
        assert before == 0.0


def test_hosts_that_use_nothing_are_no_load() -> None:
    machine = Machine()
    machine.looks[:] = [look(0.0, emulation=5.0), look(10.0, emulation=5.0)]
    load = machine.between(0.0, 10.0)
    assert load is not None
    assert load.emulation == 0.0
