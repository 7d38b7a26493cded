"""Whether a run can be believed: drifts, loaded and throttled machines, warm-ups that are not over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway.bench.folder import counted
from headway.bench.judge import Evidence, Load, Machine, marks, unsteady
from headway.launch.measuring import is_steady

RANDOM = np.random.default_rng(3)
BEGINNING = RANDOM.bit_generator.state


@pytest.fixture(autouse=True)
def _the_same_numbers_in_whatever_order_tests_run() -> None:
    RANDOM.bit_generator.state = BEGINNING


def steps(num: int = 100, drift: float = 0.0, noise: float = 0.05) -> list[float]:
    """Seconds of each step: from 0.1 on, by `drift` more at the end."""
    return list(np.linspace(0.1, 0.1 * (1 + drift), num) * RANDOM.lognormal(0, noise, num))


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.4])
def test_noise_is_no_drift(noise: float) -> None:
    assert sum(unsteady({"chief/0": steps(noise=noise)}) is not None for _ in range(200)) <= 2


@pytest.mark.parametrize("drift", [0.4, -0.3])
def test_a_drift_is_seen_in_nearly_every_run(drift: float) -> None:
    found = [unsteady({"chief/0": steps(drift=0), "worker/0": steps(drift=drift)}) for _ in range(50)]
    assert sum(text is not None for text in found) >= 48
    text = next(text for text in found if text)
    assert text.startswith("worker/0: steps became")
    assert ("slower" if drift > 0 else "faster") in text


def test_a_small_drift_is_no_matter_however_certain_it_is() -> None:
    assert unsteady({"chief/0": steps(1000, drift=0.08, noise=0.001)}) is None


def test_a_few_steps_say_nothing_of_a_drift() -> None:
    assert unsteady({"chief/0": steps(11, drift=2.0)}) is None


def evidence(**changes: Any) -> Evidence:
    return Evidence(**{"step_seconds": {"chief/0": steps(50)}, "made": {"chief/0": 50}, "ours": 1.5, **changes})


def test_an_idle_machine_gives_no_mark() -> None:
    assert marks(evidence(load=Load(2, busy=1.62, stolen=0.0, throttled=0.0, conductor=0.05), asked_steps=50)) == {}


@pytest.mark.parametrize(
    ("load", "mark", "words"),
    [
        (Load(2, busy=2.0, stolen=0.0), "loaded", "others used 0.50 of 2 CPUs"),
        (Load(2, busy=1.5, stolen=0.2), "loaded", "the hypervisor gave 0.20 of 2 CPUs to others"),
        (Load(2, busy=1.5, hot=3), "throttled", "slowed down for their heat, 3 times"),
        (Load(2, busy=1.5, throttled=0.3), "throttled", "a quota held"),
    ],
)
def test_a_loaded_or_throttled_machine_is_noticed(load: Load, mark: str, words: str) -> None:
    found = marks(evidence(load=load))
    assert list(found) == [mark]
    assert words in found[mark]


def test_the_network_between_emulated_hosts_takes_cpu_that_is_nobodys() -> None:
    busy = Load(2, busy=1.75, stolen=0.0)
    assert list(marks(evidence(load=busy))) == ["loaded"]
    assert marks(evidence(load=busy, is_emulated=True)) == {}


def test_what_the_launcher_uses_is_not_others_work() -> None:
    assert marks(evidence(load=Load(2, busy=2.0, stolen=0.0, conductor=0.4))) == {}


def test_what_emulates_hosts_is_not_others_work() -> None:
    assert marks(evidence(load=Load(2, busy=2.0, stolen=0.0, emulation=0.4))) == {}
    command = [sys.executable, "-c", "while True: pass", "headway.sites.emulated.box"]
    with subprocess.Popen(command) as process, Machine() as machine:
        try:
            time.sleep(1.5)
        finally:
            process.kill()
    first, last = machine.looks[0], machine.looks[-1]
    load = machine.between(first.t, last.t)
    assert load is not None
    assert load.emulation > 0.2  # some of a core, however many others want it


def test_restarts_and_unfinished_warm_ups_and_missing_steps_are_marked() -> None:
    found = marks(evidence(restarts=1, was_steady=False, asked_steps=60, contradictions=["5 updates, but 7 steps"]))
    assert set(found) == {"restarted", "unsteady", "short", "inconsistent"}
    assert found["inconsistent"] == "5 updates, but 7 steps"
    assert found["short"] == "only 50 of 60 steps measured"


def test_steps_are_counted_and_not_the_calls_that_made_them() -> None:
    assert "short" not in marks(evidence(made={"chief/0": 500}, asked_steps=500))
    assert marks(evidence(made={"chief/0": 500, "worker/0": 490}, asked_steps=500))["short"].startswith("only 490 of")


def test_what_others_do_on_cores_that_are_not_ours_is_no_load(tmp_path: Path) -> None:
    machine = Machine(proc=tmp_path, groups=tmp_path, cpus=tmp_path)
    ours = sorted(os.sched_getaffinity(0))

    def write(user: int, elsewhere: int) -> None:
        cores = [f"cpu{core} {user} 0 0 5000 10 0 0 0 0 0" for core in ours]
        other = f"cpu{max(ours) + 1} {elsewhere} 0 0 5000 10 0 0 0 0 0"
        whole = f"cpu  {user * len(ours) + elsewhere} 0 0 5000 10 0 0 0 0 0"
        (tmp_path / "stat").write_text("\n".join([whole, *cores, other, "intr 1 2", ""]))
        machine.look()

    write(1000, 1000)
    write(1300, 9000)
    first, last = (look.t for look in machine.looks)
    load = machine.between(first, last)
    assert load is not None
    assert load.busy == pytest.approx(3.0 * len(ours) / (last - first))


def test_a_machine_is_read_from_counters(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.mkdir()
    machine = Machine(proc=tmp_path, groups=groups, cpus=tmp_path)

    def write(user: int, steal: int, throttled: int) -> None:
        (tmp_path / "stat").write_text(f"cpu  {user} 0 100 5000 10 0 0 {steal} 0 0\ncpu0 1 2 3\n")
        (groups / "cpu.stat").write_text(f"usage_usec 1\nthrottled_usec {throttled}\n")
        machine.look()

    write(1000, 0, 0)
    write(1300, 50, 200_000)
    first, last = (look.t for look in machine.looks)
    load = machine.between(first, last)
    assert load is not None
    assert load.busy == pytest.approx(3.0 / (last - first))
    assert load.stolen == pytest.approx(0.5 / (last - first))
    assert load.throttled == pytest.approx(0.2 / (last - first))


def test_the_quota_that_held_us_back_most_is_the_one_that_counts(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/batch/job\n")
    (tmp_path / "batch/job").mkdir(parents=True)
    machine = Machine(proc=tmp_path, groups=tmp_path, cpus=tmp_path)
    for outer, inner in ((5_000_000, 100_000), (5_400_000, 200_000)):
        (tmp_path / "batch/cpu.stat").write_text(f"throttled_usec {outer}\n")
        (tmp_path / "batch/job/cpu.stat").write_text(f"throttled_usec {inner}\n")
        machine.look()
    first, last = (look.t for look in machine.looks)
    load = machine.between(first, last)
    assert load is not None
    assert load.throttled == pytest.approx(0.4 / (last - first))


# --- warm-up --------------------------------------------------------------------------------------------------------
def test_a_steady_pace_is_steady_and_a_falling_one_is_not() -> None:
    assert is_steady([0.1] * 6)
    assert not is_steady([0.1] * 5)
    assert not is_steady([0.9, 0.5, 0.3, 0.2, 0.15, 0.12])
    assert is_steady([0.9, 0.5, 0.3, *[0.12, 0.11, 0.12, 0.13, 0.12, 0.11]])


def test_a_noisy_pace_is_taken_for_steady_soon() -> None:
    """A warm-up looks again with every piece that it hears of."""
    looks = []
    for _ in range(100):
        pace = list(RANDOM.lognormal(0, 0.3, 60))
        looks.append(next(num for num in range(6, 60) if is_steady(pace[:num])))
    assert np.median(looks) <= 8
    assert max(looks) <= 20


# --- which runs count -----------------------------------------------------------------------------------------------
def test_marked_runs_count_only_while_there_are_too_few_without_a_mark() -> None:
    clean: tuple[str, ...] = ()
    assert counted([clean, ("loaded",), clean], repeats=5) == [True, True, True]
    assert counted([clean, ("loaded",), clean, clean], repeats=5) == [True, False, True, True]
    assert counted([("loaded",)], repeats=1) == [True]
    assert counted([("loaded",), clean], repeats=1) == [False, True]
