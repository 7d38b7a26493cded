"""Which runs are repeats of one another, and which groups are points of one line."""

from __future__ import annotations

from typing import Any

import pytest

from headway.report.baseline import baseline_of
from headway.report.charts import charts
from headway.report.groups import Collection, Group, lines_of, of_runs
from headway.report.settings import settings_of
from headway.report.tables import every_run, io_overhead, results

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
    job: dict[str, Any],
    chosen: tuple[str, ...] = (),
    strategy: str = "ps-async",
    tasks: int = 2,
    cpu: str = "EPYC",
    **figures: Any,
) -> dict[str, Any]:
    known = {"name": "a", "state": "finished", "strategy": strategy, "num_training_tasks": tasks, "num_ps": 1}
    known |= {"examples_per_s": 100.0 * tasks, "tasks": []}
    choices = [{"path": path, "value": 1, "reason": ""} for path in chosen]
    environment = {"cpu": cpu, "cores": 2}
    return {
        "figures": known | figures,
        "settings": settings_of(job),
        "choices": choices,
        "environment": environment,
    }


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


# --- runs that do not count ----------------------------------------------------------------------------------------
OOM = {"state": "failed", "reason": "worker/0: out of memory"}


def note_of(*figures: dict[str, Any]) -> str:
    """Of the one row of runs of one job."""
    digests = {f"/{number}": digest_of(JOB, **more) for number, more in enumerate(figures)}
    (row,) = results(of_runs(digests, list(digests)), digests)["rows"]
    assert len(row["runs"]) == len(figures)
    return str(row["note"])


@pytest.mark.parametrize(
    ("figures", "note"),
    [
        ([{"state": "running"}], "still running"),
        ([{"state": "starting"}], "still starting"),
        ([{"state": "interrupted"}], "interrupted"),
        ([{"state": "unknown"}], "not known whether it still runs"),
        ([OOM], "failed: worker/0: out of memory"),
        ([OOM, OOM, {"state": "running"}], "2 failed: worker/0: out of memory; 1 still running"),
        ([{}], ""),
        ([{}, {"state": "stopped"}], ""),
        ([{}, OOM], "1 more that does not count (failed: worker/0: out of memory)"),
        (
            [{}, {"state": "running"}, {"state": "interrupted"}],
            "2 more that do not count (1 still running; 1 interrupted)",
        ),
    ],
)
def test_a_row_says_what_became_of_runs_that_do_not_count(figures: list[dict[str, Any]], note: str) -> None:
    assert note_of(*figures) == note


# --- what a speed-up is against ----------------------------------------------------------------------------------
def alone(job: dict[str, Any] = JOB, **more: Any) -> dict[str, Any]:
    """The same on a single machine."""
    return digest_of(job, strategy="single", tasks=1, **more)


def speedups_of(*digests: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Of the table of these runs: label -> (speed-up, note), and the table's own note."""
    known = {f"/{number}": digest for number, digest in enumerate(digests)}
    table = results(of_runs(known, list(known)), known)
    rows = {row["cells"]["configuration"]: row for row in table["rows"]}
    return {
        label: ((row["cells"].get("speedup") or {}).get("value"), row["note"]) for label, row in rows.items()
    }, table["note"]


def test_a_single_machine_of_the_workers_kind_is_the_baseline() -> None:
    found, note = speedups_of(alone(), digest_of(JOB))
    assert found == {"single": (1.0, ""), "ps-async, 2 tasks": (2.0, "")}
    assert "are against: single" in note


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"site__nodes__worker__cpus": 0.8}, "worker cpus: 0.4 there, 0.8 here"),
        ({"site__nodes__worker__cpus": None}, "worker cpus: 0.4 there, nothing here"),
        ({"site__nodes__worker__type": "t2.micro"}, "worker type: nothing there, t2.micro here"),
        ({"workload__model__depth": 32}, "depth: 20 there, 32 here"),
        ({"workload__dataset__synthetic": True}, "real data there, synthetic data here"),
        ({"workload__dataset__size": 0.1}, "size: nothing there, 0.1 here"),
    ],
)
def test_a_single_machine_that_is_not_alike_is_no_baseline_and_the_page_says_why(
    change: dict[str, Any], why: str
) -> None:
    found, note = speedups_of(alone(), digest_of(job_with(**change)))
    assert found["ps-async, 2 tasks"] == (None, f"no speed-up: single is not alike ({why})")
    assert "are against: single" in note  # its own


