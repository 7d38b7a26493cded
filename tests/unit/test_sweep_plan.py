"""What a sweep's trials are: grids, one setting at a time, baselines, searches, quotas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.bench.plan import Plan, make_plan, measured
from headway.errors import NotFound, SpecError
from headway.metrics.factors import Measured, effects
from headway.spec.sweep import SET_BY_MEASURING, LoadedSweep, load_sweep

JOB: dict[str, Any] = {
    "workload": {"model": "softmax", "dataset": "mnist", "batch_size": 50, "evaluate": {"every": 10}},
    "strategy": "ps-async",
    "cluster": {"training": 2, "ps": 1},
}


def load(folder: Path, *overrides: str, full: bool = False, **settings: Any) -> LoadedSweep:
    path = folder / "my_sweep.yaml"
    path.write_text(json.dumps({"job": JOB, **settings}))
    return load_sweep(path, overrides, full)


def plan(folder: Path, **settings: Any) -> Plan:
    return make_plan(load(folder, **settings), num_cores=4)


def keys(found: Plan) -> list[str]:
    return [trial.key for trial in found.trials]


def test_a_grid_has_every_combination(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"cluster.training": [1, 2, 3], "workload.batch_size": [50, 100]})
    assert [(trial.tasks, trial.job["workload"]["batch_size"]) for trial in found.trials] == [
        (tasks, size) for tasks in (1, 2, 3) for size in (50, 100)
    ]
    assert keys(found)[0] == "training-1-batch-size-50"
    assert found.trials[0].settings == {"cluster.training": 1, "workload.batch_size": 50}


def test_one_at_a_time_leaves_everything_else_as_in_the_job(tmp_path: Path) -> None:
    found = plan(tmp_path, one_at_a_time={"cluster.training": [1, 3], "workload.batch_size": [25]})
    asked = [(trial.tasks, trial.job["workload"]["batch_size"]) for trial in found.trials]
    assert asked == [(2, 50), (1, 50), (3, 50), (2, 25)]  # first the job as it is, which the others are compared with
    assert [(each.settings["cluster.training"], each.settings["workload.batch_size"]) for each in found.trials] == asked


def test_every_factor_that_is_varied_alone_has_an_effect(tmp_path: Path) -> None:
    """The job's own point was filed under the first factor only."""
    found = plan(
        tmp_path,
        one_at_a_time={"cluster.training": [1, 2], "workload.batch_size": [50, 100], "strategy.exchange": ["in_turn"]},
    )
    trials = [
        Measured(each.settings, each.tasks, False, "synthetic", ({"examples_per_s": 100.0 + number},))
        for number, each in enumerate(found.trials)
    ]
    assert len(trials) == 4
    assert [dict(each.when) for each in effects(trials, "examples_per_s")] == [
        {"cluster.training": 1},
        {"workload.batch_size": 100},
        {"strategy.exchange": "in_turn"},
    ]


def test_beside_a_grid_the_job_as_it_is_is_one_of_its_trials(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"cluster.training": [1, 2]}, one_at_a_time={"workload.batch_size": [25]})
    assert keys(found) == ["training-1", "training-2", "batch-size-25"]
    assert [each.settings for each in found.trials] == [
        {"workload.batch_size": 50, "cluster.training": 1},
        {"workload.batch_size": 50, "cluster.training": 2},
        {"workload.batch_size": 25, "cluster.training": 2},
    ]


@pytest.mark.parametrize(
    ("job", "alone", "path", "value"),
    [
        ({"strategy": {"kind": "ps-async", "exchange": "in_turn"}}, {"strategy": ["ps-sync"]}, "exchange", "in_turn"),
        ({"strategy": {"kind": "ps-sync"}}, {"strategy.aggregate": [1]}, "aggregate", None),
    ],
)
def test_what_is_varied_alone_changes_no_other_trial(
    tmp_path: Path, job: dict[str, Any], alone: dict[str, Any], path: str, value: Any
) -> None:
    """The job's own value was put into all of them: as a bare name, or with a default that follows from others."""
    others = {"vary": {"cluster.training": [1, 2, 4]}, "also": [{"cluster.training": 3}]}
    found = plan(tmp_path, job={**JOB, **job}, one_at_a_time={**alone, "workload.batch_size": [25]}, **others)
    assert not any(trial.left_out for trial in found.trials)
    left_alone = [
        trial
        for trial in found.trials
        if not set(trial.settings) & {"strategy"} or trial.settings.get("strategy") != "ps-sync"
    ]
    same = [trial.job["strategy"].get(path) for trial in left_alone if trial.settings.get("strategy.aggregate") != 1]
    assert len(same) == 5  # three sizes, a further one, and the other batch
    assert set(same) == {value}
    sizes = [Measured(each.settings, each.tasks, False, "real", ({"examples_per_s": 9.0},)) for each in found.trials]
    assert {"cluster.training": 3} in [dict(each.when) for each in effects(sizes, "examples_per_s")]


