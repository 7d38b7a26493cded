"""What a user may write in a job, and what a mistake is answered with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.errors import NotFound, SpecError
from headway.plural import counted
from headway.spec import Cluster, Job, Task, job_schema
from headway.spec.load import SHORTHANDS, apply_override, load_job, parse_job, read_settings
from headway.spec.resolve import resolve
from headway.spec.sweep import load_sweep

EXAMPLES = Path(__file__).parents[2] / "examples"


def job(**changes: Any) -> dict[str, Any]:
    return {
        "name": "a-job",
        "workload": {"model": "softmax", "dataset": "synthetic", "stop": {"steps": 10}},
        "strategy": "ps-async",
        "cluster": {"chief": 1, "worker": 1, "ps": 1},
        **changes,
    }


def mistake(settings: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as raised:
        parse_job(settings)
    return str(raised.value)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_valid(path: Path) -> None:
    is_sweep = "job" in read_settings(path, "job")
    assert (load_sweep(path).sweep if is_sweep else load_job(path)).name == path.stem


def test_overrides_change_settings_by_path() -> None:
    changed = load_job(EXAMPLES / "mnist-async.yaml", ["cluster.worker=3", "workload.stop.steps=500", "seed=7"])
    assert changed.cluster.worker.count == 3
    assert changed.training.stop.steps == 500
    assert changed.training.stop.accuracy == 0.975  # its neighbour stays
    assert changed.seed == 7


def test_an_override_below_a_shorthand_keeps_what_the_shorthand_said() -> None:
    settings = job()
    apply_override(settings, "cluster.ps.threads.inter_op=4")
    apply_override(settings, "workload.model.init=normal")
    parsed = parse_job(settings)
    assert parsed.cluster.ps.count == 1
    assert parsed.cluster.ps.threads.inter_op == 4
    assert parsed.training.model.model_dump() == {"name": "softmax", "init": "normal"}


def test_every_shorthand_names_a_setting() -> None:
    for path, key in SHORTHANDS.items():
        settings = job()
        apply_override(settings, f"{path}.{key}=1")
        with pytest.raises(SpecError) as raised:
            parse_job({**settings, "nonsense": 1})
        assert f"{path}.{key}: unknown setting" not in str(raised.value)


@pytest.mark.parametrize("override", ["cluster.worker", "=3", "a..b=1", "x=[1"])
def test_a_malformed_override_is_refused(override: str) -> None:
    with pytest.raises(SpecError, match="override"):
        apply_override(job(), override)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"stratgy": "single"}, ["stratgy: unknown setting; did you mean 'strategy'?", "Allowed here:"]),
        ({"strategy": "ps-asink"}, ["strategy.kind: 'ps-asink'", "did you mean 'ps-async'?", "single, ps-async"]),
        ({"limits": {"heartbeat": "10 parsecs"}}, ["limits.heartbeat: '10 parsecs'", "unknown unit 'parsecs'", "ms"]),
        ({"limits": {"heartbeat": "soon"}}, ["limits.heartbeat: 'soon'", "500ms"]),
        ({"cluster": {"worker": "two", "ps": 1}}, ["cluster.worker.count: 'two'", "integer"]),
        ({"cluster": {"worker": 2}}, ["cluster.ps: 0", "needs at least 1"]),
        ({"cluster": {"ps": 2}}, ["no training task"]),
        ({"cluster": {"chief": 2, "ps": 1}}, ["at most 1 chief"]),
        ({"cluster": {"training": 2, "worker": 1, "ps": 1}}, ["training: 2 already counts"]),
        (
            {"cluster": {"chief": 1, "ps": {"count": 1, "threads": {"inter_op": 1}}}},
            ["ps.threads.inter_op: 1", "hang", "2 or more"],
        ),
        ({"name": "No Slug!"}, ["name: 'No Slug!'", "lower-case"]),
        ({"site": "moon"}, ["site.kind: 'moon'", "Allowed: local"]),
        ({"seed": -1}, ["seed: -1", "greater than or equal to 0"]),
    ],
)
def test_a_mistake_names_the_setting_the_value_and_what_is_allowed(changes: dict[str, Any], wanted: list[str]) -> None:
    message = mistake(job(**changes))
    for part in wanted:
        assert part in message
    assert "nothing was started" in message


@pytest.mark.parametrize(
    ("workload", "wanted"),
    [
        ({"model": "sofmax"}, ["workload.model: 'sofmax'", "did you mean 'softmax'?"]),
        ({"model": {"name": "softmax", "inti": "normal"}}, ["workload.model.inti", "did you mean 'init'?"]),
        ({"dataset": {"name": "synthetic", "sise": 3}}, ["workload.dataset.sise", "did you mean 'size'?"]),
        ({"model": "linear"}, ["workload", "linear needs"]),
        ({"batch_size": 10**9}, ["batch_size: 1000000000", "examples"]),
        ({"global_batch_size": 10**9}, ["global_batch_size: 1000000000", "examples"]),
        (
            {"dataset": {"name": "mnist", "colours": {"mean": [0.1, 0.2, 0.3], "deviation": [0.3]}}},
            ["dataset.colours.mean: 3 numbers", "mnist has 1 channels"],
        ),
        ({"global_batch_size": 0}, ["workload.global_batch_size: 0", "greater than or equal to 1"]),
        ({"global_batch_size": 1}, ["workload.global_batch_size: 1", "2 training tasks", "allowed: 2 or more"]),
        (
            {"batch_size": 20, "global_batch_size": 40},
            ["batch_size: 20 and global_batch_size: 40", "only one", "of each training task"],
        ),
        ({"stop": {"accuracy": 0.9}}, ["stop.accuracy needs evaluate.every"]),
        ({"model": "autoencoder", "stop": {"accuracy": 0.9}}, ["model autoencoder has a loss, but no accuracy"]),
        ({"model": {"name": "autoencoder", "hidden": []}}, ["workload.model.hidden"]),
        ({"model": {"name": "resnet", "depth": 18}}, ["workload.model.depth", "6n + 2 layers"]),
        ({"model": "vgg16"}, ["model vgg16 needs images of at least 32x32 pixels"]),
        ({"optimizer": "adamm"}, ["workload.optimizer.name", "did you mean 'adam'?"]),
    ],
)
def test_a_mistake_in_the_workload_is_found_before_anything_starts(workload: dict[str, Any], wanted: list[str]) -> None:
    message = mistake(job(workload={"model": "softmax", "dataset": "synthetic", **workload}))
    for part in wanted:
        assert part in message


def test_several_mistakes_are_told_at_once() -> None:
    assert "2 mistakes" in mistake(job(stratgy=1, naame=2))


def test_a_missing_job_file_and_broken_yaml_are_clear(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no job file"):
        load_job(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(SpecError, match="not valid YAML"):
        load_job(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(SpecError, match="mapping"):
        load_job(tmp_path / "list.yaml")


# --- resolving -----------------------------------------------------------------------------------------------
def reasons(resolved: Any) -> dict[str, str]:
    return {choice.path: choice.reason for choice in resolved.choices}


def test_single_replaces_the_cluster_by_one_task_and_says_so() -> None:
    resolved = resolve(parse_job(job(strategy="single")), num_cores=2)
    assert resolved.job.cluster.tasks() == [Task("chief", 0)]
    assert "replaced" in reasons(resolved)["cluster"]


def test_without_a_chief_worker_0_is_the_chief() -> None:
    resolved = resolve(parse_job(job(cluster={"worker": 2, "ps": 1})), num_cores=2)
    assert resolved.job.cluster.chief_task() == Task("worker", 0)
    assert "worker/0" in reasons(resolved)["cluster.chief"]


def test_training_counts_the_chief() -> None:
    settings = job(cluster={"training": 4, "ps": {"count": 2, "threads": {"intra_op": 1, "inter_op": 2}}})
    cluster = resolve(parse_job(settings), num_cores=8).job.cluster
    assert (cluster.chief.count, cluster.worker.count, cluster.ps.count) == (1, 3, 2)
    assert len(cluster.training_tasks()) == 4


@pytest.mark.parametrize(("num_cores", "training", "threads"), [(2, 2, 1), (8, 2, 4), (2, 5, 1), (9, 2, 4)])
def test_the_default_divides_the_machine_and_says_so(num_cores: int, training: int, threads: int) -> None:
    resolved = resolve(parse_job(job(cluster={"training": training, "ps": 1})), num_cores)
    assert resolved.job.cluster.worker.threads.intra_op == threads
    assert f"{num_cores} cores" in reasons(resolved)["cluster.worker.threads.intra_op"]


def test_asked_threads_are_kept_and_not_called_a_choice() -> None:
    settings = job(cluster={"worker": {"count": 2, "threads": {"intra_op": 3}}, "ps": 1})
    resolved = resolve(parse_job(settings), num_cores=2)
    assert resolved.job.cluster.worker.threads.intra_op == 3
    assert "cluster.worker.threads.intra_op" not in reasons(resolved)


def test_several_devices_have_a_thread_each_and_stay_with_a_single_task() -> None:
    cluster = {"training": 2, "chief": {"devices": 3}, "ps": 1}
    resolved = resolve(parse_job(job(cluster=cluster)), num_cores=2)
    assert (resolved.job.cluster.chief.devices, resolved.job.cluster.worker.devices) == (3, 1)
    assert (resolved.job.cluster.chief.threads.inter_op, resolved.job.cluster.worker.threads.inter_op) == (3, 1)
    assert "devices" in reasons(resolved)["cluster.chief.threads.inter_op"]
    for asked in ({"chief": {"devices": 3}}, {"worker": {"count": 4, "devices": 3}}, cluster):
        alone = resolve(parse_job(job(strategy="single", cluster=asked)), num_cores=2).job.cluster
        assert (alone.chief.count, alone.chief.devices) == (1, 3), asked


def test_epochs_become_steps_with_the_arithmetic() -> None:
    workload = {"model": "softmax", "dataset": "mnist", "batch_size": 128, "stop": {"epochs": 2}}
    resolved = resolve(parse_job(job(workload=workload)), num_cores=2)
    assert resolved.job.training.stop.steps == 938  # ceil(2 * 60000 / 128)
    assert "60,000" in reasons(resolved)["workload.stop.steps"]


@pytest.mark.parametrize("batch", [{}, {"batch_size": 7}, {"global_batch_size": 7}])
def test_resolving_what_was_resolved_changes_nothing(batch: dict[str, int]) -> None:
    workload = {**job()["workload"], **batch}
    once = resolve(parse_job(job(workload=workload, cluster={"training": 3, "ps": 1})), num_cores=2)
    again = resolve(Job.model_validate(once.job.model_dump(mode="json")), num_cores=64)
    assert again.job == once.job


def batch_sizes(resolved: Any) -> list[int]:
    return [resolved.job.batch_size_of(task) for task in resolved.job.cluster.training_tasks()]


@pytest.mark.parametrize(
    ("asked", "strategy", "cluster", "sizes", "each"),
    [
        (90, "ps-sync", {"training": 3, "ps": 1}, [30, 30, 30], "30"),
        (100, "ps-sync", {"training": 3, "ps": 1}, [34, 33, 33], "34 or 33"),
        (101, "allreduce", {"worker": 3}, [34, 34, 33], "34 or 33"),
        (3, "ps-async", {"chief": 1, "worker": 2, "ps": 1}, [1, 1, 1], "1"),
        (100, "single", {"training": 3, "ps": 1}, [100], "100"),
    ],
)
def test_a_global_batch_is_shared_out_and_the_record_says_which_was_asked(
    asked: int, strategy: str, cluster: dict[str, int], sizes: list[int], each: str
) -> None:
    workload = {**job()["workload"], "global_batch_size": asked}
    resolved = resolve(parse_job(job(workload=workload, strategy=strategy, cluster=cluster)), num_cores=2)
    assert batch_sizes(resolved) == sizes
    [choice] = [choice for choice in resolved.choices if choice.path == "workload.batch_size"]
    assert choice.value == each
    assert f"global_batch_size: {asked}, shared out over {counted(len(sizes), 'training task')}" in choice.reason
    stored = resolved.as_file()["resolved"]["workload"]
    assert (stored["batch_size"], stored["global_batch_size"]) == (None, asked)


def test_without_a_batch_size_each_task_has_a_hundred_and_the_record_says_so() -> None:
    resolved = resolve(parse_job(job()), num_cores=2)
    assert batch_sizes(resolved) == [100, 100]
    assert resolved.job.workload.batch_size == 100
    assert "nothing was asked" in reasons(resolved)["workload.batch_size"]


def test_the_schema_knows_every_setting() -> None:
    schema = job_schema()
    json.dumps(schema)
    assert set(schema["properties"]) == set(Job.model_fields)
    text = json.dumps(schema["$defs"]["Workload"]["properties"]["model"])
    assert "mnist_cnn" in text
    assert "dropout" in text


def test_every_setting_is_documented() -> None:
    def undocumented(model: Any, path: str) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            if not field.description:
                found.append(f"{path}{name}")
            inner = field.annotation
            if isinstance(inner, type) and hasattr(inner, "model_fields"):
                found += undocumented(inner, f"{path}{name}.")
        return found

    assert undocumented(Job, "") == []


def test_task_names() -> None:
    assert str(Task.parse("worker/3")) == "worker/3"
    assert Task.parse("ps/0").slug == "ps-0"
    for wrong in ("worker", "boss/0", "worker/x", "worker/-1"):
        with pytest.raises(ValueError, match="is not a task"):
            Task.parse(wrong)
    assert Cluster().tasks() == []


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"strategy": {"kind": "ps-async", "aggregate": 1}}, ["aggregate", "only for ps-sync", "ps-async"]),
        ({"strategy": {"kind": "ps-sync", "aggregate": 3}}, ["strategy.aggregate: 3", "only 2 training tasks"]),
        ({"strategy": {"kind": "ps-sync", "pull_ahead": 1}}, ["pull_ahead", "only for ps-async"]),
        ({"strategy": {"kind": "allreduce", "replication": "in_graph"}}, ["replication: in_graph", "only for ps-sync"]),
        ({"strategy": {"kind": "ps-sync", "replication": "ingraph"}}, ["strategy.replication", "'in_graph'?"]),
        (
            {"strategy": {"kind": "ps-sync", "replication": "in_graph", "aggregate": 1}},
            ["strategy.aggregate: 1", "all 2 training tasks", "between_graph"],
        ),
        (
            {"strategy": {"kind": "ps-sync", "replication": "in_graph"}, "restart": {"exhausted": "continue"}},
            ["restart.exhausted: continue", "in_graph", "write fail"],
        ),
        ({"strategy": {"kind": "ps-sync", "exchange": "in_turn"}}, ["exchange", "only for ps-async"]),
        ({"strategy": {"kind": "single", "transfer": "bfloat16"}}, ["transfer", "sends nothing"]),
        ({"strategy": "allreduce", "restart": {"exhausted": "continue"}}, ["restart.exhausted", "write fail"]),
        ({"cluster": {"chief": 1, "ps": {"count": 1, "batch_size": 5}}}, ["ps.batch_size", "does not train"]),
        ({"cluster": {"chief": {"count": 1, "batch_size": 10**6}, "ps": 1}}, ["cluster.chief.batch_size", "examples"]),
        ({"cluster": {"chief": 1, "ps": {"count": 1, "devices": 2}}}, ["ps.devices: 2", "does not train"]),
        ({"cluster": {"chief": {"count": 1, "devices": 0}, "ps": 1}}, ["cluster.chief.devices: 0", "1"]),
        (
            {"cluster": {"chief": 1, "worker": {"count": 1, "batch_size": 3, "devices": 4}, "ps": 1}},
            ["cluster.worker.devices: 4", "3 examples", "allowed: 3 or fewer"],
        ),
        (
            {
                "workload": {"model": "softmax", "dataset": "synthetic", "global_batch_size": 5},
                "cluster": {"chief": {"count": 1, "devices": 3}, "worker": {"count": 1, "devices": 3}, "ps": 1},
            },
            ["cluster.worker.devices: 3", "2 examples"],
        ),
        (
            {
                "workload": {"model": "softmax", "dataset": "synthetic", "global_batch_size": 40},
                "cluster": {"chief": 1, "worker": {"count": 1, "batch_size": 5}, "ps": 1},
            },
            ["cluster.worker.batch_size: 5", "workload.global_batch_size: 40", "give one of them"],
        ),
    ],
)
def test_a_strategys_options_are_refused_where_they_mean_nothing(changes: dict[str, Any], wanted: list[str]) -> None:
    message = mistake(job(**changes))
    assert all(part in message for part in wanted), message


@pytest.mark.parametrize(
    ("optimizer", "wanted"),
    [
        ({"schedule": "piecewise"}, ["schedule", "needs `at`"]),
        ({"schedule": {"kind": "piecewise", "at": [20, 10]}}, ["rising order"]),
        ({"schedule": {"kind": "cosine"}}, ["needs `steps`"]),
        ({"clip": {}}, ["clip", "either norm or value"]),
        ({"clip": {"norm": 1, "value": 1}}, ["either norm or value"]),
        ({"weight_decay": -1}, ["weight_decay", "-1"]),
    ],
)
def test_a_wrong_optimizer_setting_is_explained(optimizer: dict[str, Any], wanted: list[str]) -> None:
    message = mistake(job(workload={"model": "softmax", "dataset": "synthetic", "optimizer": optimizer}))
    assert all(part in message for part in wanted), message


def test_ps_sync_takes_a_gradient_of_every_task_unless_told_otherwise() -> None:
    resolved = resolve(parse_job(job(strategy="ps-sync", cluster={"training": 3, "ps": 1})), num_cores=2)
    assert resolved.job.strategy.aggregate == 3
    assert resolved.job.strategy.replication == "between_graph"
    strategy = {"kind": "ps-sync", "replication": "in_graph"}
    one_client = resolve(parse_job(job(strategy=strategy, cluster={"training": 3, "ps": 1})), num_cores=2)
    assert one_client.job.strategy.aggregate == 3
    assert any(choice.path == "strategy.aggregate" for choice in resolved.choices)


def test_allreduce_leaves_the_servers_out_and_says_so() -> None:
    resolved = resolve(parse_job(job(strategy="allreduce")), num_cores=2)
    assert [str(task) for task in resolved.job.cluster.tasks()] == ["chief/0", "worker/0"]
    assert any(choice.path == "cluster.ps" and choice.value == 0 for choice in resolved.choices)
    alone = {key: value for key, value in job(strategy="allreduce").items() if key != "cluster"}
    assert resolve(parse_job(alone), num_cores=2).job.cluster.ps.count == 0


def test_an_epoch_has_fewer_steps_where_each_takes_several_gradients() -> None:
    data = {"name": "synthetic", "size": 1000}
    workload = {"model": "softmax", "dataset": data, "batch_size": 50, "stop": {"epochs": 2}}
    cluster = {"chief": {"count": 1, "batch_size": 100}, "worker": 2, "ps": 1}
    wanted = {"ps-async": 30, "ps-sync": 10, "allreduce": 10, "single": 20}
    for strategy, steps in wanted.items():
        settings = job(workload=workload, strategy=strategy, cluster=cluster)
        assert resolve(parse_job(settings), num_cores=2).job.training.stop.steps == steps, strategy
    # With a global batch a synchronous epoch has as many steps on three tasks as on one.
    workload = {key: value for key, value in workload.items() if key != "batch_size"} | {"global_batch_size": 100}
    for strategy, steps in {"ps-async": 60, "ps-sync": 20, "allreduce": 20, "single": 20}.items():
        settings = job(workload=workload, strategy=strategy, cluster={"training": 3, "ps": 1})
        assert resolve(parse_job(settings), num_cores=2).job.training.stop.steps == steps, strategy
