"""A user's own program: what a job may say of it, and what each task of it is started with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.errors import SpecError
from headway.launch.commands import needs_port, task_command
from headway.launch.environments import check, python_for
from headway.record.folder import RunFolder
from headway.spec import Job, Task, job_schema
from headway.spec.load import apply_override, load_job, parse_job
from headway.spec.resolve import resolve

CHIEF, WORKER0, WORKER1, PS, EVALUATOR = (
    Task("chief", 0),
    Task("worker", 0),
    Task("worker", 1),
    Task("ps", 0),
    Task("evaluator", 0),
)
FLAGS = "--job_name={job_name} --task_index={task_index} --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}"


def job(command: Any = f"python train.py {FLAGS}", cluster: Any = None, **workload: Any) -> Job:
    asked = {"workload": {"command": command, **workload}, "cluster": cluster or {"worker": 2, "ps": 1}}
    return resolve(parse_job(asked), 4).job


def mistake(**workload: Any) -> str:
    with pytest.raises(SpecError) as raised:
        parse_job({"workload": workload})
    return str(raised.value)


def command_of(asked: Job, task: Task, folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    listening = [each for each in asked.cluster.tasks() if needs_port(asked, each)]
    addresses = {each: f"10.0.0.{place}:2222" for place, each in enumerate(listening)}
    command = task_command(asked, task, RunFolder(folder), addresses)
    assert command.argv[:4] == (sys.executable, "-m", "headway.engines.command", "--")
    return command.argv[4:], command.env


# --- what a job may say ----------------------------------------------------------------------------------------------
def test_a_command_is_split_as_a_shell_would_and_nothing_of_it_is_run_by_one() -> None:
    assert job("python train.py --note 'a b' $HOME {other}").program.command == (  # type: ignore[union-attr]
        "python",
        "train.py",
        "--note",
        "a b",
        "$HOME",
        "{other}",
    )
    assert job(["python", "train.py", 3]).program.command == ("python", "train.py", "3")  # type: ignore[union-attr]


def test_mistakes_are_named() -> None:
    assert "write a command" in mistake(command="")
    assert "No closing quotation" in mistake(command="python 'train.py")
    assert "unknown setting; did you mean 'python'?" in mistake(command="x", pyton="y")
    assert "unknown group 'los'" in mistake(command="x", report={"patterns": r"(?P<los>\d)"})
    assert "is no regular expression" in mistake(command="x", report={"patterns": "(?P<step>"})
    assert "name a group" in mistake(command="x", report={"patterns": r"step \d"})
    assert "workload.model: missing" in mistake(dataset="mnist")


def test_settings_can_be_overridden_and_the_schema_knows_them() -> None:
    settings: dict[str, Any] = {"workload": {"command": "python train.py"}}
    apply_override(settings, "workload.tf_config.chief=master")
    program = parse_job(settings).program
    assert program is not None
    assert program.tf_config.chief == "master"
    assert "ends_with" in json.dumps(job_schema())


@pytest.mark.parametrize("value", ["{model_dir}", "{run}/logs", " {model_dir}/a b"])
def test_a_placeholder_is_no_mapping_of_yaml(value: str) -> None:
    settings: dict[str, Any] = {"workload": {"command": "x"}}
    apply_override(settings, f"workload.tf_config.model_dir={value}")
    program = parse_job(settings).program
    assert program is not None
    assert program.tf_config.model_dir == value.strip()


def test_a_placeholder_needs_no_quotes_in_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "workload:\n  command: [python, train.py, {rank}]\n  env: {LOGS: {model_dir}}\n"
        "  report: {tensorboard: {model_dir}}\n  tf_config: {model_dir: {model_dir}}\n"
    )
    program = load_job(tmp_path / "job.yaml").program
    assert program is not None
    assert program.command == ("python", "train.py", "{rank}")
    assert program.env == {"LOGS": "{model_dir}"}
    assert program.report.tensorboard == program.tf_config.model_dir == "{model_dir}"


def test_the_strategy_program_is_for_programs() -> None:
    assert parse_job({"workload": {"command": "x"}, "strategy": "program"}).strategy.kind == "program"
    with pytest.raises(SpecError, match=r"strategy: program is for workload\.command"):
        parse_job({"workload": {"model": "softmax", "dataset": "synthetic"}, "strategy": "program"})


@pytest.mark.parametrize(
    ("cluster", "strategy", "ends_with"),
    [
        ({"worker": 1}, "single", "everybody"),
        ({"worker": 2}, "allreduce", "everybody"),
        ({"worker": 2, "ps": 1}, "program", "everybody"),
        ({"chief": 1, "worker": 2, "ps": 1}, "program", "chief"),
    ],
)
def test_who_begins_anew_together_and_when_it_is_over_follow_from_the_cluster(
    cluster: dict[str, int], strategy: str, ends_with: str
) -> None:
    resolved = resolve(parse_job({"workload": {"command": "x"}, "cluster": cluster}), 4)
    assert resolved.job.strategy.kind == strategy
    assert resolved.job.program is not None
    assert resolved.job.program.ends_with == ends_with
    assert {"strategy", "workload.ends_with"} <= {choice.path for choice in resolved.choices}


def test_what_the_user_says_of_both_stays() -> None:
    asked = {"workload": {"command": "x", "ends_with": "chief"}, "cluster": {"worker": 2}, "strategy": "ps-async"}
    with pytest.raises(SpecError, match="needs at least 1 parameter server"):
        parse_job(asked)
    resolved = resolve(parse_job({**asked, "strategy": "allreduce"}), 4)
    assert resolved.job.program is not None
    assert resolved.job.program.ends_with == "chief"


# --- what a task is started with -------------------------------------------------------------------------------------
def test_flags_of_tensorflow_1_scripts(tmp_path: Path) -> None:
    argv, _ = command_of(job(), WORKER1, tmp_path)
    assert argv == (
        "python",
        "train.py",
        "--job_name=worker",
        "--task_index=1",
        "--ps_hosts=10.0.0.2:2222",
        "--worker_hosts=10.0.0.0:2222,10.0.0.1:2222",
    )


def test_tf_config_names_the_cluster_and_the_task(tmp_path: Path) -> None:
    asked = job(cluster={"chief": 1, "worker": 1, "ps": 1, "evaluator": 1})
    config = json.loads(command_of(asked, EVALUATOR, tmp_path)[1]["TF_CONFIG"])
    assert config == {
        "cluster": {"chief": ["10.0.0.0:2222"], "ps": ["10.0.0.2:2222"], "worker": ["10.0.0.1:2222"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_tf_config_as_old_scripts_want_it(tmp_path: Path) -> None:
    wanted = {"chief": "master", "environment": "cloud", "model_dir": "{model_dir}"}
    asked = job(cluster={"chief": 1, "worker": 1, "ps": 1}, tf_config=wanted)
    config = json.loads(command_of(asked, CHIEF, tmp_path)[1]["TF_CONFIG"])
    assert config["cluster"]["master"] == ["10.0.0.0:2222"]
    assert config["task"] == {"type": "master", "index": 0}
    assert config["environment"] == "cloud"
    assert config["model_dir"] == str(tmp_path / "model_dir")


def test_ranks_are_of_training_tasks_alone(tmp_path: Path) -> None:
    asked = job(cluster={"chief": 1, "worker": 2, "ps": 1})
    env = command_of(asked, WORKER1, tmp_path)[1]
    assert {name: env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "3",
    }
    assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("10.0.0.0", "2222")
    assert "RANK" not in command_of(asked, PS, tmp_path)[1]


def test_a_local_rank_counts_the_tasks_of_one_node(tmp_path: Path) -> None:
    asked = parse_job(
        {"workload": {"command": "x"}, "cluster": {"worker": 2}, "site": {"kind": "emulated"}, "layout": "W-W"}
    )
    env = command_of(resolve(asked, 4).job, WORKER1, tmp_path)[1]
    assert (env["RANK"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("1", "0", "1")


def test_threads_are_shared_out_unless_the_user_has_said_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    env = command_of(job(), WORKER0, tmp_path)[1]
    assert "OMP_NUM_THREADS" not in env  # it is inherited
    assert env["TF_NUM_INTRAOP_THREADS"] == "2"
    assert command_of(job(env={"OMP_NUM_THREADS": "{rank}"}), WORKER1, tmp_path)[1]["OMP_NUM_THREADS"] == "1"


def test_its_python_comes_first_on_the_path(tmp_path: Path) -> None:
    assert command_of(job(), PS, tmp_path)[1]["PATH"].startswith(f"{Path(sys.executable).parent}:")
    other = tmp_path / "env" / "bin" / "python"
    env = command_of(job(python=str(other)), PS, tmp_path)[1]
    assert env["PATH"].startswith(f"{other.parent}:")
    assert env["VIRTUAL_ENV"] == str(tmp_path / "env")


def test_an_environment_is_named_by_its_requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))
    requirements = tmp_path / "needs.txt"
    with pytest.raises(SpecError, match="no requirements file"):
        check("needs.txt", tmp_path)
    requirements.write_text("numpy\n")
    check("needs.txt", tmp_path)
    first = python_for("needs.txt", tmp_path)
    assert first.parts[-3].startswith("needs-")
    requirements.write_text("numpy<3\n")
    assert python_for("needs.txt", tmp_path) != first
    with pytest.raises(SpecError, match="is no program"):
        check("nothing/bin/python", tmp_path)
