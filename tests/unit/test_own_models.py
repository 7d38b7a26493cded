"""A model of the user's own: found, checked and given its defaults; each mistake has a message of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headway import testing, workloads
from headway.errors import SpecError
from headway.launch.commands import task_command
from headway.launch.prepare import change_job, create_run, read_job
from headway.record.folder import RunFolder
from headway.spec.job import Job
from headway.spec.load import load_job, parse_job
from headway.spec.resolve import resolve
from headway.workloads import objectives
from headway.workloads.base import DataInfo

IMAGES = DataInfo((4, 4, 1), 3, 100, 10)
NUMBERS = DataInfo((4,), None, 100, 10)
WHOLE = """
from pydantic import Field
from headway.workloads import base, layers

class Settings(base.Settings):
    hidden: int = Field(default=5, ge=1)

def check(settings, data):
    if data.classes is not None and data.classes > 7:
        raise ValueError("at most 7 classes")

def network(features, settings, data, run):
    x = layers.relu(layers.dense(run, "hidden", layers.flatten(run, features), settings.hidden))
    return layers.dense(run, "logits", x, data.classes or 1)

build = network
"""
SMALLEST = """
def build(features, settings, data, run):
    from headway.workloads import layers

    outputs = layers.dense(run, "only", layers.flatten(run, features), data.classes or 1)
    return outputs if data.classes else outputs[:, 0]
"""
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Write]:
    """Writes a module into the folder that headway is called in; its name, which no other test has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(text: str) -> str:
        name = f"own_{abs(hash(request.node.nodeid))}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    yield write
    for name in set(sys.modules) - before:
        if name.startswith(("own_", "mypackage")):
            del sys.modules[name]


def job(model: Any, **changes: Any) -> dict[str, Any]:
    data = {"name": "synthetic", "shape": [4, 4, 1], "classes": 3, "size": 200, "test_size": 20}
    return {"workload": {"model": model, "dataset": data, **changes}}


def mistake(settings: dict[str, Any]) -> str:
    with pytest.raises(SpecError) as raised:
        parse_job(settings)
    return str(raised.value)


# --- found ------------------------------------------------------------------------------------------------------------
def test_it_is_found_where_headway_is_called_and_keeps_its_name_and_settings(write: Write, tmp_path: Path) -> None:
    name = f"{write(WHOLE)}:network"
    plain = parse_job(job(name)).training.model
    assert plain.model_dump() == {"name": name, "hidden": 5}
    asked = parse_job(job({"name": name, "hidden": 9}))
    resolved = resolve(asked, num_cores=2, folder=tmp_path)
    assert resolved.job.training.code == str(tmp_path)
    assert [choice.value for choice in resolved.choices if choice.path == "workload.code"] == [str(tmp_path)]
    file = resolved.as_file()
    assert file["asked"]["workload"]["model"] == file["resolved"]["workload"]["model"] == {"name": name, "hidden": 9}
    assert Job.model_validate(file["resolved"]) == resolved.job


def test_it_may_be_in_a_package_and_in_another_folder(write: Write, tmp_path: Path) -> None:
    package = tmp_path / "elsewhere" / "mypackage"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "mymodule.py").write_text(WHOLE)
    asked = parse_job(job("mypackage.mymodule:build", code="elsewhere"))
    assert asked.training.code == str(tmp_path / "elsewhere"), "tasks have other working folders"
    resolved = resolve(asked, num_cores=2, folder=tmp_path)
    assert resolved.job.training.code == str(tmp_path / "elsewhere")
    assert not any(choice.path == "workload.code" for choice in resolved.choices), "it was asked for"


def test_an_installed_one_is_found_too(write: Write) -> None:
    """Here one of Headway's own files: what it calls itself differs, and that is said."""
    message = mistake(job("headway.workloads.models.softmax:build"))
    assert "workload.model.name: 'headway.workloads.models.softmax:build' is not allowed" in message


