"""What a sweep's folder says: after a crash, after a budget, from another version; and two of them side by side."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from test_record import row, write_rows

from headway.bench.compare import compare_all, open_side
from headway.bench.conduct import (
    check_parallel,
    check_same_machine,
    open_searches,
    other_commit,
    plan_of,
    prepare,
)
from headway.bench.folder import SweepFolder, samples
from headway.bench.judge import Machine, evidence, judged
from headway.bench.schedule import expected_seconds, following, need, progress_of
from headway.bench.table import rows
from headway.errors import Busy, FormatError, NotFound, SpecError
from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.record.run import Run
from headway.record.seal import result, seal
from headway.spec import Task
from headway.spec.load import parse_job
from headway.spec.sweep import load_sweep
from headway.spec.words import short_names, value_in_words

CHIEF = Task("chief", 0)


def sweep_file(folder: Path, **changes: Any) -> Path:
    settings = {
        "job": {"workload": {"model": "softmax", "dataset": "synthetic"}},
        "vary": {"workload.batch_size": [10, 20]},
        "measure": {"repeats": 3, "steps": 10},
        **changes,
    }
    path = folder / "small.yaml"
    path.write_text(json.dumps(settings))
    return path


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    return prepare(load_sweep(sweep_file(tmp_path)), tmp_path)


def make_run(sweep: SweepFolder, key: str, seconds: float, **fields: Any) -> RunFolder:
    """A sealed run whose chief made 40 steps of that length, as the trial asks for them."""
    trial = sweep.trial(key)
    folder = create_run(parse_job(trial.job), sweep.runs)
    size = trial.job["workload"].get("batch_size", 100)
    given = {"seconds": seconds, "examples": size, **fields}
    made = [row(100 + seconds * number, number, **given) for number in range(1, 41)]
    write_rows(folder, CHIEF, made)
    folder.events("launcher").write_text("")
    facts = folder.facts()
    folder.write_facts({**facts, "state": "finished", "launches": [{"started": 98.0, "ended": 300.0}]})
    seal(folder)
    return folder


def record(
    sweep: SweepFolder, key: str, seconds: float, repeat: int = 0, steps: dict[str, Any] | None = None, **fields: Any
) -> None:
    """`steps`: fields of the run's rows; others are of the event that it ended."""
    run = make_run(sweep, key, seconds, **(steps or {}))
    events = sweep.writer()
    events.write("started", trial=key, repeat=repeat, run=run.name)
    size = sweep.trial(key).job["workload"].get("batch_size", 100)
    ended = {"state": "finished", "reason": "measured", "seconds": 8.0, "value": size / seconds, "marks": [], **fields}
    events.write("ended", trial=key, repeat=repeat, run=run.name, **ended)
    events.close()


def test_a_new_sweep_has_its_plan_and_nothing_done(sweep: SweepFolder, tmp_path: Path) -> None:
    assert [(trial.key, trial.state) for trial in sweep.trials()] == [
        ("batch-size-10", "planned"),
        ("batch-size-20", "planned"),
    ]
    assert not sweep.is_finished
    assert sweep.state == "interrupted"  # nobody runs it
    assert sweep.path.parent == tmp_path / "sweeps"
    assert SweepFolder.find(tmp_path, "last").path == sweep.path
    assert SweepFolder.find(tmp_path, "small").path == sweep.path
    assert [trial.key for trial in plan_of(sweep).trials] == ["batch-size-10", "batch-size-20"]
    with pytest.raises(NotFound, match="no sweep 'other'"):
        SweepFolder.find(tmp_path, "other")


def test_figures_come_from_the_runs_that_count(sweep: SweepFolder) -> None:
    for repeat, (seconds, marks) in enumerate([(0.1, []), (0.5, ["loaded"]), (0.1, [])]):
        record(sweep, "batch-size-10", seconds, repeat, marks=marks)
    trial = sweep.trial("batch-size-10")
    assert samples(trial) == [pytest.approx(100), pytest.approx(100)]
    assert [run.counts for run in trial.runs] == [True, False, True]
    (entry, _) = rows(sweep)
    assert entry["value"] == pytest.approx(100)
    assert (entry["runs"], entry["counted"], entry["missing"], entry["marks"]) == (3, 2, 1, {"loaded": 1})


def test_a_run_that_was_under_way_when_the_sweep_was_killed_is_none(sweep: SweepFolder) -> None:
    events = sweep.writer()
    events.write("begun")
    events.write("started", trial="batch-size-10", repeat=0, run="gone")
    events.close()
    trial = sweep.trial("batch-size-10")
    assert (trial.state, trial.runs) == ("planned", [])
    lock = sweep.hold()
    assert sweep.trial("batch-size-10").state == "running"
    with pytest.raises(Busy, match="is being run already"):
        sweep.hold()
    os.close(lock)


