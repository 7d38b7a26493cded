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
    assert listed["image_folder"]["here"] is None, "the user's own files"
    verified = json.loads(headway("data", "verify", "mnist", "synthetic", "-o", "json").stdout)
    assert verified == {"mnist": [], "synthetic": []}
    assert "settings (size=2) are for one data set" in headway("data", "verify", "size=2").stderr
    unknown = headway("data", "fetch", "mnits")
    assert unknown.returncode == 3
    assert "did you mean 'mnist'?" in unknown.stderr


def test_models_are_listed_with_their_parameters_and_their_work() -> None:
    """Parameters and billions of multiplications for one example, as they are published or counted by hand."""
    expected = {
        "alexnet": (61_100_840, 0.714),
        "autoencoder": (314_584, 2 * 784 * 200 / 1e9),
        "inception_resnet_v1": (22_742_808, None),
        "inception_v3": (23_817_352, 5.7),
        "linear": (2, 1 / 1e9),
        "mnist_cnn": (3_274_634, (784 * 25 * 32 + 196 * 25 * 32 * 64 + 3136 * 1024 + 1024 * 10) / 1e9),
        "resnet": (658_586, 0.09717),
        "resnet50": (25_557_032, 4.1),
        "softmax": (7_850, 7840 / 1e9),
        "spatial_transformer": (832_396, None),
        "vgg16": (138_357_544, 15.5),
    }
    found = {one["name"]: one for one in json.loads(headway("models", "-o", "json").stdout)}
    assert found.keys() == expected.keys()
    for name, (parameters, giga_products) in expected.items():
        assert (found[name]["parameters"], found[name]["bytes"]) == (parameters, 4 * parameters), name
        if giga_products is not None:
            assert found[name]["flops"] == pytest.approx(2e9 * giga_products, rel=0.01), name
    [vgg16] = [line for line in headway("models").stdout.splitlines() if line.startswith("vgg16")]
    assert vgg16.split()[1:8] == ["138,357,544", "553", "MB", "30.9", "GFLOP", "224x224x3", "->"]


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
