"""Training from files: the same as from memory, in every strategy; and what becomes of bad records in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from byhand import assert_close
from harness import launched, make_job
from inprocess import SOFTMAX, cluster, job_of
from pictures import damage, image_folder

from headway import workloads
from headway.engines.tensorflow.evaluation import Evaluation
from headway.engines.tensorflow.initial import initial_values
from headway.engines.tensorflow.problem import Problem
from headway.errors import DataError
from headway.workloads.convert import convert
from headway.workloads.datasets import synthetic
from headway.workloads.records import BadRecord

pytestmark = pytest.mark.system  # so that make test stays under ten minutes
STEPS = 8


@pytest.fixture
def shards(tmp_path: Path) -> dict[str, Any]:
    """240 made-up examples of four classes in five shards."""
    settings = synthetic.Settings(shape=[6, 6, 1], classes=4, size=240, test_size=30)
    convert(settings, tmp_path / "shards", 5, lambda *_: None)
    return {"name": "tfrecords", "files": str(tmp_path / "shards")}


@pytest.fixture
def photos(tmp_path: Path) -> dict[str, Any]:
    image_folder(tmp_path / "photos", {"a": 30, "b": 40})
    return {"name": "image_folder", "path": str(tmp_path / "photos"), "image_size": [8, 8]}


def job(dataset: dict[str, Any], servers: int, tasks: int, strategy: Any) -> Any:
    settings = {"model": SOFTMAX, "dataset": dataset, "batch_size": 20}
    return job_of(servers, tasks, strategy=strategy, workload=settings)


@pytest.mark.parametrize("data", ["shards", "photos"])
@pytest.mark.parametrize(
    ("servers", "tasks", "strategy"),
    [
        (0, 1, "single"),
        (1, 1, "ps-async"),
        (2, 2, "ps-sync"),
        (1, 2, {"kind": "ps-sync", "replication": "in_graph"}),
    ],
)
def test_streamed_data_trains_like_data_in_memory(
    request: pytest.FixtureRequest, tmp_path: Path, data: str, servers: int, tasks: int, strategy: Any
) -> None:
    dataset = {**request.getfixturevalue(data), "augment": {"shift": 1, "flip": True}}
    found = []
    for in_memory in (True, False):
        with cluster(tmp_path, job({**dataset, "in_memory": in_memory}, servers, tasks, strategy)) as run:
            losses = {name: [one.loss for one in results] for name, results in run.steps(STEPS).items()}
            found.append((losses, run.values()))
    assert found[0][0] == found[1][0], "the very same batches"
    assert_close(found[1][1], found[0][1], rtol=1e-6, atol=0)


def test_a_restarted_task_goes_on_with_the_next_batch(tmp_path: Path, photos: dict[str, Any]) -> None:
    with cluster(tmp_path, job({**photos, "augment": {"crop": 0.5}}, 1, 1, "ps-async")) as run:
        [whole] = run.steps(6).values()
    with cluster(tmp_path, job({**photos, "augment": {"crop": 0.5}}, 1, 1, "ps-async")) as run:
        run.steps(3)
        run.trainers[run.chief].close()
        run.start(own_steps=3)
        [rest] = run.steps(3).values()
    assert [one.loss for one in rest] == [one.loss for one in whole[3:]]


def test_a_bad_record_ends_a_task_with_its_place(tmp_path: Path, shards: dict[str, Any]) -> None:
    path = tmp_path / "shards" / "train-00002-of-00005.tfrecord"
    damage(path, 30)
    with cluster(tmp_path, job(shards, 1, 1, "ps-async")) as run, pytest.raises(DataError) as error:
        run.steps(14)
    assert str(error.value).startswith(f"bad record: {path}, offset 0: wrong checksum")
    with cluster(tmp_path, job({**shards, "on_bad_record": "skip"}, 0, 1, "single")) as run:
        run.steps(26)  # more than two epochs
        run.trainers[run.chief].assignment.events.flush()
        events = run.folder.events(run.job.cluster.training_tasks()[0]).read_text()
    assert events.count('"bad_record"') == 1
    assert f'"file": "{path}", "offset": 0, "reason": "wrong checksum"' in events


def evaluated(job: Any, bad: list[BadRecord]) -> Any:
    problem, config = Problem(job), tf.compat.v1.ConfigProto()
    return Evaluation(problem, config, bad.append).evaluate(initial_values(problem, 1, config))


def test_evaluation_reads_every_test_record_once(tmp_path: Path, shards: dict[str, Any]) -> None:
    bad: list[BadRecord] = []
    streamed = evaluated(job(shards, 0, 1, "single"), bad)
    arrays = {"name": "synthetic", "shape": [6, 6, 1], "classes": 4, "size": 240, "test_size": 30}
    expected = evaluated(job(arrays, 0, 1, "single"), bad)
    assert streamed.num_examples == expected.num_examples == 30
    assert streamed.accuracy == pytest.approx(expected.accuracy)
    assert streamed.loss == pytest.approx(expected.loss, rel=1e-5)
    path = tmp_path / "shards" / "test-00000-of-00001.tfrecord"
    damage(path, 30)
    with pytest.raises(DataError, match=r"test-00000-of-00001\.tfrecord, offset 0: wrong checksum"):
        evaluated(job(shards, 0, 1, "single"), bad)
    skipped = evaluated(job({**shards, "on_bad_record": "skip"}, 0, 1, "single"), bad)
    assert skipped.num_examples == 29
    assert len(bad) == 1


def test_synthetic_in_place_of_real_data_reads_no_file(tmp_path: Path, photos: dict[str, Any]) -> None:
    settings = job({**photos, "synthetic": True}, 0, 1, "single")
    for path in (tmp_path / "photos").glob("*/*.png"):
        path.write_bytes(b"")  # names are listed, contents are not read
    with cluster(tmp_path, settings) as run:
        assert np.isfinite([one.loss for one in run.steps(3)["chief/0"]]).all()


@pytest.mark.real
def test_allreduce_trains_from_files(tmp_path: Path, photos: dict[str, Any]) -> None:
    settings = make_job(
        workload={"dataset": {**photos, "augment": {"crop": 0.4, "flip": True}}, "stop": {"steps": 20}},
        strategy="allreduce",
        cluster={"chief": 1, "worker": 1},
    )
    assert workloads.dataset("image_folder").describe(settings.training.dataset).num_train == 63
    with launched(tmp_path, settings) as run:
        run.finish()
        [finished] = run.events("chief/0", "finished")
        assert finished["step"] == 20
        [evaluation] = run.events("chief/0", "evaluation")
        assert evaluation["num_examples"] == 7