def test_of_several_single_machines_the_one_that_is_alike_is_the_baseline() -> None:
    large = job_with(site__nodes__worker__cpus=0.8)
    found, _ = speedups_of(alone(examples_per_s=50.0), alone(large, examples_per_s=80.0), digest_of(large))
    assert found["ps-async, 2 tasks, worker cpus 0.8"] == (2.5, "")


def test_neither_the_network_of_a_single_machine_nor_what_headway_chose_in_both_is_a_difference() -> None:
    cpus = "site.nodes.worker.cpus"
    found, _ = speedups_of(
        alone(job_with(site__nodes__worker__rate=None), chosen=(cpus,)),
        digest_of(job_with(site__nodes__worker__cpus=0.41), chosen=(cpus,)),
    )
    assert found["ps-async, 2 tasks"] == (2.0, "")


def test_runs_on_different_machines_are_neither_repeats_nor_baselines_of_one_another() -> None:
    found, _ = speedups_of(alone(), digest_of(JOB), digest_of(JOB, cpu="Xeon"))
    assert found["ps-async, EPYC, 2 cores, 2 tasks"] == (2.0, "")
    why = "no speed-up: single, EPYC, 2 cores is not alike (EPYC, 2 cores there, Xeon, 2 cores here)"
    assert found["ps-async, Xeon, 2 cores, 2 tasks"] == (None, why)


def test_where_nothing_could_be_a_baseline_that_is_said_once() -> None:
    found, note = speedups_of(digest_of(JOB), digest_of(JOB, tasks=4))
    assert [one for one, _ in found.values()] == [None, None]
    assert not any(note for _, note in found.values())
    assert "No speed-up: there is no run of strategy single, nor of one training task" in note


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


@pytest.mark.parametrize(
    ("baseline", "ideal", "note"),
    [(1, [1, 4], "n tasks are n times as fast as the baseline's one."),
     (2, [0.5, 2], "n tasks are n/2 times as fast as the baseline's 2.")],
)  # fmt: skip
def test_the_ideal_line_goes_through_the_baseline(baseline: int, ideal: list[float], note: str) -> None:
    """A sweep may call any size its baseline."""
    groups = tuple(
        Group(f"{n}", {"cluster.training": n}, n, (f"/{n}",), is_baseline=n == baseline, key=f"{n}") for n in (1, 2, 4)
    )
    digests = {f"/{n}": {"figures": {"examples_per_s": 100.0 * n}} for n in (1, 2, 4)}
    by_name = {chart["name"]: chart for chart in charts(Collection("Sweep made", groups, sweep="made"), digests)}
    (line,) = [one for one in by_name["speedup"]["series"] if one["style"] == "ideal"]
    assert (line["name"], line["x"], line["y"]) == ("ideal", [1, 4], ideal)
    (measured,) = [one for one in by_name["speedup"]["series"] if one["style"] == "measured"]
    assert measured["y"] == pytest.approx([1 / baseline, 2 / baseline, 4 / baseline])  # all on the ideal line
    (flat,) = [one for one in by_name["efficiency"]["series"] if one["style"] == "ideal"]
    assert flat["y"] == [1, 1]
    assert note in by_name["efficiency"]["note"]


def test_where_servers_are_varied_each_number_of_them_is_a_line() -> None:
    collection, digests = scaling(False)
    (chart,) = [one for one in charts(collection, digests) if one["name"] == "throughput"]
    lines = {one["name"]: one["y"] for one in chart["series"] if one["style"] == "measured"}
    assert lines["measured, 1 server"] == [100.0, 150.0, 170.0]
    assert lines["measured, 2 servers"] == [90.0, 190.0, 270.0]


