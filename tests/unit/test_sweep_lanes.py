"""Trials at the same time: never on the same core, and as many as there are cores for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_folder import sweep_file

from headway.bench.conduct import make_plan_here
from headway.bench.lanes import cores_here, divide
from headway.bench.schedule import Progress, fit, following, need
from headway.errors import SiteError
from headway.spec.sweep import SweepMeasure, load_sweep

MEASURE = SweepMeasure(repeats=3, interval=0.05)


def plain(num: int) -> dict[int, frozenset[int]]:
    return {cpu: frozenset({cpu}) for cpu in range(num)}


def with_threads(num: int) -> dict[int, frozenset[int]]:
    """Each core has two CPUs, as Linux numbers them: 0 and num, 1 and num + 1 ..."""
    return {cpu: frozenset({cpu % num, cpu % num + num}) for cpu in range(2 * num)}


def test_lanes_have_the_same_number_of_cores_and_none_in_common() -> None:
    assert divide(plain(8), 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert divide(plain(7), 3) == [[0, 1], [2, 3], [4, 5]]  # one is nobody's: else a lane would be faster
    assert divide(plain(2), 2) == [[0], [1]]


def test_threads_of_one_core_are_never_in_two_lanes() -> None:
    assert divide(with_threads(4), 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    with pytest.raises(SiteError, match=r"--parallel 4: .* gives us 2 \(4 threads\)"):
        divide(with_threads(2), 4)


def test_lanes_of_unlike_cores_are_refused() -> None:
    hybrid = {0: frozenset({0, 1}), 1: frozenset({0, 1}), 2: frozenset({2}), 3: frozenset({3})}
    with pytest.raises(SiteError, match=r"more threads than others.*\(2, 1, 1 CPUs\)"):
        divide(hybrid, 3)


def test_too_few_cores_are_refused_with_the_number() -> None:
    with pytest.raises(SiteError, match=r"--parallel 3: each trial needs cores of its own.* gives us 2$"):
        divide(plain(2), 3)


def test_which_cpus_are_one_core_is_read_from_the_kernel(tmp_path: Path) -> None:
    from os import sched_getaffinity

    first = min(sched_getaffinity(0))
    path = tmp_path / f"cpu{first}" / "topology" / "thread_siblings_list"
    path.parent.mkdir(parents=True)
    path.write_text("0-1,600\n")
    found = cores_here(tmp_path)
    assert found.keys() == sched_getaffinity(0)
    assert found[first] == {first, 0, 1, 600}
    assert all(together == {cpu} for cpu, together in found.items() if cpu != first)  # nothing is known of them


def test_emulated_hosts_that_need_more_than_a_lane_has_are_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("headway.bench.conduct.cores_here", lambda: plain(4))
    job = {
        "workload": {"model": "softmax", "dataset": {"name": "mnist", "synthetic": True}},
        "strategy": "ps-async",
        "cluster": {"training": 2, "ps": 1},
        "site": {"kind": "emulated", "nodes": {"worker": {"cpus": 0.5}, "ps": {"cpus": 0.3}}},
    }
    loaded = load_sweep(sweep_file(tmp_path, job=job))
    assert len(make_plan_here(loaded, parallel=2).trials) == 2
    with pytest.raises(SiteError, match=r"asks for 1\.3 CPUs in all, and each of 4 trials at once has 1 of"):
        make_plan_here(loaded, parallel=4)


def test_runs_under_way_are_not_made_again() -> None:
    assert need(Progress("a", under_way=2), MEASURE).runs == 1
    assert need(Progress("a", under_way=3), MEASURE).runs == 0
    wide = Progress("a", ((),) * 3, (100.0, 130.0, 70.0))
    assert need(wide, MEASURE).runs == 3
    assert need(Progress("a", wide.marks, wide.values, under_way=1), MEASURE).runs == 0
    assert following([Progress("a", under_way=1), Progress("b")], MEASURE, seed=1) == "b"


def test_twice_as_many_runs_fit_into_a_budget_with_two_lanes() -> None:
    trials = [Progress(key, ((),), (100.0,), seconds=(10.0,)) for key in ("a", "b", "c")]
    assert fit(trials, MEASURE, 31.0, seed=1).runs == 3
    assert fit(trials, MEASURE, 31.0, seed=1, lanes=2).runs == 5
