"""Jobs and sweeps as a stranger might write them: of the schema's settings, many with values that nobody can mean.

`check` runs cases in a child process with a limit of memory and CPU time: a case that takes all memory, hangs or
crashes is a failure that is told with the case, not the end of the tests. The cases are the same in every run.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import psutil
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway import workloads
from headway.bench.plan import make_plan
from headway.errors import HeadwayError
from headway.launch.commands import needs_port, task_command
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.sites import site
from headway.spec.job import job_schema
from headway.spec.load import load_job, parse_job
from headway.spec.nodes import needs_core_speed
from headway.spec.resolve import resolve
from headway.spec.sweep import load_sweep, sweep_schema

MEMORY = 500 * 10**6  # bytes that the cases may take, beyond what was there
SECONDS = 2.0  # of CPU time, for each case
OVERALL = 500  # seconds until the child is taken for hung
HOSTILE: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63 - 1, -(2**63), 10**12, 0.5, -0.5, 1e-300, 1e300, 1e308),
    *(
        "",
        "x",
        "3",
        "1e9",
        "-1s",
        "10B",
        "5GiB",
        "1Gbit",
        "1e308d",
        "nan",
        "2020-01-01",
        "é\u202e\U0001f600",
        "x" * 5000,
    ),
    *(
        "W*9",
        "W*5000000",
        "PS-W*",
        "M-M",
        "chief",
        "mnist",
        "../..",
        "/dev/zero",
        "~nobody/x",
        "{model_dir}",
        "(?P<step>",
        "'",
    ),
    *(
        [],
        [[]],
        [None],
        [1, 2],
        [-1, 10**9],
        ["a"] * 300,
        {},
        {"name": 1},
        {"kind": "x"},
        {"count": 3},
        {"best_of": [1]},
        {"a": {"b": []}},
    ),
]
TYPICAL: dict[str, list[Any]] = {
    "model": ["softmax", "mnist_cnn", "resnet", {"name": "autoencoder", "hidden": [3]}],
    "dataset": ["mnist", "synthetic", {"name": "synthetic", "size": 50}, {"name": "image_folder", "files": "/nowhere"}],
    "command": ["true", "python train.py --job_name={job_name}", ["a", "b"]],
    "layout": ["PS-W-W", "W*", {"servers": "beside_workers"}],
    "job": [{"workload": {"command": "true"}}, {"workload": {"model": "softmax", "dataset": "synthetic"}}],
    "figure": ["steps", "examples_per_s"],
}
JOB, SWEEP = job_schema(), sweep_schema()
PATHS = [
    "cluster.worker",
    "cluster.training",
    "workload.batch_size",
    "strategy",
    "site",
    "layout",
    "seed",
    "measure.repeats",
]
hostile = st.sampled_from(HOSTILE)


def of_schema(schema: dict[str, Any], defs: dict[str, Any], name: str = "", depth: int = 0) -> st.SearchStrategy[Any]:
    """Mostly what the schema describes; now and then, anywhere in it, something else."""
    if "$ref" in schema:
        return st.deferred(lambda: of_schema(defs[schema["$ref"].rpartition("/")[2]], defs, name, depth))
    fitting: st.SearchStrategy[Any]
    if name in TYPICAL:
        fitting = st.sampled_from(TYPICAL[name])
    elif "enum" in schema or "const" in schema:
        fitting = st.sampled_from(schema.get("enum") or [schema["const"]])
    elif inner := schema.get("anyOf") or schema.get("oneOf"):
        fitting = st.one_of([of_schema(each, defs, "", depth) for each in inner])
    elif schema.get("type") in ("integer", "number"):
        low, high = (schema.get(key, schema.get(f"exclusive{key.title()}")) for key in ("minimum", "maximum"))
        near = [value for bound in (low, high) if bound is not None for value in (bound, bound + 1, bound - 1)]
        fitting = st.sampled_from([1, 2, 3, 10, *near])
    elif schema.get("type") == "boolean":
        fitting = st.booleans()
    elif schema.get("type") == "array":
        fitting = st.lists(of_schema(schema.get("items", {}), defs, "", depth + 1), max_size=3)
    elif schema.get("type") == "object" and "properties" in schema:
        parts = {key: of_schema(each, defs, key, depth + 1) for key, each in schema["properties"].items()}
        needed = {key: parts.pop(key) for key in schema.get("required", ())}
        others = st.lists(st.sampled_from(sorted(parts)), max_size=3, unique=True) if parts else st.just([])
        fitting = others.flatmap(
            lambda chosen: st.fixed_dictionaries({**needed, **{key: parts[key] for key in chosen}})
        )
    elif schema.get("type") == "object":
        keys = st.sampled_from([*PATHS, "worker", "ps", "chief", "x"])
        fitting = st.dictionaries(keys, st.one_of(hostile, st.lists(hostile, max_size=3)), max_size=3)
    else:
        fitting = hostile
    return fitting if depth == 0 else st.one_of(fitting, fitting, fitting, fitting, hostile)


overrides = st.lists(
    st.one_of(
        st.builds(lambda path, value: f"{path}={json.dumps(value)}", st.sampled_from(PATHS), hostile),
        st.sampled_from(
            [
                "=",
                "a.b=c",
                "a..b=1",
                "workload=",
                "cluster.worker=[1",
                "x",
                "cluster.worker.count.deep=1",
                "x=" + "[" * 999,
            ]
        ),
        st.text(max_size=20).filter(lambda text: "\0" not in text),
    ),
    max_size=2,
)
cases = st.one_of(
    st.tuples(st.just("job"), of_schema(JOB, JOB["$defs"]), overrides),
    st.tuples(st.just("sweep"), of_schema(SWEEP, SWEEP["$defs"]), overrides),
)


def dry_run(kind: str, path: Path, changes: list[str]) -> None:
    """Everything that `--dry-run` does with it, and what a run's folder would hold."""
    if kind == "sweep":
        plan = make_plan(load_sweep(path, changes), 2)
        to_json([trial.as_file() for trial in plan.trials])
        return
    asked = load_job(path, changes)
    resolved = resolve(asked, 2, 100.0 if needs_core_speed(asked) else None, Path.cwd())
    job = parse_job(json.loads(to_json(resolved.as_file()))["resolved"])  # as a launcher reads it again
    plan_of_site = site(job.site.kind).plan(job)
    addresses = {
        task: f"{node.address}:4000" for node in plan_of_site.nodes for task in node.tasks if needs_port(job, task)
    }
    for task in job.cluster.tasks()[:2]:
        task_command(job, task, RunFolder(Path("runs/x")), addresses, cores=[0, 1])