def test_the_baseline_of_a_line_has_as_many_servers_where_there_is_one() -> None:
    collection, _ = scaling(False)
    groups = [group for group in collection.groups if not group.is_baseline]
    for group in groups:
        found = baseline_of(group, groups)
        assert found is not None
        assert found.settings["cluster.ps"] == group.settings["cluster.ps"]


# --- the price of real data ----------------------------------------------------------------------------------------
SYNTHETIC = "workload.dataset.synthetic"


def overheads(*trials: tuple[dict[str, Any], str, float]) -> dict[str, float]:
    """`trials`: settings, data and rate. Label of the one with real data -> overhead."""
    groups = tuple(
        Group(f"{number}", settings, 2, (f"/{number}",), data=data, key=f"{number}")
        for number, (settings, data, _) in enumerate(trials)
    )
    digests = {f"/{number}": {"figures": {"examples_per_s": rate}} for number, (_, _, rate) in enumerate(trials)}
    table = io_overhead(Collection("Sweep made", groups, sweep="made"), digests)
    rows = table["rows"] if table else []
    assert len({row["cells"]["configuration"] for row in rows}) == len(rows)
    return {row["cells"]["configuration"]: round(row["cells"]["overhead"], 9) for row in rows}


def test_data_that_is_varied_by_its_setting_has_an_overhead() -> None:
    assert overheads(({SYNTHETIC: True}, "synthetic", 100.0), ({SYNTHETIC: False}, "real", 90.0)) == {"1": 0.1}
    whole = "workload.dataset"
    made_up = ({whole: {"name": "mnist", "synthetic": True}}, "synthetic", 100.0)
    assert overheads(made_up, ({whole: "mnist"}, "real", 80.0)) == {"1": 0.2}


def test_an_overhead_is_of_the_same_data_all_else_equal() -> None:
    small, large = {"workload.dataset.size": 1}, {"workload.dataset.size": 3}
    found = overheads(
        ({SYNTHETIC: True, **small}, "synthetic", 100.0),
        ({SYNTHETIC: False, **small}, "real", 90.0),
        ({SYNTHETIC: True, **large}, "synthetic", 50.0),
        ({SYNTHETIC: False, **large}, "real", 40.0),
    )
    assert found == {"1": 0.1, "3": 0.2}
    other = ({"workload.dataset": {"name": "mnist", "synthetic": True}}, "synthetic", 100.0)
    assert overheads(other, ({"workload.dataset": "cifar10"}, "real", 90.0)) == {}


def test_runs_with_real_and_made_up_data_have_an_overhead_where_they_are_alike() -> None:
    made_up = job_with(workload__dataset__synthetic=True)
    for cpus, rows in ((0.4, 1), (0.8, 0)):
        digests = {
            "/real": digest_of(JOB, examples_per_s=90.0),
            "/made-up": digest_of({**made_up, "site": job_with(site__nodes__worker__cpus=cpus)["site"]}),
        }
        table = io_overhead(of_runs(digests, list(digests)), digests)
        assert (len(table["rows"]) if table else 0) == rows


def test_only_a_run_that_did_not_finish_is_told_with_its_reason() -> None:
    """`steps`, in the colour of trouble, stood below every run that had made its steps."""
    known: dict[str, Any] = {"run": "a", "model": "softmax", "dataset": "mnist", "command": None, "steps": 9}
    known |= {"steps_per_s": 1.0, "accuracy": None, "seconds": 9.0}
    done = digest_of(JOB, reason="steps", **known) | {"commit": {}}
    failed = digest_of(JOB, state="failed", reason="out of memory", **known) | {"commit": {}}
    assert [each["note"] for each in every_run({"a": done, "b": failed})["rows"]] == ["", "out of memory"]
