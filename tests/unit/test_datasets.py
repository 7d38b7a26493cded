"""What every data set promises, and what is special about each."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from headway import workloads
from headway.errors import DataError
from headway.workloads.base import Dataset, Split
from headway.workloads.datasets import mnist, synthetic


def silent(what: str, done: int, total: int | None) -> None:
    pass


@pytest.fixture(params=workloads.dataset_names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dataset(name: str) -> Dataset:
    return workloads.dataset(name)


def test_default_settings_are_valid_and_carry_the_name(name: str, dataset: Dataset) -> None:
    settings = dataset.Settings.model_validate({"name": name})
    assert settings.name == name
    assert dataset.Settings.model_validate(settings.model_dump(mode="json")) == settings
    undocumented = {field for field, info in dataset.Settings.model_fields.items() if not info.description} - {"name"}
    assert not undocumented
    assert dataset.SUMMARY


def test_an_unknown_setting_is_refused(name: str, dataset: Dataset) -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        dataset.Settings.model_validate({"name": name, "no_such_setting": 1})


@pytest.mark.parametrize("split", ["train", "test"])
def test_what_is_loaded_is_what_was_described(dataset: Dataset, split: Split) -> None:
    """Fetches into the user's cache, so only the first run of the tests needs a network."""
    settings = dataset.Settings.model_validate({})
    cache = workloads.cache_folder()
    info = dataset.describe(settings)
    dataset.fetch(settings, cache, silent)
    assert dataset.verify(settings, cache) == []
    features, labels = dataset.load(settings, cache, split)
    num_examples = info.num_train if split == "train" else info.num_test
    assert features.shape == (num_examples, *info.shape)
    assert features.dtype in (np.uint8, np.float32)
    assert labels.shape == (num_examples,)
    assert abs(features.astype(np.float32).max() * info.scale) < 10, "numbers that a model can start with"
    if info.classes is None:
        assert labels.dtype == np.float32
    else:
        assert labels.dtype == np.int32
        assert set(labels.tolist()) == set(range(info.classes))
    again = dataset.load(settings, cache, split)
    np.testing.assert_array_equal(features, again[0])
    np.testing.assert_array_equal(labels, again[1])


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
