"""What may stand side by side, and what is refused: whoever chose a value, and whatever a sweep varies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_folder import change_environment, make_run, record, sweep_file

from headway.bench.compare import Comparison, compare_all, open_side
from headway.bench.conduct import prepare
from headway.bench.facts import chosen, commits_of, differences, run_facts
from headway.bench.folder import SweepFolder
from headway.errors import SpecError
from headway.launch.prepare import environment, write_job
from headway.record.files import to_json
from headway.record.folder import FORMAT, RunFolder
from headway.record.run import Run
from headway.spec.load import parse_job
from headway.spec.resolve import resolve
from headway.spec.sweep import load_sweep

EMULATED: dict[str, Any] = {"strategy": "ps-sync", "cluster": {"training": 2, "ps": 1}, "site": {"kind": "emulated"}}


def asked(root: Path, cores: int = 4, memory: int = 2**34, **settings: Any) -> Run:
    """A run as it is before anything has started."""
    job = parse_job({"workload": {"model": "softmax", "dataset": "synthetic"}, **settings})
    folder = RunFolder.create(root, "asked")
    write_job(folder, resolve(job, cores))
    here = {**environment(), "cores": cores, "memory": memory}
    folder.environment_file.write_text(to_json({"format": FORMAT, **here}))
    folder.write_facts({"run": folder.name, "state": "created", "created": 0.0, "launches": []})
    return Run(folder)


def differing(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    return differences(run_facts(a), run_facts(b), chosen(a) & chosen(b))


def nodes(**kinds: Any) -> dict[str, Any]:
    return {"site": {"kind": "emulated", "nodes": kinds}}


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        ({}, {"workload": {"model": "softmax", "dataset": "synthetic", "batch_size": 50}}, "workload.batch_size"),
        (EMULATED, {**EMULATED, "layout": "PM-W"}, "layout"),
        (EMULATED, {**EMULATED, "layout": {"servers": "beside_workers"}}, "layout"),
        (EMULATED, {**EMULATED, "strategy": {"kind": "ps-sync", "aggregate": 1}}, "strategy.aggregate"),
        (EMULATED, {**EMULATED, **nodes(worker={"cpus": 0.4})}, "site.nodes"),
        (
            {**EMULATED, **nodes(ps={"cpus": 1, "memory": "1 GiB"})},
            {**EMULATED, **nodes(ps={"cpus": 1, "memory": "1 GiB", "credits": {"per_hour": 4}})},
            "site.nodes.ps.credits",
        ),
        ({}, {"checkpoint": {"seconds": 1}}, "checkpoint.seconds"),
    ],
)
def test_what_one_was_asked_and_for_the_other_was_chosen_is_a_difference(
    tmp_path: Path, one: dict[str, Any], other: dict[str, Any], path: str
) -> None:
    a, b = asked(tmp_path, **one), asked(tmp_path, **other)
    assert path in differing(a, b)
    assert path in differing(b, a)
    assert differing(a, asked(tmp_path, **one)) == {}


def test_a_default_beside_another_value_is_refused_by_name(tmp_path: Path) -> None:
    given: dict[str, Any] = {"workload": {"model": "softmax", "dataset": "synthetic", "batch_size": 50}}
    a, b = (open_side(tmp_path, str(run.path)) for run in (asked(tmp_path), asked(tmp_path, **given)))
    with pytest.raises(SpecError, match=r"workload\.batch_size is 100 in one and 50 in the other"):
        compare_all(a, b)


def test_what_was_chosen_for_both_follows_from_the_rest(tmp_path: Path) -> None:
    """Threads from cores: only the cores are named."""
    assert list(differing(asked(tmp_path, cores=4), asked(tmp_path, cores=8))) == ["machine.cores"]


def test_a_machine_has_the_same_memory_after_another_start(tmp_path: Path) -> None:
    assert differing(asked(tmp_path, memory=2**34), asked(tmp_path, memory=2**34 - 40960)) == {}
    assert "machine.memory" in differing(asked(tmp_path, memory=2**34), asked(tmp_path, memory=2**35))


def test_a_setting_that_an_older_version_did_not_have_is_no_difference(tmp_path: Path) -> None:
    a, b = (run_facts(asked(tmp_path, **EMULATED)) for _ in range(2))
    for gone in ("site.nodes", "site.fabric", "strategy.exchange"):
        del a[gone]
    assert differences(a, b) == {}


def test_nothing_set_below_a_mapping_is_as_no_mapping() -> None:
    assert differences({"site.nodes": {}}, {"site.nodes.worker.cpus": None, "site.nodes.worker.disk.read": None}) == {}
    found = differences({"site.nodes": {}}, {"site.nodes.worker.cpus": 0.4, "site.nodes.worker.rate": None})
    assert found == {"site.nodes": (None, {"worker.cpus": 0.4})}


def compared(root: Path, sweeps: list[SweepFolder], *across: str, figure: str = "examples_per_s") -> Comparison:
    a, b = (open_side(root, sweep.name) for sweep in sweeps)
    return compare_all(a, b, across, figure)


def test_two_sweeps_of_one_trial_are_a_pair_but_their_settings_must_be_alike(tmp_path: Path) -> None:
    sweeps = []
    for size in (10, 20):
        sweep = prepare(load_sweep(sweep_file(tmp_path, vary={"workload.batch_size": [size]})), tmp_path)
        record(sweep, f"batch-size-{size}", 0.1)
        sweeps.append(sweep)
    with pytest.raises(SpecError, match=r"batch_size is 10 in one and 20 .* --across workload\.batch_size"):
        compared(tmp_path, sweeps)
    assert compared(tmp_path, sweeps, "workload.batch_size").differing["workload.batch_size"] == (10, 20)


def test_when_a_run_ends_is_of_no_weight_for_rates_only(tmp_path: Path) -> None:
    sweeps = []
    for steps in (50, 90):
        changes = {"set": {"workload.stop.steps": steps}, "measure": {"steps": None, "repeats": 3}}
        sweep = prepare(load_sweep(sweep_file(tmp_path, **changes)), tmp_path)
        record(sweep, "batch-size-10", 0.1)
        sweeps.append(sweep)
    assert compared(tmp_path, sweeps).effects[0].effect is not None
    with pytest.raises(SpecError, match=r"workload\.stop\.steps is 50 in one and 90"):
        compared(tmp_path, sweeps, figure="training_seconds")
    assert compared(tmp_path, sweeps, "workload.stop", figure="training_seconds").effects[0].effect is not None


def test_a_run_beside_a_sweep_says_so_on_whichever_side_it_is(tmp_path: Path) -> None:
    sweep = prepare(load_sweep(sweep_file(tmp_path, vary={"workload.batch_size": [10]})), tmp_path)
    for repeat in range(3):
        record(sweep, "batch-size-10", 0.1 + 0.001 * repeat, repeat)
    run = make_run(sweep, "batch-size-10", 0.1)
    one, other = open_side(tmp_path, sweep.name), open_side(tmp_path, str(run.path))
    assert any("B is one run" in line for line in compare_all(one, other).lines())
    found = compare_all(other, one)
    assert found.as_value()["single_runs"] == ["A"]
    assert any("A is one run" in line for line in found.lines())
    assert "of only 3 runs" in found.effects[0].in_words


# --- commits --------------------------------------------------------------------------------------------------------
def committed(sweep: SweepFolder, *hashes: str, changed: bool = False) -> None:
    for folder, commit in zip(RunFolder.all(sweep.runs), hashes, strict=True):
        facts = folder.read(folder.environment_file)
        facts["commit"] = {"hash": commit * 40, "has_changes": changed}
        folder.environment_file.write_text(to_json(facts))


def test_every_commit_of_the_runs_that_count_is_named(tmp_path: Path) -> None:
    sweeps = [prepare(load_sweep(sweep_file(tmp_path)), tmp_path) for _ in range(2)]
    for sweep in sweeps:
        for repeat in range(2):
            record(sweep, "batch-size-10", 0.1, repeat)
        committed(sweep, "a", "a")
    assert "commit" not in compared(tmp_path, sweeps).differing
    committed(sweeps[1], "a", "b", changed=True)
    found = compared(tmp_path, sweeps)
    assert found.differing["commit"] == ("aaaaaaa", "aaaaaaa with changes, bbbbbbb with changes")
    assert any("bbbbbbb with changes" in line for line in found.lines())
    for sweep in sweeps:  # alike on both sides, and still two
        committed(sweep, "a", "b")
    assert "commit" in compared(tmp_path, sweeps).differing


def test_a_run_outside_of_any_checkout_has_no_known_commit(tmp_path: Path) -> None:
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    record(sweep, "batch-size-10", 0.1)
    change_environment(sweep, commit=None)
    assert commits_of(Run(folder) for folder in RunFolder.all(sweep.runs)) == ("not known",)