def test_a_baseline_is_not_named_after_what_it_does_not_have(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"cluster.training": [4]}, baseline={"strategy": "single"})
    assert [(each.key, each.tasks) for each in found.trials] == [("single", 1), ("training-4", 4)]


@pytest.mark.parametrize(
    "given",
    [
        {"vary": {"checkpoint.seconds": [5, 60]}},
        {"vary": {"seed": [1]}, "one_at_a_time": {"workload.evaluate.every": [10, 50]}},
        {"also": [{"workload.stop.steps": 5}]},
        {"vary": {"seed": [1]}, "set": {"export": True}},
        {"vary": {"seed": [1]}, "baseline": {"checkpoint": {"seconds": 5}}},
    ],
)
def test_what_measuring_sets_anyway_cannot_be_varied(tmp_path: Path, given: dict[str, Any]) -> None:
    """Trials that were all the same came of it, and not a word."""
    with pytest.raises(SpecError, match=r"would change nothing.*measure: \{steps: null\}"):
        load(tmp_path, **given)
    load(tmp_path, **given, measure={"steps": None})


def test_a_trial_says_nowhere_but_in_measure_how_it_is_measured(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="said in the sweep's own measure"):
        load(tmp_path, vary={"measure.warmup": [1, 2]}, measure={"steps": None})


def test_what_measuring_sets_is_all_that_cannot_be_varied(tmp_path: Path) -> None:
    job = measured({"workload": {}}, load(tmp_path, vary={"seed": [1]}).sweep)
    paths = [*(key for key in job if key != "workload"), *(f"workload.{key}" for key in job["workload"])]
    assert sorted(paths) == sorted(SET_BY_MEASURING)


def test_a_trial_is_measured_and_neither_evaluated_nor_saved(tmp_path: Path) -> None:
    (trial,) = plan(tmp_path, vary={"workload.batch_size": [10]}, measure={"warmup": 7, "steps": 40}).trials
    assert trial.job["measure"] == {"warmup": 7, "steps": 40, "seconds": 2.0, "most_warmup": 100}
    assert trial.job["workload"]["stop"] == {"seconds": 3600.0}
    assert trial.job["workload"]["evaluate"] == {}
    assert trial.job["checkpoint"] == {"seconds": None}
    assert trial.job["export"] is False


def test_without_steps_a_trial_goes_to_its_jobs_own_end(tmp_path: Path) -> None:
    (trial,) = plan(tmp_path, vary={"workload.stop.steps": [70]}, measure={"steps": None}).trials
    assert trial.job["workload"]["stop"] == {"steps": 70}
    assert trial.job["workload"]["evaluate"] == {"every": 10}
    assert trial.job["measure"] == {"warmup": 10}


def test_the_baseline_is_one_for_each_combination_that_makes_a_difference_to_it(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        vary={"cluster.training": [1, 2], "cluster.ps": [1, 2], "workload.batch_size": [10, 20]},
        baseline={"strategy": "single"},
    )
    baselines = [trial for trial in found.trials if trial.is_baseline]
    assert [trial.key for trial in baselines] == ["single-batch-size-10", "single-batch-size-20"]
    assert [trial.settings for trial in baselines] == [
        {"strategy": "single", "workload.batch_size": size} for size in (10, 20)
    ]
    assert len(found.trials) == 2 + 8


def test_combinations_that_are_the_same_job_are_one_trial(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"strategy": ["single", "allreduce"], "cluster.ps": [1, 2]})
    assert keys(found) == ["single", "allreduce"]