def test_a_torn_line_is_dropped_and_damage_is_an_error(sweep: SweepFolder) -> None:
    record(sweep, "batch-size-10", 0.1)
    whole = sweep.trials_file.read_text()
    sweep.trials_file.write_text(whole + '{"t": 1, "kind": "star')
    assert sweep.trial("batch-size-10").state == "done"
    sweep.trials_file.write_text("rubbish\n" + whole)
    with pytest.raises(FormatError, match="line 1"):
        sweep.trials()


def test_a_newer_format_is_refused(sweep: SweepFolder) -> None:
    sweep.file.write_text(to_json({**sweep.facts, "format": 2}))
    with pytest.raises(FormatError, match="newer Headway"):
        SweepFolder(sweep.path).trials()


def test_what_a_budget_left_out_is_open_again_when_the_sweep_goes_on(sweep: SweepFolder) -> None:
    events = sweep.writer()
    events.write("begun")
    events.write("left_out", trial="batch-size-20", reason="budget 5 s: it was not tried")
    assert (sweep.trial("batch-size-20").state, sweep.trial("batch-size-20").reason) == (
        "left_out",
        "budget 5 s: it was not tried",
    )
    assert [trial.state for trial in sweep.trials(goes_on=True)] == ["planned", "planned"]
    events.write("begun")
    events.close()
    assert sweep.trial("batch-size-20").state == "planned"


def test_failures_are_kept_with_their_reason(sweep: SweepFolder) -> None:
    events = sweep.writer()
    for repeat in range(2):
        events.write("ended", trial="batch-size-20", repeat=repeat, run="", state="failed", reason="no such core")
    events.close()
    trial = sweep.trial("batch-size-20")
    assert (trial.state, trial.reason, samples(trial)) == ("failed", "no such core", [])
    assert rows(sweep)[1]["failed"] == 2


def test_what_failed_is_tried_again_when_the_sweep_goes_on(sweep: SweepFolder) -> None:
    """The disk was full, and every trial failed twice; after it was mended, nothing was open any more."""
    events = sweep.writer()
    events.write("begun", budget=None)
    for repeat in range(2):
        events.write("ended", trial="batch-size-10", repeat=repeat, run="", state="failed", reason="no space left")
    events.flush()
    trial = sweep.trial("batch-size-10")
    assert (trial.state, progress_of(trial).failures, need(progress_of(trial), sweep.spec.measure).runs) == (
        "failed",
        2,
        0,
    )
    again = next(each for each in sweep.trials(goes_on=True) if each.key == "batch-size-10")
    assert (progress_of(again).failures, need(progress_of(again), sweep.spec.measure).runs) == (0, 3)
    events.write("begun", budget=None)
    events.write("ended", trial="batch-size-10", repeat=2, run="", state="failed", reason="no space left")
    events.close()
    assert progress_of(sweep.trial("batch-size-10")).failures == 1
    assert len(sweep.trial("batch-size-10").runs) == 3  # all of them are told


def test_a_search_in_which_nothing_could_be_tried_is_open_again_and_one_that_chose_is_not(tmp_path: Path) -> None:
    data = {"model": "softmax", "dataset": "synthetic"}
    job = {"workload": data, "strategy": "ps-async", "cluster": {"training": 1, "ps": 1}}
    changes: dict[str, Any] = {"job": job, "vary": {"cluster.ps": {"best_of": [1, 2]}}}
    sweep = prepare(load_sweep(sweep_file(tmp_path, **changes)), tmp_path)
    (group,) = plan_of(sweep).groups
    events = sweep.writer()
    events.write("begun", budget=None)
    for candidate in group.candidates:
        entry = candidate.as_file()
        events.write("planned", trial=entry.pop("key"), **entry)
        for repeat in range(2):
            events.write("ended", trial=candidate.key, repeat=repeat, run="", state="failed", reason="disk full")
    nothing: dict[str, Any] = {"path": "cluster.ps", "tried": [], "skipped": [], "rivals": [], "may_lose": None}
    events.write("chosen", group=group.key, value=None, best=None, **nothing)
    assert open_searches(sweep) == []
    events.write("begun", budget=None)
    assert [each.key for each in open_searches(sweep)] == [group.key]
    assert {progress_of(trial).failures for trial in sweep.trials()} == {0}
    events.write("chosen", group=group.key, value=1, best=group.candidates[0].key, **nothing)
    events.write("begun", budget=None)
    events.close()
    assert open_searches(sweep) == []
    assert {progress_of(trial).failures for trial in sweep.trials()} == {2}  # nobody would look at them


