"""Any data set as shards: everything is there once, checked, and damage is found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pictures import damage, image_folder

from headway import workloads
from headway.errors import DataError
from headway.workloads.convert import convert
from headway.workloads.datasets import image_folder as folders
from headway.workloads.datasets import synthetic, tfrecords
from headway.workloads.png import read_png
from headway.workloads.records import BadRecord, Example
from headway.workloads.shards import INDEX


def silent(what: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path: Path) -> folders.Settings:
    path = image_folder(tmp_path / "photos", {"cats": 11, "dogs": 20, "eels": 3})
    return folders.Settings.model_validate({"path": str(path), "image_size": [8, 8], "test_share": 0.2})


def read_all(settings: tfrecords.Settings, split: workloads.base.Split) -> list[Example]:
    records = tfrecords.load(settings, workloads.cache_folder(), split)
    results = records.read(range(len(records)))
    assert not [result for result in results if isinstance(result, BadRecord)]
    return [result for result in results if isinstance(result, Example)]


@pytest.mark.parametrize("num_shards", [1, 3, 27])
def test_a_folder_of_images_becomes_shards_that_hold_every_image_once(
    photos: folders.Settings, tmp_path: Path, num_shards: int
) -> None:
    progress: list[tuple[int, int | None]] = []
    index, skipped = convert(
        photos, tmp_path / "shards", num_shards, lambda _, done, total: progress.append((done, total))
    )
    assert skipped == []
    assert len(index.splits["train"]) == num_shards
    assert index.class_names == ["cats", "dogs", "eels"]
    assert progress[-1][0] == progress[-1][1]
    settings = tfrecords.Settings(files=str(tmp_path / "shards"))
    assert tfrecords.verify(settings, workloads.cache_folder()) == []
    assert tfrecords.describe(settings) == folders.describe(photos)
    numbers = []
    for split in ("train", "test"):
        for one in read_all(settings, split):
            number = int(read_png(one.content)[0, 0, 0])
            assert one.label == (0 if number < 11 else 1 if number < 31 else 2)
            numbers.append(number)
    assert sorted(numbers) == list(range(34))
    assert sorted(path.name for path in (tmp_path / "shards").iterdir() if path.name.startswith(".")) == []


def test_arrays_become_shards_of_their_numbers(tmp_path: Path) -> None:
    settings = synthetic.Settings(shape=[2, 3], classes=None, size=17, test_size=5)
    convert(settings, tmp_path / "shards", 4, silent)
    found = tfrecords.Settings(files=str(tmp_path / "shards"))
    assert tfrecords.describe(found) == synthetic.describe(settings)
    features, labels = synthetic.load(settings, tmp_path, "train")
    expected = Counter((row.tobytes(), float(label)) for row, label in zip(features, labels, strict=True))
    assert Counter((one.content, one.label) for one in read_all(found, "train")) == expected


def test_a_bad_image_is_named_or_left_out(photos: folders.Settings, tmp_path: Path) -> None:
    bad = tmp_path / "photos" / "dogs" / "0015.png"
    bad.write_bytes(bad.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"bad record: .*dogs/0015\.png, offset 0: a PNG image without its end"):
        convert(photos, tmp_path / "shards", 2, silent)
    assert not (tmp_path / "shards" / INDEX).exists(), "what is not complete has no index"
    assert not list((tmp_path / "shards").glob(".*"))
    index, skipped = convert(photos, tmp_path / "shards", 2, silent, skip_bad=True)
    assert [Path(one.file) for one in skipped] == [bad]
    assert index.skipped == 1
    assert sum(len(shard.lengths) for split in index.splits.values() for shard in split) == 33


def test_nothing_is_overwritten_and_shards_are_not_empty(photos: folders.Settings, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="27 examples cannot fill 28 shards"):
        convert(photos, tmp_path / "shards", 28, silent)
    convert(photos, tmp_path / "shards", 1, silent)
    with pytest.raises(DataError, match="holds converted data already"):
        convert(photos, tmp_path / "shards", 1, silent)


def test_damage_of_shards_is_found(photos: folders.Settings, tmp_path: Path) -> None:
    convert(photos, tmp_path / "shards", 3, silent)
    settings, cache = tfrecords.Settings(files=str(tmp_path / "shards")), tmp_path / "cache"
    first, second, third = sorted((tmp_path / "shards").glob("train-*"))
    damage(first, 40)
    second.write_bytes(second.read_bytes()[:-1])
    third.unlink()
    problems = tfrecords.verify(settings, cache)
    assert problems[0] == f"{first}, offset 0: wrong checksum"
    assert "bytes instead of" in problems[1]
    assert problems[2] == f"{third}: is missing"
    with pytest.raises(DataError, match=r"missing: .*train-00002-of-00003\.tfrecord"):
        tfrecords.fetch(settings, cache, silent)


def test_other_peoples_shards_need_only_a_few_settings(photos: folders.Settings, tmp_path: Path) -> None:
    convert(photos, tmp_path / "shards", 3, silent)
    (tmp_path / "shards" / INDEX).unlink()
    asked = {"files": str(tmp_path / "shards" / "train-*")}
    with pytest.raises(DataError, match=r"no index\.json beside .*: write test_files too"):
        tfrecords.describe(tfrecords.Settings.model_validate(asked))
    asked["test_files"] = str(tmp_path / "shards" / "test-*")
    with pytest.raises(ValueError, match="classes: there is no index"):
        tfrecords.describe(tfrecords.Settings.model_validate(asked))
    settings = tfrecords.Settings.model_validate({**asked, "classes": 3, "image_size": [8, 8]})
    assert tfrecords.describe(settings) == folders.describe(photos)
    assert len(read_all(settings, "train")) == 27
    (tmp_path / "shards" / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(DataError, match=r"missing: train-00001-of-00003\.tfrecord"):
        tfrecords.fetch(settings, tmp_path / "cache", silent)
    with pytest.raises(DataError, match="no file matches"):
        tfrecords.describe(tfrecords.Settings.model_validate({**asked, "files": str(tmp_path / "no-*")}))


def test_the_index_says_what_it_is_made_of(photos: folders.Settings, tmp_path: Path) -> None:
    convert(photos, tmp_path / "shards", 2, silent)
    stored = json.loads((tmp_path / "shards" / INDEX).read_text())
    assert stored["format"] == 1
    assert stored["source"] == "image_folder"
    assert stored["layout"]["content"] == {"encoding": "image", "shape": [8, 8, 3], "dtype": "uint8"}
    assert all(len(shard["sha256"]) == 64 for shard in stored["splits"]["train"])


def test_sized_data_converts_to_that_size(photos: folders.Settings, tmp_path: Path) -> None:
    convert(photos.model_copy(update={"size": 0.5}), tmp_path / "shards", 2, silent)
    assert len(read_all(tfrecords.Settings(files=str(tmp_path / "shards")), "train")) == 14