def test_a_single_in_the_grid_is_the_baseline(tmp_path: Path) -> None:
    found = plan(
        tmp_path, vary={"strategy": ["single", "ps-async"], "cluster.training": [1, 2]}, baseline={"strategy": "single"}
    )
    assert [(trial.key, trial.is_baseline) for trial in found.trials] == [
        ("single", True),
        ("ps-async-training-1", False),
        ("ps-async-training-2", False),
    ]


def test_what_no_job_allows_is_left_out_with_the_reason(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"strategy.pull_ahead": [0, 1], "strategy.kind": ["ps-async", "ps-sync"]})
    left_out = [trial for trial in found.trials if trial.left_out]
    assert [trial.settings for trial in left_out] == [{"strategy.pull_ahead": 1, "strategy.kind": "ps-sync"}]
    assert "only for ps-async" in str(left_out[0].left_out)


def test_a_sweep_of_which_nothing_can_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no trial can be run\n.*ps-sync"):
        plan(tmp_path, vary={"strategy": [{"kind": "ps-sync", "pull_ahead": 1}]})


def test_a_sweep_of_which_only_the_baseline_can_be_run_is_refused(tmp_path: Path) -> None:
    wrong = {"vary": {"strategy": ["ps-asinc", "ps-snyc"]}, "baseline": {"strategy": "single"}}
    with pytest.raises(SpecError, match=r"no trial besides the baseline can be run\n.*did you mean 'ps-async'"):
        plan(tmp_path, **wrong)


def test_a_sweep_of_which_the_quota_leaves_only_the_baseline_is_none_of_our_business(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"cluster.training": [6]}, baseline={"strategy": "single"}, quota={"vcpus": 2})
    assert [(trial.is_baseline, bool(trial.left_out)) for trial in found.trials] == [(True, False), (False, True)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vary": {"strategy.exchnge": ["at_will", "in_turn"]}}, "strategy.exchnge: unknown setting; did you mean"),
        ({"vary": {"strategy.exchnge": ["in_turn"], "cluster.training": [1, 2]}}, "strategy.exchnge: unknown setting"),
        ({"vary": {"workload.batchsize": [10, 20]}}, "workload.batchsize: unknown setting; did you mean 'batch_size'"),
        ({"vary": {"workload.model.layers": [1, 2]}}, "workload.model.layers: unknown setting"),
        ({"vary": {"clustr.training": [1, 2]}}, "clustr: unknown setting; did you mean 'cluster'"),
        ({"vary": {"cluster.pss": {"best_of": [1, 2]}}}, "cluster.pss: unknown setting"),
        ({"vary": {"seed": [1, 2]}, "one_at_a_time": {"workload.batchsize": [10]}}, "workload.batchsize: unknown"),
        ({"vary": {"seed": [1, 2]}, "also": [{"workload.batchsize": 10}]}, "workload.batchsize: unknown"),
        ({"vary": {"seed": [1, 2]}, "baseline": {"stratgy": "single"}}, "stratgy: unknown setting"),
    ],
)
def test_a_setting_that_no_trial_knows_is_refused_before_anything_starts(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        plan(tmp_path, **{"baseline": {"strategy": "single"}, **settings})
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2  # told once, however many trials there are


def test_a_setting_that_only_some_trials_know_leaves_out_the_others(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        set={"workload.dataset": "cifar10"},
        vary={"workload.model": ["resnet", "softmax"], "workload.model.depth": [20, 32]},
    )
    assert [trial.settings["workload.model"] for trial in found.trials if trial.left_out] == ["softmax", "softmax"]
    assert len(found.trials) == 4


@pytest.mark.parametrize("searched", [{}, {"cluster.ps": {"best_of": [1, 2]}}])
def test_a_baseline_that_cannot_be_run_is_refused(tmp_path: Path, searched: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"the baseline cannot be run.*\n.*'singel' is not allowed"):
        plan(tmp_path, vary={"cluster.training": [1, 2], **searched}, baseline={"strategy": "singel"})


def test_a_baseline_that_cannot_be_run_with_one_of_the_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"the baseline cannot be run.*\n.*only for ps-async"):
        plan(tmp_path, vary={"strategy.pull_ahead": [0, 1]}, baseline={"strategy.kind": "ps-sync"})


def test_a_baseline_over_the_quota_is_left_out_and_the_others_are_run(tmp_path: Path) -> None:
    found = plan(tmp_path, vary={"cluster.training": [1, 2]}, baseline={"cluster.training": 4}, quota={"vcpus": 3})
    assert [bool(trial.left_out) for trial in found.trials if trial.is_baseline] == [True]
    assert [bool(trial.left_out) for trial in found.trials if not trial.is_baseline] == [False, False]