def test_tasks_get_the_folder_before_what_the_user_had(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = resolve(parse_job(job(f"{write(SMALLEST)}:build")), 2, folder=tmp_path).job
    built_in = resolve(parse_job(job("softmax")), 2, folder=tmp_path).job
    task, folder = own.cluster.tasks()[0], RunFolder(tmp_path / "run")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert task_command(own, task, folder, {}).env["PYTHONPATH"] == str(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "mine")
    assert task_command(own, task, folder, {}).env["PYTHONPATH"] == f"{tmp_path}{os.pathsep}mine"
    assert "PYTHONPATH" not in task_command(built_in, task, folder, {}).env
    assert built_in.training.code is None


def test_a_run_is_resumed_from_another_folder(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{write(SMALLEST)}:build"
    folder = create_run(parse_job(job(name)), tmp_path / "runs")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    sys.path.remove(str(tmp_path))
    del sys.modules[name.partition(":")[0]]
    change_job(folder, ["workload.stop.steps=77"])
    assert read_job(folder).training.stop.steps == 77
    assert read_job(folder).training.code == str(tmp_path)


# --- what it is -------------------------------------------------------------------------------------------------------
def test_only_build_is_required_and_the_rest_follows_from_the_data(write: Write) -> None:
    name = f"{write(SMALLEST)}:build"
    parse_job(job(name))
    classes, numbers = workloads.model(name, IMAGES), workloads.model(name, NUMBERS)
    assert (classes.loss, classes.correct) == (objectives.cross_entropy, objectives.is_largest)
    assert (numbers.loss, numbers.correct) == (objectives.squared_error, None)
    assert list(classes.Settings.model_fields) == ["name"]
    classes.check(None, NUMBERS)


@pytest.mark.parametrize(
    ("text", "has_accuracy"),
    [
        ("def loss(outputs, labels): ...", False),
        ("def loss(outputs, labels): ...\ndef correct(outputs, labels): ...", True),
        ("correct = None", False),
    ],
)
def test_a_loss_or_accuracy_of_its_own_is_taken(write: Write, text: str, has_accuracy: bool) -> None:
    name = f"{write(SMALLEST + text)}:build"
    parse_job(job(name))
    model = workloads.model(name, IMAGES)
    assert (model.correct is not None) == has_accuracy
    assert (model.loss is objectives.cross_entropy) == ("loss" not in text)
    settings = job(name, stop={"accuracy": 0.9}, evaluate={"every": 10})
    if has_accuracy:
        parse_job(settings)
    else:
        assert "has a loss, but no accuracy" in mistake(settings)


# --- mistakes ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["own:", ":build", "my model:build", "a.:build", "1a:build", "a:b:c", "a/b.py:build"])
def test_a_name_that_means_nothing_is_refused(write: Write, name: str) -> None:
    message = mistake(job(name))
    assert f"workload.model: {name!r}:" in message
    assert "write package.module:function, for example my_model:build" in message


def test_a_module_that_is_not_there_is_named_with_where_it_was_looked_for(write: Write, tmp_path: Path) -> None:
    for name, missing in (("nowhere_to_be_found:build", "nowhere_to_be_found"), ("json.nonsense:f", "json.nonsense")):
        message = mistake(job(name))
        assert f"no module {missing!r}; looked in {tmp_path} and among the installed packages" in message
        assert "workload.code" in message
    assert f"looked in {tmp_path / 'there'} and" in mistake(job("nowhere_to_be_found:build", code="there"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\n\nimport no_such_package\n", "line 3: ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1\ny = x / 0\n", "line 2: ZeroDivisionError: division by zero (when it is imported)"),
        ("def f():\n    return int('x')\nf()\n", "line 2: ValueError: invalid literal"),
        ("import json\njson.loads('{')\n", "line 2: JSONDecodeError"),
        ("import sys\nsys.exit('usage: train.py')\n", "line 2: SystemExit: usage: train.py"),
        ("def build(:\n", "line 1: invalid syntax"),
    ],
)
def test_code_that_fails_when_imported_is_named_with_file_and_line(
    write: Write, tmp_path: Path, text: str, wanted: str
) -> None:
    name = write(text)
    assert f"{tmp_path / name}.py, {wanted}" in mistake(job(f"{name}:build"))


@pytest.mark.parametrize(
    ("text", "function", "wanted"),
    [
        (WHOLE, "biuld", ["has no function 'biuld'", "did you mean 'build'?", "It has: check, network, build"]),
        (WHOLE, "Settings", ["Settings(", "cannot be called as Settings(features, settings, data, run)"]),
        ("x = 1", "build", ["has no function 'build'. It has: none"]),
        ("def build(x, y): ...", "build", ["build(x, y) cannot be called as build(features, settings, data, run)"]),
        (SMALLEST + "def loss(outputs): ...", "build", ["loss(outputs) cannot be called as loss(outputs, labels)"]),
        (SMALLEST + "correct = 5", "build", ["has no function 'correct'"]),
        (SMALLEST + "def check(data): ...", "build", ["check(data) cannot be called as check(settings, data)"]),
        (SMALLEST + "class Settings: ...", "build", ["Settings must be a class that derives from"]),
        (SMALLEST + "TYPICAL = 3", "build", ["TYPICAL must be a headway.workloads.base.DataInfo"]),
        (SMALLEST + "def check(s, d): d.colour", "build", ["py, line 7: AttributeError", "(when it checks the data)"]),
    ],
)
def test_what_is_wrong_in_the_file_is_said(write: Write, text: str, function: str, wanted: list[str]) -> None:
    message = mistake(job(f"{write(text)}:{function}"))
    assert all(part in message for part in wanted), message


def test_its_settings_and_its_data_are_checked_as_a_built_in_models_are(write: Write) -> None:
    name = f"{write(WHOLE)}:build"
    message = mistake(job({"name": name, "hiden": 3}))
    assert "workload.model.hiden: unknown setting; did you mean 'hidden'? Allowed here: name, hidden" in message
    assert "workload.model.hidden: 0 is not allowed; it must be greater than or equal to 1" in mistake(
        job({"name": name, "hidden": 0})
    )
    settings = job(name)
    settings["workload"]["dataset"]["classes"] = 8
    assert "workload: at most 7 classes" in mistake(settings)


# --- who imports it ---------------------------------------------------------------------------------------------------
def test_reading_a_run_never_imports_its_model(write: Write, tmp_path: Path) -> None:
    """A run folder is untrusted: what it names as its model may be anything that lies where a reader is."""
    name = write(SMALLEST)
    folder = create_run(parse_job(job(f"{name}:build")), tmp_path / "runs")
    folder.write_facts({**folder.facts(), "state": "stopped"})
    (tmp_path / f"{name}.py").write_text("from pathlib import Path\nPath('imported').touch()\n" + SMALLEST)
    run = ["--runs", "runs"]
    code = f"import headway; print(headway.load({folder.name!r}, 'runs').summary()['model'])"
    for command in (
        [sys.executable, "-m", "headway", "show", folder.name, *run],
        [sys.executable, "-m", "headway", "show", folder.name, *run, "-o", "json"],
        [sys.executable, "-m", "headway", "runs", *run, "-o", "json"],
        [sys.executable, "-m", "headway", "query", "select model from runs", *run],
        [sys.executable, "-c", code],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=tmp_path)
        assert f"{name}:build" in done.stdout, command
        assert not (tmp_path / "imported").exists(), command
    # ... and this would have been seen:
    load = f"from headway.launch.prepare import read_job; from headway.record.folder import RunFolder; from pathlib \
import Path; read_job(RunFolder(Path({str(folder.path)!r})))"
    subprocess.run([sys.executable, "-c", load], check=True, timeout=60, cwd=tmp_path)
    assert (tmp_path / "imported").exists()


# --- headway.testing, headway init model ------------------------------------------------------------------------------
def test_parameters_are_counted_and_a_few_examples_are_learnt(write: Write) -> None:
    name = f"{write(WHOLE)}:build"
    assert testing.count_parameters(name, IMAGES) == 16 * 5 + 5 + 5 * 3 + 3
    losses = testing.train_on_few(name, IMAGES, steps=50, learning_rate=0.05, hidden=20)
    assert len(losses) == 50
    assert losses[-1] < 0.1 * losses[0]
    assert testing.count_parameters("softmax") == 7850
    numbers = testing.train_on_few("linear", learning_rate=0.2)
    assert numbers[-1] < 0.1 * numbers[0]
    with pytest.raises(ValueError, match="has no TYPICAL data"):
        testing.count_parameters(name)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("return x", r"shape \[32, 32\]"),  # [batch, 1] beside [batch]
        ("return (x + layers.dense(run, 'unused', x, 1) * 0)[:, 0]", None),
        ("layers.dense(run, 'unused', x, 1); return x[:, 0]", "the loss does not depend on unused/weights"),
        (
            "import tensorflow as tf; return (x * tf.compat.v1.get_variable('mine', [1]))[:, 0]",
            "variables that would not be trained: mine",
        ),
        (
            "return layers.dense(run, 'more' if run.training else 'fewer', x, 1)[:, 0]",
            "built for evaluation, the model has other variables",
        ),
    ],
)
def test_what_training_relies_on_is_checked(write: Write, text: str, wanted: str | None) -> None:
    code = "from headway.workloads import layers\ndef build(features, settings, data, run):\n"
    code += f"    x = layers.dense(run, 'only', features, 1)\n    {text}\n"
    name = f"{write(code)}:build"
    if wanted is None:
        assert np.isfinite(testing.train_on_few(name, NUMBERS, steps=2)).all()
        return
    with pytest.raises((AssertionError, ValueError), match=wanted):
        testing.train_on_few(name, NUMBERS, steps=2)


