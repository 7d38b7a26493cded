"""What every data set promises, and what is special about each."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from pictures import image_folder, numbered_shards, picture, png
from pydantic import ValidationError

from headway import workloads
from headway.errors import DataError
from headway.workloads import example, tfrecord
from headway.workloads.base import Arrays, DataInfo, Dataset, Settings, Split
from headway.workloads.datasets import image_folder as folders
from headway.workloads.datasets import imagenet, mnist, synthetic
from headway.workloads.records import BadRecord, Example, Records


def silent(what: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture(params=workloads.dataset_names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dataset(name: str) -> Dataset:
    return workloads.dataset(name)


@pytest.fixture
def asked(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The least that must be said of each data set, with files for those that a user brings."""
    if name == "image_folder":
        return {"path": str(image_folder(tmp_path / "photos", {"cats": 12, "dogs": 9})), "image_size": [8, 8]}
    if name == "tfrecords":
        return {"files": str(numbered_shards(tmp_path / "shards", [5, 9], [4]))}
    if name == "imagenet":
        monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "cache"))  # where its index goes
        return {"path": str(imagenet_shards(tmp_path / "imagenet"))}
    return {}


def imagenet_shards(folder: Path) -> Path:
    """In ImageNet's format; labels 1 and 1000, photographs of one pixel."""
    folder.mkdir()
    for prefix, count in (("train", 3), ("validation", 1)):
        for number in range(count):
            messages = [
                example.encode({"image/encoded": png(picture(label % 256, (1, 1, 3))), "image/class/label": label})
                for label in (1, 1000)
            ]
            path = folder / f"{prefix}-{number:05d}-of-{count:05d}"
            path.write_bytes(tfrecord.frame(messages))
    return folder


def test_settings_are_valid_documented_and_carry_the_name(name: str, dataset: Dataset, asked: dict[str, Any]) -> None:
    settings = dataset.Settings.model_validate({"name": name, **asked})
    assert settings.name == name
    assert dataset.Settings.model_validate(settings.model_dump(mode="json")) == settings
    undocumented = {field for field, info in dataset.Settings.model_fields.items() if not info.description} - {"name"}
    assert not undocumented
    assert dataset.SUMMARY
    assert (workloads.default_settings(name) is None) == bool(asked)