def test_a_run_that_was_stopped_for_a_budget_is_expected_to_take_longer_in_the_next(sweep: SweepFolder) -> None:
    events = sweep.writer()
    events.write("begun", budget=100.0)
    ended: dict[str, Any] = {"state": "interrupted", "reason": "its time was over", "is_cut": True, "seconds": 130.0}
    events.write("ended", trial="batch-size-10", repeat=0, run="a", **ended)
    events.write("begun", budget=100.0)
    events.close()
    cut, other = (progress_of(trial) for trial in sweep.trials())
    assert (cut.made, cut.cut) == (0, 130.0)
    assert expected_seconds(cut, [cut, other]) > 130.0
    assert following([cut, other], sweep.spec.measure, 1, 100.0) == "batch-size-20"


def test_a_run_without_measured_steps_counts_if_its_figure_is_there(sweep: SweepFolder) -> None:
    """A program that tells of nothing has its seconds; one that tells of each epoch has all of them as warm-up."""
    run = Run(make_run(sweep, "batch-size-10", 0.1, warmup=True))
    with Machine() as machine:
        found = judged(run, "seconds", machine)
        assert found["value"] == pytest.approx(202.0)
        assert (found["marks"], found["load"]) == (["short"], None)
        nothing = judged(run, "examples_per_s", machine)
    assert (nothing["state"], nothing["reason"]) == ("failed", "it gave no examples_per_s: nothing was measured")


def test_a_sweep_of_own_code_finds_it_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    job = {"workload": {"command": "python train.py"}}
    folder = prepare(
        load_sweep(sweep_file(here, job=job, vary={"cluster.worker": [1, 2]}, measure={"steps": None})), tmp_path
    )
    assert {trial.job["workload"]["directory"] for trial in folder.trials()} == {str(here)}
    (here / "mine.py").write_text("def build(features, settings, data, run):\n    raise NotImplementedError\n")
    own = {"workload": {"model": "mine:build", "dataset": "synthetic"}}
    folder = prepare(load_sweep(sweep_file(here, job=own)), tmp_path)
    assert {trial.job["workload"]["code"] for trial in folder.trials()} == {str(here)}


def test_a_sweep_goes_on_only_on_a_machine_like_the_one_it_was_begun_on(sweep: SweepFolder) -> None:
    check_same_machine(sweep)
    facts = json.loads(sweep.file.read_text())
    facts["environment"]["cores"] += 1
    sweep.file.write_text(json.dumps(facts))
    with pytest.raises(SpecError, match="was begun with cores"):
        check_same_machine(SweepFolder(sweep.path))


def test_a_sweep_that_goes_on_at_another_commit_says_so(sweep: SweepFolder) -> None:
    assert other_commit(sweep) is None
    facts = json.loads(sweep.file.read_text())
    facts["environment"]["commit"] = {"hash": "f" * 40, "has_changes": True}
    sweep.file.write_text(json.dumps(facts))
    assert "begun at commit fffffff with changes" in str(other_commit(SweepFolder(sweep.path)))


def test_a_figure_that_is_no_number_any_more_fails_the_run_and_not_the_sweep(sweep: SweepFolder) -> None:
    run = Run(make_run(sweep, "batch-size-10", 0.1, loss=math.nan))
    assert judged(run, "train_loss", Machine()) == {
        "state": "failed",
        "reason": "its train_loss is nan: no number. Has the training diverged?",
    }
    assert judged(run, "examples_per_s", Machine())["value"] == pytest.approx(100)
    record(sweep, "batch-size-20", 0.1, value=math.nan)  # by a version that knew nothing of this
    assert progress_of(sweep.trial("batch-size-20")).values == ()


def test_a_run_with_several_steps_in_a_call_is_not_short(tmp_path: Path) -> None:
    path = sweep_file(tmp_path, measure={"repeats": 3, "steps": 100}, set={"workload.steps_per_call": 5})
    sweep = prepare(load_sweep(path), tmp_path)
    run = Run(make_run(sweep, "batch-size-10", 0.1, num_steps=5, accepted=5, examples=50))
    assert evidence(run, result(run), None).made == {"chief/0": 200}
    assert "short" not in judged(run, "examples_per_s", Machine())["marks"]


def test_a_sweep_goes_on_with_as_many_trials_at_once_as_it_was_begun_with(tmp_path: Path) -> None:
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    check_parallel(sweep, None)
    check_parallel(sweep, 1)
    with pytest.raises(SpecError, match="was begun with 1"):
        check_parallel(sweep, 2)