def test_a_combination_that_no_job_allows_needs_no_baseline(tmp_path: Path) -> None:
    sizes = [50, 10**9]  # mnist has not so many examples
    found = plan(tmp_path, vary={"workload.batch_size": sizes}, baseline={"strategy": "single"})
    assert [bool(trial.left_out) for trial in found.trials] == [False, True, False, True]


def test_the_quota_counts_every_task_of_a_local_trial_and_leaves_out_what_is_too_large(tmp_path: Path) -> None:
    found = plan(
        tmp_path, vary={"cluster.training": [1, 2, 4, 6]}, quota={"vcpus": 8, "of": {"chief": 2}}
    )  # E1: master of 2, server of 1, workers of 1
    assert [(trial.vcpus, bool(trial.left_out)) for trial in found.trials] == [
        (3, False),
        (4, False),
        (6, False),
        (8, False),
    ]
    tighter = plan(tmp_path, vary={"cluster.training": [1, 2, 4, 6]}, quota={"vcpus": 6, "of": {"chief": 2}})
    assert [bool(trial.left_out) for trial in tighter.trials] == [False, False, False, True]
    assert tighter.trials[-1].left_out == "quota: it needs 8 vCPUs, and at most 6 may be used"


def test_the_quota_of_emulated_nodes_is_what_their_machines_have(tmp_path: Path) -> None:
    site = {"kind": "emulated", "nodes": {"ps": {"cpus": 0.4}, "worker": {"type": "n1-standard-2"}}}
    found = plan(tmp_path, set={"site": site}, vary={"cluster.training": [1, 2]}, quota={"vcpus": 4})
    assert [trial.vcpus for trial in found.trials] == [3, 5]
    assert found.trials[1].left_out


def test_a_search_is_on_synthetic_data_and_its_best_on_real_data(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        vary={"cluster.training": [1, 2], "cluster.ps": {"best_of": [1, 2, 3]}},
        baseline={"strategy": "single"},
    )
    assert [(trial.key, trial.data) for trial in found.trials] == [
        ("single-synthetic", "synthetic"),
        ("single-real", "real"),
    ]
    assert [group.settings for group in found.groups] == [{"cluster.training": 1}, {"cluster.training": 2}]
    first = found.groups[0]
    assert [(each.value, each.data) for each in first.candidates] == [
        (1, "synthetic"),
        (2, "synthetic"),
        (3, "synthetic"),
    ]
    assert all(each.job["workload"]["dataset"]["synthetic"] for each in first.candidates)
    assert [(each.value, each.data) for each in first.finals] == [(1, "real"), (2, "real"), (3, "real")]
    assert found.grid == 2 + 2 * 4


def test_a_baseline_can_be_the_best_of_a_search(tmp_path: Path) -> None:
    """It is one trial, of the plan, and a candidate like the others."""
    found = plan(tmp_path, vary={"cluster.ps": {"best_of": [1, 2, 3]}}, baseline={"cluster.ps": 1})
    (group,) = found.groups
    assert keys(found) == ["ps-1-synthetic", "ps-1-real"]
    assert [(each.key, each.value) for each in group.candidates] == [
        ("ps-1-synthetic", 1),
        ("ps-2-synthetic", 2),
        ("ps-3-synthetic", 3),
    ]
    assert [(each.key, each.value, each.is_baseline) for each in group.finals] == [
        ("ps-1-real", 1, True),
        ("ps-2-real", 2, False),
        ("ps-3-real", 3, False),
    ]


def test_a_search_among_values_that_make_no_difference_is_none(tmp_path: Path) -> None:
    found = plan(
        tmp_path,
        vary={"strategy": ["single", "ps-async"], "cluster.ps": {"best_of": [1, 2]}},
        baseline={"strategy": "single"},
    )
    assert [group.settings for group in found.groups] == [{"strategy": "ps-async"}]


def test_a_search_with_made_up_data_needs_no_second_run(tmp_path: Path) -> None:
    found = plan(tmp_path, set={"workload.dataset": "synthetic"}, vary={"cluster.ps": {"best_of": [1, 2]}})
    assert found.groups[0].finals == ()
    assert found.groups[0].key == "ps"


