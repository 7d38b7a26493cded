"""Commands that need no run."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from headway import errors
from headway.cli import EPILOG


def headway(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)


def test_the_version_is_the_packages() -> None:
    assert headway("--version").stdout.strip() == f"headway {version('headway')}"


def test_the_schema_is_json_and_describes_a_job() -> None:
    schema = json.loads(headway("schema").stdout)
    assert schema["title"] == "Headway job"
    assert schema["additionalProperties"] is False


def test_data_sets_are_listed_and_verified() -> None:
    assert headway("data", "fetch", "mnist").returncode == 0
    listed = {one["name"]: one for one in json.loads(headway("data", "list", "-o", "json").stdout)}
    assert listed["mnist"]["here"]
    assert (listed["mnist"]["train"], listed["mnist"]["test"]) == (60_000, 10_000)
    assert json.loads(headway("data", "verify", "-o", "json").stdout) == {"mnist": [], "synthetic": []}
    unknown = headway("data", "fetch", "mnits")
    assert unknown.returncode == 3
    assert "did you mean 'mnist'?" in unknown.stderr


def test_models_are_listed_with_their_parameters() -> None:
    found = {one["name"]: one for one in json.loads(headway("models", "-o", "json").stdout)}
    assert (found["mnist_cnn"]["parameters"], found["softmax"]["parameters"]) == (3_274_634, 7_850)
    assert found["mnist_cnn"]["bytes"] == 4 * 3_274_634


def test_the_doctor_looks_at_what_a_run_needs() -> None:
    checks = {check["what"]: check for check in json.loads(headway("doctor", "-o", "json").stdout)}
    assert checks["TensorFlow"]["found"] == "2.21.0"
    assert checks["private network for local runs"]["verdict"] == "ok"
    assert all(check["advice"] for check in checks.values() if check["verdict"] == "missing")
    assert "emulated hosts" in checks


def test_machines_are_listed_and_their_sources_told() -> None:
    found = {one["name"]: one for one in json.loads(headway("machines", "-o", "json").stdout)}
    assert found["t2.micro"]["credits"]["per_hour"] == 6
    assert all(one["source"] and one["date"] for one in found.values())
    table = headway("machines").stdout.splitlines()
    assert len(table) == 1 + len(found)
    assert table[1].split()[:6] == ["n1-standard-1", "1", "4.03", "GB", "2", "Gbit/s"]


def test_clean_says_what_it_removed_and_can_be_repeated() -> None:
    assert headway("clean").returncode == 0
    assert headway("clean").stdout == "nothing is left of killed runs\n"
    assert headway("clean", "-o", "json").stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "no-such.yaml"), 3, "no job file"),
        (("show", "nothing", "--runs", "no-such-folder"), 3, "no run 'nothing'"),
        (("query", "select nonsense", "--runs", "no-such-folder"), 1, "query:"),
        (("frobnicate",), 2, "No such command"),
    ],
)
def test_a_mistake_gives_its_message_and_exit_code_and_no_traceback(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = headway(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_every_exit_code_is_documented() -> None:
    codes = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.HeadwayError)
    }
    text = " ".join(EPILOG.split())
    for code in codes | {errors.INTERRUPTED_EXIT_CODE}:
        assert f"{code} " in text
