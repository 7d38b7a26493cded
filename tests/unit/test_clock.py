"""Times that do not jump, and figures of records in which they did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import clock
from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import LAUNCHER, RunFolder
from headway.record.reader import Reader
from headway.record.run import Run
from headway.spec.load import parse_job

HOUR, DAY = 3600.0, 86400.0


class Wall:
    """A machine's two clocks, one of which somebody may set."""

    def __init__(self) -> None:
        self.unix, self.since_boot = 1_700_000_000.0, 500.0

    def pass_by(self, seconds: float) -> None:
        self.unix += seconds
        self.since_boot += seconds


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wall]:
    wall = Wall()
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: wall.unix)
        patched.setattr(time, "monotonic", lambda: wall.since_boot)
        clock.begin()
        yield wall
    clock.begin()


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_setting_the_machines_clock_changes_no_duration(wall: Wall, jump: float) -> None:
    before = clock.now()
    wall.pass_by(2.0)
    wall.unix += jump
    wall.pass_by(3.0)
    assert clock.now() - before == pytest.approx(5.0)
    assert clock.jump() == pytest.approx(jump)


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_times_of_programs_are_put_on_the_axis_whichever_side_of_a_jump_they_are_from(wall: Wall, jump: float) -> None:
    before, stamped_before = clock.now(), wall.unix
    wall.pass_by(1.0)
    wall.unix += jump
    assert clock.from_unix(stamped_before) == pytest.approx(before)
    assert clock.from_unix(wall.unix) == pytest.approx(before + 1.0)


def test_a_resumed_run_goes_on_behind_its_record(wall: Wall) -> None:
    assert clock.begin(not_before=wall.unix - 10) == 0.0
    assert clock.now() == pytest.approx(wall.unix)
    assert clock.begin(not_before=wall.unix + HOUR) == pytest.approx(HOUR)
    assert clock.now() == pytest.approx(wall.unix + HOUR)


def test_processes_of_one_machine_share_an_axis(wall: Wall) -> None:
    handed, here = clock.handed_on(), clock.now()
    wall.unix += DAY
    clock.begin()
    assert clock.now() == pytest.approx(here + DAY)
    assert clock.adopt(handed)
    assert clock.now() == pytest.approx(here)


@pytest.mark.parametrize("handed", ["", "another-boot:12.5", "12.5", "nonsense", "{boot}:", "{boot}:nan", "{boot}:inf"])
def test_what_another_machine_hands_on_is_not_taken(wall: Wall, handed: str) -> None:
    boot = clock.handed_on().rpartition(":")[0]
    here = clock.now()
    assert not clock.adopt(handed.format(boot=boot))
    assert clock.now() == here


def test_a_task_takes_the_clock_from_its_environment() -> None:
    boot, _, offset = clock.handed_on().rpartition(":")
    shifted = {**os.environ, clock.VARIABLE: f"{boot}:{float(offset) - HOUR!r}"}
    code = "from headway import clock; print(clock.now())"
    done = subprocess.run([sys.executable, "-c", code], env=shifted, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(clock.now() - HOUR, abs=10.0)


def test_the_last_time_of_a_file_survives_a_torn_end(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(to_json({"t": float(t), "kind": "step"}) + "\n" for t in range(10_000)) + '{"t": 99')
    assert max(row["t"] for row in Reader(tmp_path).last_lines(path)) == 9999.0
    path.write_text("")
    assert Reader(tmp_path).last_lines(path) == []


# --- records in which the clock jumped, as runs from before wrote them -----------------------------------------------
def recorded(root: Path, jump: float, says_generation: bool) -> RunFolder:
    """40 steps, evaluated every 10; the clock jumps behind step 20. With generations: the variables were restored at
    step 20, and training ended at 38."""
    job = {"workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 40}}}
    folder = create_run(parse_job(job), root)
    last = 38 if says_generation else 40
    rows: list[dict[str, Any]] = [{"kind": "initialized", "t": 100.0, "generation": 1, "step": 0, "how": "fresh"}]
    for step in range(1, 41):
        t = 100.0 + step + (jump if step > 20 else 0.0)
        rows.append({"kind": "step", "t": t, "step": step, "own_step": step, "generation": 1, "num_steps": 1})
        rows[-1] |= {"seconds": 1.0, "loss": 1.0, "examples": 100, "accepted": 1, "warmup": step < 3, "attempt": 0}
        if step % 10 == 0:
            rows.append({"kind": "evaluation", "t": t, "step": step, "accuracy": step / 100, "loss": 0.5, "attempt": 0})
            if says_generation:
                rows[-1]["generation"] = 1
    if says_generation:
        rows.append({"kind": "evaluation", "t": 50.0, "step": last, "accuracy": 0.38, "loss": 0.5, "generation": 2})
    with folder.events("chief-0").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    launch = {"started": 99.0, "ended": 99.0 + 45.0 + jump, "pid": 1}
    folder.write_facts({**folder.facts(), "state": "stopped", "launches": [launch]})
    return folder


@pytest.mark.parametrize("jump", [-HOUR, 0.0, DAY])
@pytest.mark.parametrize("says_generation", [False, True])
def test_the_final_evaluation_is_that_of_the_last_step_whatever_the_clock_said(
    tmp_path: Path, jump: float, says_generation: bool
) -> None:
    figures = Run(recorded(tmp_path, jump, says_generation)).summary()
    step = 38 if says_generation else 40  # a later generation counts, though an earlier one came further
    assert (figures["evaluated_step"], figures["accuracy"]) == (step, step / 100)


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_no_duration_is_negative(tmp_path: Path, jump: float) -> None:
    figures = Run(recorded(tmp_path, jump, says_generation=False)).summary()
    assert [name for name in ("seconds", "training_seconds", "time_to_train") if (figures[name] or 0.0) < 0] == []


def test_a_jump_is_a_warning(tmp_path: Path) -> None:
    folder = recorded(tmp_path, 0.0, says_generation=True)
    told: list[tuple[float, bool]] = [(-HOUR, False), (DAY, False), (-HOUR, True)]
    with folder.events(LAUNCHER).open("a", encoding="utf-8") as file:
        for number, (seconds, between) in enumerate(told):
            event = {"t": 110.0 + number, "kind": "clock_jumped", "seconds": seconds, "between_launches": between}
            file.write(json.dumps(event) + "\n")
    back, forward, behind = Run(folder).summary()["warnings"][-3:]
    assert "set back by 1 h" in back
    assert "set forward by" in forward
    assert "behind the end of the last launch" in behind