def headway(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=cwd)


def test_init_model_writes_a_valid_job_says_what_to_do_and_overwrites_nothing(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = headway("init", "model", "new/place", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cd new/place\n  headway run my_model.yaml" in done.stdout
    files = {path.name for path in (tmp_path / "new" / "place").iterdir()}
    assert files == {"my_model.py", "my_model.yaml", "test_my_model.py"}
    shown = headway("run", "my_model.yaml", "--dry-run", "-o", "json", cwd=tmp_path / "new" / "place")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["job"]["workload"]["model"]["hidden"] == 64

    (tmp_path / "new" / "place" / "my_model.py").write_text("# changed")
    (tmp_path / "new" / "place" / "my_model.yaml").unlink()
    again = headway("init", "model", "new/place", cwd=tmp_path)
    assert again.returncode == 1
    assert "has my_model.py, test_my_model.py already; nothing was written" in again.stderr
    assert (tmp_path / "new" / "place" / "my_model.py").read_text() == "# changed"
    assert not (tmp_path / "new" / "place" / "my_model.yaml").exists()
    (tmp_path / "file").touch()
    assert "file cannot be written to: File exists" in headway("init", "model", "file", cwd=tmp_path).stderr
    assert headway("init", "model", cwd=tmp_path).stdout.endswith("docs/own-models.md\n")


def test_the_job_file_of_the_example_loads(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.cli.init import TEMPLATES

    monkeypatch.chdir(TEMPLATES)
    loaded = load_job(TEMPLATES / "my_model.yaml")
    assert loaded.training.model.name == "my_model:build"
    assert not [path for path in TEMPLATES.iterdir() if path.suffix not in (".py", ".yaml") and path.is_file()]
    sys.modules.pop("my_model")