# --- side by side ---------------------------------------------------------------------------------------------------
def test_two_sweeps_are_compared_trial_by_trial(tmp_path: Path) -> None:
    names = []
    for seconds in (0.1, 0.08):
        sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
        names.append(sweep.name)
        for repeat, noise in enumerate((0.99, 1.01)):
            record(sweep, "batch-size-10", seconds * noise, repeat)
    found = compare_all(open_side(tmp_path, names[0]), open_side(tmp_path, names[1]))
    (effect,) = found.effects
    assert effect.effect is not None
    assert effect.effect.value == pytest.approx(1.25)
    assert effect.effect.low > 1.2
    assert "25.0 % more" in effect.in_words


def change_environment(sweep: SweepFolder, **changes: Any) -> None:
    for folder in RunFolder.all(sweep.runs):
        facts = folder.read(folder.environment_file)
        folder.environment_file.write_text(to_json({**facts, **changes}))


def test_unlike_machines_are_refused_unless_they_are_meant(tmp_path: Path) -> None:
    sweeps = [prepare(load_sweep(sweep_file(tmp_path)), tmp_path) for _ in range(2)]
    for sweep in sweeps:
        record(sweep, "batch-size-10", 0.1)
    for changes, fact in ({"cores": 999}, "machine.cores"), ({"cpu": "Another CPU"}, "machine.cpu"):
        change_environment(sweeps[1], **changes)
        a, b = (open_side(tmp_path, sweep.name) for sweep in sweeps)
        with pytest.raises(SpecError, match=f"not alike: {fact} is .* --across machine"):
            compare_all(a, b)
        assert fact in compare_all(a, b, ("machine",)).differing


def test_unlike_models_are_refused_by_name_unless_they_are_meant(tmp_path: Path) -> None:
    sides = []
    for model in ("softmax", "mnist_cnn"):
        job = {"workload": {"model": model, "dataset": "synthetic"}}
        sweep = prepare(load_sweep(sweep_file(tmp_path, job=job)), tmp_path)
        record(sweep, "batch-size-10", 0.1)
        sides.append(open_side(tmp_path, sweep.name))
    a, b = sides
    with pytest.raises(SpecError, match=r"workload\.model.* --across workload\.model"):
        compare_all(a, b)
    assert compare_all(a, b, ("workload.model",)).effects[0].effect is not None


def test_settings_that_vary_in_the_sweep_are_no_difference_and_missing_trials_are_named(tmp_path: Path) -> None:
    sweeps = [prepare(load_sweep(sweep_file(tmp_path)), tmp_path) for _ in range(2)]
    record(sweeps[0], "batch-size-10", 0.1)
    record(sweeps[1], "batch-size-10", 0.1)
    record(sweeps[1], "batch-size-20", 0.1)
    a, b = (open_side(tmp_path, sweep.name) for sweep in sweeps)
    found = compare_all(a, b)
    assert [effect.name for effect in found.effects] == ["batch_size 10"]
    assert found.only == ("batch_size 20",)


def test_two_runs_are_compared_by_parts_of_their_time(tmp_path: Path) -> None:
    sweep = prepare(load_sweep(sweep_file(tmp_path)), tmp_path)
    runs = [make_run(sweep, "batch-size-10", seconds) for seconds in (0.1, 0.05)]
    a, b = (open_side(tmp_path, str(run.path)) for run in runs)
    found = compare_all(a, b)
    (effect,) = found.effects
    assert effect.effect is not None
    assert effect.effect.value == pytest.approx(2.0, rel=0.1)
    assert found.single == ("A", "B")
    assert any("one run each" in line for line in found.lines())
    assert not found.doubts
    runs[1].write_facts({**runs[1].facts(), "state": "failed", "reason": "it ran out of memory"})
    doubtful = compare_all(a, open_side(tmp_path, str(runs[1].path)))
    assert doubtful.doubts == ("B: its run did not come to its end (failed)",)
    with pytest.raises(NotFound, match="no sweep and no run"):
        open_side(tmp_path, "neither")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "3"),
        ({"name": "resnet", "depth": 20}, "resnet (depth 20)"),
        ({"kind": "ps-sync"}, "ps-sync"),
        ({"per_hour": 4, "start": 0.07}, "(per_hour 4, start 0.07)"),
        ({"count": 2, "devices": 2}, "2 (devices 2)"),
    ],
)
def test_a_value_is_said_in_words(value: Any, words: str) -> None:
    assert value_in_words(value) == words


def test_settings_of_one_name_are_told_apart_by_whose_they_are() -> None:
    paths = ["site.nodes.ps.cpus", "site.nodes.chief.cpus", "workload.batch_size", "strategy"]
    assert list(short_names(paths).values()) == ["ps cpus", "chief cpus", "batch_size", "strategy"]
