"""Sizes that cannot be meant are refused at once, and the message names the limit."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel

from headway import workloads
from headway.bench.plan import make_plan
from headway.errors import HeadwayError, SpecError
from headway.spec.cluster import MOST_TASKS, Cluster
from headway.spec.job import Job
from headway.spec.layout import parse, place
from headway.spec.load import parse_job
from headway.spec.sweep import Sweep, load_sweep, parse_sweep

PROGRAM = {"workload": {"command": "true"}}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"layout": "W*5000000"}, ["layout", "2,049"]),
        ({"layout": "W*" + "9" * 5000}, ["layout"]),
        ({"layout": "-".join("W" * 5000)}, ["layout", "2,049"]),
        ({"site": {"kind": "emulated", "nodes": {"worker": {"count": 10**9}}}}, ["site.nodes.worker.count", "1,024"]),
        ({"cluster": {"worker": {"count": 1, "cores": 2**31}}}, ["cluster.worker.cores", "4,096"]),
        ({"cluster": {"worker": {"count": 1, "cores": [2**31]}}}, ["cluster.worker.cores", "4,096"]),
        ({"cluster": {"worker": 10**6}}, ["cluster.worker.count", "1,024"]),
        ({"site": {"kind": "emulated", "nodes": {"ps": {"memory": "10B"}}}}, ["site.nodes.ps.memory", "16,777,216"]),
        ({"site": {"kind": "emulated", "nodes": {"ps": {"memory": 1e300}}}}, ["site.nodes.ps.memory", "64MB or 2GiB"]),
        ({"site": {"kind": "emulated", "nodes": {"ps": {"latency": -0.1}}}}, ["site.nodes.ps.latency", "0"]),
        ({"site": {"ports": [5000, 4000]}}, ["site.ports", "[4000, 5000]"]),
        ({"site": {"ports": [1, 2]}}, ["site.ports", "1,024"]),
        ({"restart": {"delay": -1}}, ["restart.delay", "0"]),
        ({"restart": {"attempts": 10**9}}, ["restart.attempts", "1,000"]),
        ({"limits": {"stop": "1e9d"}}, ["limits.stop", "3.1536e+07"]),
        ({"limits": {"stop": float("inf")}}, ["limits.stop", "duration"]),
        ({"limits": {"stop": float("nan")}}, ["limits.stop", "duration"]),
        ({"monitor": {"hertz": 1e-300}}, ["monitor.hertz", "0.01"]),
    ],
)
def test_a_size_that_cannot_be_meant_is_refused_at_once_with_its_limit(
    settings: dict[str, Any], wanted: list[str]
) -> None:
    began = time.process_time()
    with pytest.raises(SpecError) as raised:
        parse_job({**PROGRAM, **settings})
    for words in wanted:
        assert words in str(raised.value)
    assert time.process_time() - began < 1


def test_a_grid_of_a_million_trials_is_refused_before_it_is_made(tmp_path: Path) -> None:
    values = list(range(1, 1000))
    path = tmp_path / "sweep.yaml"
    vary = {"seed": values, "restart.attempts": values}
    path.write_text(json.dumps({"job": PROGRAM, "vary": vary, "measure": {"steps": None}}))
    began = time.process_time()
    with pytest.raises(SpecError, match=r"999 \(seed\) x 999 \(restart.attempts\) = 998,001 trials; at most 1,000"):
        make_plan(load_sweep(path), 2)
    assert time.process_time() - began < 1


def test_the_largest_cluster_has_a_layout() -> None:
    """As many tasks as the roles allow in all, and not one more."""
    largest = Cluster.model_validate({"chief": 1, "worker": MOST_TASKS, "ps": MOST_TASKS})
    assert len(place(f"M-W*{MOST_TASKS}-P*{MOST_TASKS}", largest)) == 1 + 2 * MOST_TASKS
    with pytest.raises(HeadwayError, match="more than 2,049 tasks"):
        parse(f"M-W*{MOST_TASKS}-P*{MOST_TASKS + 1}")


def test_of_a_search_it_is_said_what_counts(tmp_path: Path) -> None:
    workload = {"model": "softmax", "dataset": "synthetic"}
    job = {"workload": workload, "strategy": "ps-async", "cluster": {"worker": 1, "ps": 1}}
    vary = {"seed": list(range(1, 102)), "cluster.ps": {"best_of": list(range(1, 11))}}
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps({"job": job, "vary": vary}))
    said = r"= 1,010 trials \(every value of cluster.ps counts: a search may have to try them all\); at most 1,000"
    with pytest.raises(SpecError, match=said):
        make_plan(load_sweep(path), 2)


def test_a_job_of_a_sweep_that_never_ends_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("job: /dev/zero\nvary: {seed: [1, 2]}\n")
    with pytest.raises(SpecError, match="too large for a job file"):
        load_sweep(path)


@pytest.mark.parametrize(
    ("vary", "wanted"),
    [
        ({"cluster.worker": 3}, "vary.cluster.worker: 3: give a list of values, such as [1, 2], or {best_of: [1, 2]}"),
        ({"cluster.worker": []}, "vary.cluster.worker: 0 values; at least 1"),
        ({"cluster.worker": {"best": [1]}}, "vary.cluster.worker.best: unknown setting; did you mean 'best_of'?"),
        ({"cluster.worker": {"best_of": 3}}, "vary.cluster.worker.best_of: 3 is not allowed; give a list"),
        (3, "vary: 3 is not allowed; give a mapping"),
    ],
)
def test_a_mistake_in_what_is_varied_names_the_setting_and_no_class_of_ours(vary: Any, wanted: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_sweep({"job": {}, "vary": vary})
    assert wanted in str(raised.value)
    assert "BestOf" not in str(raised.value)


def test_no_training_task_is_refused_on_the_command_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headway", "launch", "--worker", "0", "--runs", str(tmp_path), "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "allowed: 1 or more" in done.stderr) == (HeadwayError.exit_code + 1, True)


# --- the whole group -------------------------------------------------------------------------------------------------
LOW, HIGH = (annotated_types.Gt, annotated_types.Ge), (annotated_types.Lt, annotated_types.Le)


def unlimited(annotation: Any, given: Sequence[Any], path: str, seen: set[type]) -> Iterator[str]:
    """Every number below an annotation that has no limit on one of its sides."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen.add(annotation)
            for name, field in annotation.model_fields.items():
                yield from unlimited(field.annotation, field.metadata, f"{path}.{name}", seen)
    elif annotation in (int, float):
        limits = [limit for each in given for limit in getattr(each, "metadata", [each])]
        if not any(isinstance(each, LOW) for each in limits) or not any(isinstance(each, HIGH) for each in limits):
            yield path
    elif get_origin(annotation) is Annotated:
        yield from unlimited(annotation.__origin__, [*given, *annotation.__metadata__], path, seen)
    else:
        for inner in get_args(annotation):
            yield from unlimited(inner, (), path, seen)


@pytest.mark.parametrize(
    "root",
    [
        Job,
        Sweep,
        *(workloads.model(name).Settings for name in workloads.model_names()),
        *(workloads.dataset(name).Settings for name in workloads.dataset_names()),
    ],
)
def test_every_number_of_a_job_and_a_sweep_has_a_limit_on_both_sides(root: type[BaseModel]) -> None:
    assert list(unlimited(root, (), root.__module__, set())) == []
