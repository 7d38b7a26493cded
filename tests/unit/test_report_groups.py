"""Which runs are repeats of one another, and which groups are points of one line."""

from __future__ import annotations

from typing import Any

import pytest

from headway.report.beside import _rates
from headway.report.charts import charts
from headway.report.groups import Collection, Group, baseline_of, lines_of, of_runs
from headway.report.settings import settings_of

JOB: dict[str, Any] = {
    "name": "a",
    "seed": 1,
    "workload": {
        "model": {"name": "resnet", "depth": 20},
        "dataset": {"name": "cifar10", "path": "/data"},
        "optimizer": {"name": "momentum", "learning_rate": 0.1},
        "stop": {"steps": 100},
    },
    "cluster": {"worker": {"count": 2, "threads": {"intra_op": 1}}, "ps": {"count": 1}},
    "site": {"kind": "emulated", "nodes": {"worker": {"cpus": 0.4, "rate": 125e6}}},
    "limits": {"start": 180},
}


def job_with(**changes: Any) -> dict[str, Any]:
    """`changes`: path with __ for dots -> value."""
    found: dict[str, Any] = {key: dict(value) if isinstance(value, dict) else value for key, value in JOB.items()}
    for path, value in changes.items():
        *before, last = path.split("__")
        place = found
        for part in before:
            place[part] = dict(place.get(part) or {})
            place = place[part]
        place[last] = value
    return found


def digest_of(
    job: dict[str, Any], chosen: tuple[str, ...] = (), strategy: str = "ps-async", tasks: int = 2, **figures: Any
) -> dict[str, Any]:
    known = {"name": "a", "state": "finished", "strategy": strategy, "num_training_tasks": tasks, "num_ps": 1}
    choices = [{"path": path, "value": 1, "reason": ""} for path in chosen]
    return {"figures": known | figures, "settings": settings_of(job), "choices": choices}


@pytest.mark.parametrize(
    ("change", "labels"),
    [
        ({"workload__optimizer__learning_rate": 0.01}, ["learning rate 0.1", "learning rate 0.01"]),
        ({"workload__optimizer__name": "sgd"}, ["optimizer momentum", "optimizer sgd"]),
        ({"workload__model__depth": 32}, ["depth 20", "depth 32"]),
        ({"site__nodes__worker__cpus": 0.8}, ["worker cpus 0.4", "worker cpus 0.8"]),
        ({"site__nodes__worker__rate": 12.5e6}, ["worker rate 1 Gbit/s", "worker rate 100 Mbit/s"]),
        ({"cluster__worker__threads": {"intra_op": 4}}, ["worker threads intra op 1", "worker threads intra op 4"]),
    ],
)
def test_runs_of_different_jobs_are_no_repeats_and_their_labels_say_why(
    change: dict[str, Any], labels: list[str]
) -> None:
    digests = {"/a": digest_of(JOB), "/b": digest_of(job_with(**change))}
    assert [group.label for group in of_runs(digests, list(digests)).groups] == labels


def test_names_seeds_and_places_make_no_difference() -> None:
    other = job_with(name="b", seed=2, limits={"start": 5}, workload__dataset__path="/elsewhere")
    digests = {"/a": digest_of(JOB), "/b": digest_of(other)}
    (group,) = of_runs(digests, list(digests)).groups
    assert group.runs == ("/a", "/b")


def test_what_headway_chose_for_each_machine_makes_no_difference_but_what_was_asked_does() -> None:
    path = "cluster.worker.threads.intra_op"
    four = job_with(cluster__worker__threads={"intra_op": 4})
    chosen = {"/a": digest_of(JOB, (path,)), "/b": digest_of(four, (path,))}
    assert len(of_runs(chosen, list(chosen)).groups) == 1
    chosen |= {"/c": digest_of(JOB, tasks=4), "/d": digest_of(four, tasks=4)}  # others were asked it
    assert len(of_runs(chosen, list(chosen)).groups) == 3
    asked = {"/a": digest_of(JOB, (path,)), "/b": digest_of(four)}
    assert len(of_runs(asked, list(asked)).groups) == 2


