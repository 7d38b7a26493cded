"""Data from files, as a user meets it: converted, trained from, and damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pictures import image_folder
from running import headway, write_job

import headway as api

pytestmark = [pytest.mark.real, pytest.mark.system]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_folder(tmp_path_factory.mktemp("data") / "photos", {"cats": 40, "dogs": 60})


def job_on(tmp_path: Path, **dataset: Any) -> str:
    workload = {"model": "softmax", "dataset": dataset, "batch_size": 20, "stop": {"steps": 12}}
    changes: dict[str, Any] = {"workload": workload, "strategy": "single", "cluster": {}, "restart": {"attempts": 0}}
    return str(write_job(tmp_path / "job.yaml", **changes))


def test_photographs_are_converted_verified_and_learnt(photos: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    done = headway("data", "convert", str(photos), str(shards), "--shards", "3", "image_size=[8,8]", root=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "90 training examples in 3 shards, 10 test examples in 1 shard" in done.stdout
    assert f"dataset: {{name: tfrecords, files: {shards}}}" in done.stdout
    again = headway("data", "convert", str(photos), str(shards), root=tmp_path)
    assert (again.returncode, "holds converted data already" in again.stderr) == (4, True)
    verified = headway("data", "verify", "tfrecords", f"files={shards}", "-o", "json", root=tmp_path)
    assert json.loads(verified.stdout) == {"tfrecords": []}
    run = headway("run", job_on(tmp_path, name="tfrecords", files=str(shards)), root=tmp_path / "runs")
    assert run.returncode == 0, run.stdout + run.stderr
    result = api.load("last", tmp_path / "runs").summary()
    assert (result["steps"], result["bad_records"]) == (12, 0)


def test_a_bad_image_fails_the_run_with_its_name_or_is_counted(tmp_path: Path) -> None:
    photos = image_folder(tmp_path / "photos", {"cats": 40, "dogs": 60})
    for path in (photos / "dogs").glob("*5.png"):
        path.write_bytes(path.read_bytes()[:-20])
    job = job_on(tmp_path, name="image_folder", path=str(photos), image_size=[8, 8])
    failed = headway("run", job, root=tmp_path / "runs")
    assert failed.returncode == 6
    assert "DataError: bad record: " in failed.stdout + failed.stderr
    assert "5.png, offset 0: a PNG image without its end: truncated" in failed.stdout + failed.stderr
    skipped = headway("run", job, "workload.dataset.on_bad_record=skip", root=tmp_path / "runs")
    assert skipped.returncode == 0, skipped.stdout + skipped.stderr
    assert api.load("last", tmp_path / "runs").summary()["bad_records"] == 6
    assert "6 skipped" in skipped.stdout


@pytest.mark.parametrize(
    ("dataset", "code", "message"),
    [
        ({"name": "image_folder", "path": "no-such-folder"}, 4, "no-such-folder cannot be read: No such file"),
        ({"name": "image_folder"}, 2, "workload.dataset.path: missing, and it has no default"),
        ({"name": "imagenet"}, 2, "write the folder that holds the shards, or synthetic: true"),
        ({"name": "mnist", "augment": {"shfit": 3}}, 2, "did you mean 'shift'?"),
        ({"name": "mnist", "size": 0}, 2, "workload.dataset.size"),
    ],
)
def test_a_mistake_about_data_is_one_clear_message(
    tmp_path: Path, dataset: dict[str, Any], code: int, message: str
) -> None:
    done = headway("run", job_on(tmp_path, **dataset), "--dry-run", root=tmp_path, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