def test_keys_can_begin_a_runs_name_and_are_all_different(tmp_path: Path) -> None:
    long = [{"name": "mnist", "size": 0.1 * number, "synthetic": True} for number in range(1, 4)]
    found = plan(tmp_path, vary={"workload.dataset": long, "strategy.exchange": ["at_will", "in_turn"]})
    assert len(set(keys(found))) == 6
    assert all(len(key) <= 63 and key == key.lower() and "." not in key and " " not in key for key in keys(found))
    assert [trial.job["name"] for trial in found.trials] == keys(found)


def test_overrides_are_for_the_sweep_or_else_for_its_job(tmp_path: Path) -> None:
    loaded = load(tmp_path, "measure.repeats=2", "workload.batch_size=7", vary={"cluster.training": [1]})
    assert loaded.sweep.measure.repeats == 2
    assert loaded.job["workload"]["batch_size"] == 7
    assert loaded.sweep.name == "my-sweep"


@pytest.mark.parametrize(
    ("override", "varied"),
    [
        ("cluster.training=4", "cluster.training"),
        ("cluster={training: 4, ps: 2}", "cluster.training"),
        ("workload.dataset.size=0.5", "workload.dataset"),
        ("strategy=ps-sync", "strategy.kind"),
    ],
)
def test_an_override_that_the_grid_overwrites_is_refused(tmp_path: Path, override: str, varied: str) -> None:
    with pytest.raises(SpecError, match=f"the sweep varies {varied}, and each of its trials"):
        load(tmp_path, override, vary={varied: ["mnist"]})


def test_an_override_beside_a_varied_setting_holds(tmp_path: Path) -> None:
    loaded = load(tmp_path, "strategy=ps-sync", "cluster.ps=2", vary={"strategy.transfer": ["float32", "bfloat16"]})
    assert loaded.job["strategy"] == {"kind": "ps-sync"}
    assert load(tmp_path, "vary={cluster.training: [4]}", vary={"cluster.training": [1]}).sweep.vary == {
        "cluster.training": [4]
    }


def test_full_replaces_the_grid_and_merges_the_rest(tmp_path: Path) -> None:
    changes = {
        "vary": {"cluster.training": [1, 2, 4]},
        "measure": {"steps": None},
        "set": {"workload.stop": {"steps": 9}},
    }
    given: dict[str, Any] = {"vary": {"cluster.training": [1], "cluster.ps": [1, 2]}, "measure": {"warmup": 3}}
    path = tmp_path / "full.yaml"
    path.write_text(json.dumps({"job": JOB, **given, "full": changes}))
    loaded = load_sweep(path, full=True)
    assert loaded.sweep.vary == {"cluster.training": [1, 2, 4]}
    assert (loaded.sweep.measure.warmup, loaded.sweep.measure.steps) == (3, None)
    assert loaded.job["workload"]["stop"] == {"steps": 9}
    assert load_sweep(path).sweep.measure.steps == 100


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "nothing to vary"),
        ({"vary": {"cluster.training": []}}, "vary.cluster.training"),
        ({"vary": {"a.b": [1]}, "one_at_a_time": {"a.b": [2]}}, "in vary, too"),
        ({"vary": {"a": {"best_of": [1]}, "b": {"best_of": [1]}}}, "only one setting can be searched"),
        ({"vary": {"seed": [1]}, "measure": {"repeats": 4, "most": 3}}, "most: 3, but repeats: 4"),
        ({"vary": {"seed": [1]}, "measure": {"repeat": 4}}, "did you mean 'repeats'"),
        ({"vary": {"seed": [1]}, "full": {"measure": {"steps": 0}}}, "--full"),
        ({"vary": {"seed": [1]}, "set": {"workload.modle": "softmax"}}, "did you mean 'model'"),
        ({"vary": {"seed": [1]}, "job": {"workload": {"command": "python x.py"}}}, "write measure: {steps: null}"),
    ],
)
def test_a_mistake_in_a_sweep_is_explained(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(tmp_path, **settings)
    assert message in str(caught.value)


def test_a_sweep_without_its_job_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.yaml"):
        load(tmp_path, job="nowhere.yaml", vary={"seed": [1]})


def test_full_without_an_original_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no `full:`"):
        load(tmp_path, full=True, vary={"seed": [1]})