def test_labels_stay_short_where_they_suffice() -> None:
    digests = {"/a": digest_of(JOB), "/b": digest_of(job_with(workload__stop__steps=200), tasks=4)}
    assert [group.label for group in of_runs(digests, list(digests)).groups] == ["2 tasks", "4 tasks"]


def test_a_line_over_sizes_has_the_setting_that_differs_elsewhere() -> None:
    slow = job_with(workload__optimizer__learning_rate=0.01)
    digests = {"/a": digest_of(JOB), "/b": digest_of(slow), "/c": digest_of(JOB, tasks=4)}
    lines = lines_of(of_runs(digests, list(digests)).groups, digests)
    assert {name: [one.tasks for one in line] for name, line in lines.items()} == {
        "learning rate 0.1": [2, 4],
        "learning rate 0.01": [2],
    }


# --- lines of a sweep --------------------------------------------------------------------------------------------
RATES = {(1, 1): 100.0, (1, 2): 90.0, (2, 1): 150.0, (2, 2): 190.0, (3, 1): 170.0, (3, 2): 270.0}


def scaling(is_searched: bool) -> tuple[Collection, dict[str, Any]]:
    """One to three workers, each with one and two servers; a baseline with each kind of data."""
    digests: dict[str, Any] = {}
    groups = []
    for data in ("synthetic", "real"):
        path = f"/single-{data}"
        digests[path] = {"figures": {"examples_per_s": 105.0}}
        groups.append(Group(path, {"strategy": "single"}, 1, (path,), is_baseline=True, data=data, key=path))
    for (workers, servers), rate in RATES.items():
        path = f"/{workers}-{servers}"
        digests[path] = {"figures": {"examples_per_s": rate}}
        settings: dict[str, Any] = {"cluster.worker": workers, "cluster.ps": servers}
        settings |= {"data": "synthetic"} if is_searched else {}
        groups.append(Group(path, settings, workers, (path,), data="synthetic", key=path, is_searched=is_searched))
    return Collection("Sweep e2", tuple(groups), sweep="e2"), digests


def test_a_search_is_one_line_of_the_best_of_each_size_with_ideal_line_and_trend() -> None:
    collection, digests = scaling(True)
    by_name = {chart["name"]: chart for chart in charts(collection, digests)}
    assert by_name["throughput"]["kind"] == "lines"
    (line,) = [one for one in by_name["throughput"]["series"] if one["name"] == "synthetic data"]
    assert (line["x"], line["y"]) == ([1, 2, 3], [100.0, 190.0, 270.0])
    assert "trend" in {one["style"] for one in by_name["throughput"]["series"]}
    assert {"ideal", "trend"} <= {one["style"] for one in by_name["speedup"]["series"]}


def test_where_servers_are_varied_each_number_of_them_is_a_line() -> None:
    collection, digests = scaling(False)
    (chart,) = [one for one in charts(collection, digests) if one["name"] == "throughput"]
    lines = {one["name"]: one["y"] for one in chart["series"] if one["style"] == "measured"}
    assert lines["measured, 1 server"] == [100.0, 150.0, 170.0]
    assert lines["measured, 2 servers"] == [90.0, 190.0, 270.0]


def test_beside_what_was_published_stands_the_best_of_each_size() -> None:
    collection, digests = scaling(True)
    (line,) = _rates(collection, digests).values()
    assert {tasks: rates for tasks, (rates, _) in line.items()} == {1: [100.0], 2: [190.0], 3: [270.0]}


def test_the_baseline_of_a_line_has_as_many_servers_where_there_is_one() -> None:
    collection, _ = scaling(False)
    groups = [group for group in collection.groups if not group.is_baseline]
    for group in groups:
        found = baseline_of(group, groups)
        assert found is not None
        assert found.settings["cluster.ps"] == group.settings["cluster.ps"]