def test_an_unknown_setting_is_refused(name: str, dataset: Dataset, asked: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        dataset.Settings.model_validate({"name": name, "no_such_setting": 1, **asked})


LARGE = ("cifar10", "fashion_mnist")
SMALL = [name for name in workloads.dataset_names() if name not in LARGE]
SPLITS: tuple[Split, ...] = ("train", "test")


@pytest.mark.parametrize("name", SMALL)
def test_what_is_loaded_is_what_was_described(dataset: Dataset, asked: dict[str, Any]) -> None:
    """Fetches MNIST into the user's cache, so only the first run of the tests needs a network."""
    check_all(dataset, dataset.Settings.model_validate(asked))


@pytest.mark.system
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("large", LARGE)
def test_what_is_fetched_is_what_was_described(large: str) -> None:
    check_all(workloads.dataset(large), workloads.dataset(large).Settings.model_validate({}))


def check_all(dataset: Dataset, settings: Settings) -> None:
    cache = workloads.cache_folder()
    workloads.fetch(settings, cache, silent)
    assert dataset.verify(settings, cache) == []
    info = dataset.describe(settings)
    for split in SPLITS:
        num_examples = info.num_train if split == "train" else info.num_test
        source = workloads.load(settings, cache, split)
        if isinstance(source, Records):
            check_records(source, info, num_examples)
        else:
            check_arrays(source, info, num_examples)
            for first, second in zip(source, workloads.load(settings, cache, split), strict=True):  # type: ignore[arg-type]
                np.testing.assert_array_equal(first, second)


def check_arrays(arrays: Arrays, info: DataInfo, num_examples: int) -> None:
    features, labels = arrays
    assert features.shape == (num_examples, *info.shape)
    assert features.dtype == info.dtype
    assert labels.shape == (num_examples,)
    assert abs(features.astype(np.float32).max() * info.scale) < 10, "numbers that a model can start with"
    if info.classes is None:
        assert labels.dtype == np.float32
    else:
        assert labels.dtype == np.int32
        assert set(labels.tolist()) == set(range(info.classes))


def check_records(records: Records, info: DataInfo, num_examples: int) -> None:
    assert len(records) == num_examples
    assert (records.content.shape, records.content.dtype) == (info.shape, info.dtype)
    results = records.read(range(num_examples))
    assert not [result for result in results if isinstance(result, BadRecord)]
    assert info.classes is not None
    assert all(0 <= result.label < info.classes for result in results if isinstance(result, Example))
    if records.content.encoding == "raw":
        assert {len(result.content) for result in results if isinstance(result, Example)} == {4 * math.prod(info.shape)}


@pytest.mark.parametrize("size", [0.1, 0.5, 1, 2, 2.5])
@pytest.mark.parametrize("name", [name for name in SMALL if name != "synthetic"])  # which is of any size anyway
def test_data_of_another_size(dataset: Dataset, asked: dict[str, Any], size: float) -> None:
    whole = dataset.Settings.model_validate(asked)
    settings = dataset.Settings.model_validate({**asked, "size": size})
    num_examples = dataset.describe(whole).num_train
    assert dataset.describe(settings).num_train == max(1, round(size * num_examples))
    assert dataset.describe(settings).num_test == dataset.describe(whole).num_test
    source = workloads.load(settings, workloads.cache_folder(), "train")
    num_rows = len(source) if isinstance(source, Records) else len(source[0])
    assert num_rows == max(1, min(num_examples, round(size * num_examples))), "a multiple is read again, not copied"
    if isinstance(source, Records):
        places = [source.place(number) for number in range(num_rows)]
        assert len(set(places)) == num_rows


def test_synthetic_data_in_place_of_real_needs_no_files() -> None:
    settings = imagenet.Settings(synthetic=True)
    info = imagenet.describe(settings)
    assert (info.num_train, info.num_test, info.shape, info.classes) == (1_281_167, 50_000, (224, 224, 3), 1000)
    workloads.fetch(settings, Path("nowhere"), silent)
    features, labels = cast(Arrays, workloads.load(settings, Path("nowhere"), "train"))
    assert features.nbytes < 100e6
    assert features.dtype == np.uint8
    assert features.shape[1:] == info.shape
    assert labels.max() < 1000
    numbers = cast(Arrays, workloads.load(mnist.Settings(synthetic=True, size=0.01), Path("nowhere"), "train"))
    assert numbers[0].shape == (600, 28, 28, 1)


def test_data_sets_and_fetching_work_without_tensorflow() -> None:
    code = "import sys; from headway import workloads\n"
    code += "for name in workloads.dataset_names(): workloads.dataset(name)\n"
    code += "sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_mnist_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    settings = mnist.Settings()
    assert mnist.verify(settings, tmp_path) == [f"{name} is missing" for name in mnist.FILES]
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz is missing.*headway data fetch mnist"):
        mnist.load(settings, tmp_path, "test")


def test_a_damaged_mnist_is_not_loaded(tmp_path: Path) -> None:
    settings = mnist.Settings()
    mnist.fetch(settings, workloads.cache_folder(), silent)
    (tmp_path / "mnist").mkdir()
    for name in mnist.FILES:
        content = bytearray((workloads.cache_folder() / "mnist" / name).read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "mnist" / name).write_bytes(content)
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz is damaged"):
        mnist.load(settings, tmp_path, "test")


def idx(shape: tuple[int, ...], values: bytes, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape) + values


def test_an_idx_file_may_be_unpacked(tmp_path: Path) -> None:
    (tmp_path / "file-idx2-ubyte").write_bytes(idx((2, 3), bytes(range(6))))
    assert mnist.read_idx(tmp_path / "file-idx2-ubyte", (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_idx_file_is_read_in_its_shape(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(gzip.compress(idx((2, 3), bytes(range(6)))))
    assert mnist.read_idx(tmp_path / "file.gz", (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(idx((2, 3), bytes(range(5)))),
        gzip.compress(idx((2, 3), bytes(range(7)))),
        gzip.compress(idx((3, 2), bytes(range(6)))),
        gzip.compress(idx((6,), bytes(range(6)))),
        gzip.compress(idx((2, 3), bytes(range(6)), kind=9)),
        gzip.compress(idx((2, 3), bytes(range(6))))[:-9],
        gzip.compress(b""),
        b"not gzip",
    ],
    ids=["short", "long", "turned", "flat", "other type", "truncated gzip", "empty", "no gzip"],
)
def test_a_file_that_is_not_the_expected_idx_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"file\.gz"):
        mnist.read_idx(tmp_path / "file.gz", (2, 3))


def test_synthetic_data_depends_on_its_own_seed_alone(tmp_path: Path) -> None:
    first = synthetic.load(synthetic.Settings(size=50), tmp_path, "train")
    other = synthetic.load(synthetic.Settings(size=50, seed=1), tmp_path, "train")
    assert not np.array_equal(first[0], other[0])
    test = synthetic.load(synthetic.Settings(size=50, test_size=50), tmp_path, "test")
    assert not np.array_equal(first[0], test[0]), "the test set is not the training set"
    larger = synthetic.load(synthetic.Settings(size=60, test_size=50), tmp_path, "test")
    np.testing.assert_array_equal(test[0], larger[0])


def test_synthetic_classes_lie_around_the_same_prototypes_in_both_splits(tmp_path: Path) -> None:
    settings = synthetic.Settings(shape=[5, 4], classes=3, size=600, test_size=300, noise=0.1)
    train, train_labels = synthetic.load(settings, tmp_path, "train")
    test, test_labels = synthetic.load(settings, tmp_path, "test")
    means = np.stack([train[train_labels == label].mean(axis=0) for label in range(3)])
    distances = ((test[:, np.newaxis] - means) ** 2).sum(axis=(2, 3))
    assert (distances.argmin(axis=1) == test_labels).mean() > 0.99


def test_synthetic_numbers_are_three_times_the_features_and_noise(tmp_path: Path) -> None:
    settings = synthetic.Settings(classes=None, noise=0.25, size=5000)
    assert settings.shape == [1], "E2's example needs no further setting"
    features, labels = synthetic.load(settings, tmp_path, "train")
    slope, intercept = np.polyfit(features[:, 0], labels, 1)
    assert slope == pytest.approx(3, abs=0.02)
    assert intercept == pytest.approx(0, abs=0.02)
    assert np.std(labels - 3 * features[:, 0]) == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize(
    "wrong", [{"classes": 1}, {"shape": []}, {"shape": [0]}, {"size": 0}, {"noise": -1}, {"seed": -1}]
)
def test_impossible_synthetic_data_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as error:
        synthetic.Settings.model_validate(wrong)
    assert error.value.errors()[0]["loc"][0] == next(iter(wrong))


# --- photographs in folders ---------------------------------------------------------------------------------
def photos(path: Path, **settings: Any) -> folders.Settings:
    return folders.Settings.model_validate({"path": str(path), "image_size": [8, 8], **settings})


def test_each_class_is_split_by_the_seed(tmp_path: Path) -> None:
    path = image_folder(tmp_path / "photos", {"b": 30, "a": 10, "c": 2})
    (path / "a" / "notes.txt").write_text("no image")
    (path / "a" / ".hidden.png").write_text("no image")
    (path / ".git").mkdir()
    settings = photos(path, test_share=0.2)
    assert folders.class_names(settings) == ["a", "b", "c"]
    train, test = (folders.load(settings, tmp_path, split) for split in SPLITS)
    assert np.bincount(test.labels).tolist() == [2, 6, 1]
    assert np.bincount(train.labels).tolist() == [8, 24, 1]
    assert not set(train.paths) & set(test.paths)
    assert all(label == "abc".index(file.parent.name) for file, label in zip(train.paths, train.labels, strict=True))
    assert folders.load(settings, tmp_path, "test").paths == test.paths
    assert folders.load(photos(path, test_share=0.2, seed=1), tmp_path, "test").paths != test.paths
    (path / "c" / "another.png").write_bytes(png(picture(99)))
    assert folders.load(settings, tmp_path, "test").paths[:8] == test.paths[:8], "other classes keep their split"
    assert folders.describe(settings).num_train == 34, "a changed folder is listed anew"


def test_a_folder_without_classes_or_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="photos cannot be read: No such file"):
        folders.describe(photos(tmp_path / "photos"))
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    with pytest.raises(DataError, match="two at least; it holds 1 folder"):
        folders.describe(photos(tmp_path / "photos"))
    (tmp_path / "photos" / "dogs").mkdir()
    with pytest.raises(DataError, match=r"class 'cats' \(.*photos/cats\) has no image"):
        folders.describe(photos(tmp_path / "photos"))
    for number, name in enumerate(("cats", "cats", "dogs")):
        (tmp_path / "photos" / name / f"{number}.png").write_bytes(png(picture(number)))
    with pytest.raises(DataError, match=r"class 'dogs' .* has one image"):
        folders.describe(photos(tmp_path / "photos"))


def test_images_are_verified_without_decoding_them(tmp_path: Path) -> None:
    path = image_folder(tmp_path / "photos", {"cats": 6, "dogs": 2})
    contents = {
        "0000.png": png(picture(0))[:-1],
        "0001.png": b"",
        "0002.png": b"text",
        "0003.png": b"\xff\xd8\xff\xe0 half a photograph",
        "0004.png": b"GIF89a half a picture",
        "0005.png": b"BM\xff\x00\x00\x00 a bitmap's beginning",
    }
    for name, content in contents.items():
        (path / "cats" / name).write_bytes(content)
    found = folders.verify(photos(path), tmp_path)
    assert len(found) == len(contents)
    assert all(f"{path}/cats/" in problem and ", offset 0: " in problem for problem in found)
    assert {problem.rpartition(": ")[2] for problem in found} >= {"truncated", "is empty"}


def test_a_missing_shard_of_imagenet_is_named(tmp_path: Path) -> None:
    path = imagenet_shards(tmp_path / "imagenet")
    (path / "train-00001-of-00003").unlink()
    with pytest.raises(DataError, match=r"imagenet: missing: train-00001-of-00003 in .*imagenet"):
        imagenet.describe(imagenet.Settings(path=str(path)))
    with pytest.raises(ValidationError, match="path: write the folder that holds the shards, or synthetic: true"):
        imagenet.Settings()


def test_what_cannot_be_together_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="nothing to cut from"):
        photos(tmp_path, in_memory=True, augment={"crop": 0.5})
    with pytest.raises(ValidationError, match="crop"):
        mnist.Settings.model_validate({"augment": {"crop": 0.5}})