def try_case(folder: Path, case: tuple[str, Any, list[str]]) -> None:
    """Nothing but a HeadwayError may come of it, with a message for people, in time."""
    kind, content, changes = case
    path = folder / f"{kind}.yaml"
    path.write_text(json.dumps(content))
    (folder / "case").write_text(json.dumps(case))
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        dry_run(kind, path, changes)
    except HeadwayError as error:
        assert str(error).strip(), "no message"
        assert "instance of" not in str(error), f"names a class: {error}"
        assert len(str(error)) < 20_000, f"a message of {len(str(error))} characters"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _took_too_long(*_: object) -> None:
    raise AssertionError(f"more than {SECONDS:g} s of CPU time")


def _in_child(folder: Path, num_cases: int, seed: int) -> str:
    """What is wrong, in words; nothing where all is well."""
    os.chdir(folder)
    signal.signal(signal.SIGPROF, _took_too_long)
    for name in workloads.model_names():  # imported before it counts
        workloads.model(name)
    with_room = psutil.Process().memory_info().vms + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (with_room, with_room))

    @settings(
        max_examples=num_cases,
        derandomize=seed == 0,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def every_case(case: tuple[str, Any, list[str]]) -> None:
        try_case(folder, case)

    try:
        every_case()
    except BaseException:
        return traceback.format_exc()
    return ""


def check(num_cases: int, seed: int = 0) -> None:
    """AssertionError names the first case that fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Not forked from here: other tests may have left threads behind, whose locks a fork would inherit.
        command = [sys.executable, __file__, name, str(num_cases), str(seed)]
        status = subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
        last = (folder / "case").read_text() if (folder / "case").exists() else "none"
        assert status == 0 and (folder / "wrong").exists(), f"the child died ({status}) in the case {last}"
        wrong = (folder / "wrong").read_text()
        assert not wrong, f"{wrong}\nthe case: {last}"


if __name__ == "__main__":
    signal.alarm(OVERALL)
    place = Path(sys.argv[1])
    (place / "wrong").write_text(_in_child(place, int(sys.argv[2]), int(sys.argv[3])))
