"""Data that is read from files batch by batch: every example once, the same after a restart, bad records named."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from pictures import damage, image_folder, numbered_shards, picture, png

from headway.engines.tensorflow.input import index_batches, share_length
from headway.engines.tensorflow.stream import Stream
from headway.errors import DataError
from headway.workloads import example, tfrecord
from headway.workloads.base import DataInfo
from headway.workloads.datasets import image_folder as folders
from headway.workloads.datasets import tfrecords
from headway.workloads.png import read_png
from headway.workloads.records import BadRecord, Files, Records
from headway.workloads.streamed import StreamedData

INFO = DataInfo((1,), 4, 0, 0)


class Found(list[BadRecord]):
    """Bad records that were reported."""


def stream_of(records: Records, found: Found | None = None, **settings: Any) -> Stream:
    report: Callable[[BadRecord], None] = Found().append if found is None else found.append
    return Stream(records, INFO, StreamedData(name="test", **settings), threads=2, report=report)


def numbers_of(folder: Path) -> Records:
    settings = tfrecords.Settings(files=str(folder))
    return tfrecords.load(settings, folder, "train")


def batches_of(
    stream: Stream, count: int, batch_size: int = 4, first: int = 0, **settings: Any
) -> list[tuple[Any, Any]]:
    indices = index_batches(len(stream.records), batch_size, seed=5, first_batch=first, **settings)
    dataset = stream.batches(indices, lambda features, *_: features)
    return [(features.numpy(), labels.numpy()) for features, labels in itertools.islice(dataset, count)]


# --- sharing out ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("num_tasks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("sizes", [[23], [12, 11], [5, 1, 9, 2, 1, 1, 3, 1]], ids=["1 file", "2 files", "8 files"])
def test_in_every_epoch_each_record_is_read_once_by_one_task(tmp_path: Path, num_tasks: int, sizes: list[int]) -> None:
    """23 records: there is a remainder for every number of tasks, and there are more and fewer files than tasks."""
    stream = stream_of(numbers_of(numbered_shards(tmp_path, sizes)))
    epochs: list[list[float]] = [[], []]
    for task in range(num_tasks):
        share = share_length(23, task, num_tasks)
        batches = batches_of(stream, -(-2 * share // 4), task_number=task, num_tasks=num_tasks)
        assert {len(labels) for _, labels in batches} == {4}, "every batch is full"
        numbers = np.concatenate([features[:, 0] for features, _ in batches])
        np.testing.assert_array_equal(numbers % 4, np.concatenate([labels for _, labels in batches]))
        for epoch, read in enumerate(epochs):
            read.extend(numbers[epoch * share : (epoch + 1) * share].tolist())
    for read in epochs:
        assert sorted(read) == list(range(23))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("first", [0, 1, 5, 6, 20])
def test_a_restarted_task_reads_on_where_it_left_off(tmp_path: Path, first: int) -> None:
    stream = stream_of(numbers_of(numbered_shards(tmp_path, [12, 11])))
    whole = batches_of(stream, first + 3, task_number=1, num_tasks=2)
    again = batches_of(stream, 3, first=first, task_number=1, num_tasks=2)
    np.testing.assert_array_equal([features for features, _ in again], [features for features, _ in whole[first:]])


def test_all_records_come_once_in_order(tmp_path: Path) -> None:
    stream = stream_of(numbers_of(numbered_shards(tmp_path, [12, 11])))
    numbers = np.concatenate([features.numpy()[:, 0] for features, _ in stream.in_order(10, lambda stored: stored)])
    assert numbers.tolist() == list(range(23))


# --- the same format as TensorFlow's -------------------------------------------------------------------------
def test_tensorflow_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    features: dict[str, list[example.Value]] = {
        "label": [-3, 2**40],
        "bytes": [b"\x00\xff", b""],
        "numbers": [0.5, -1.25],
    }
    ours.write_bytes(tfrecord.frame([example.encode(features), b"", b"x" * 70_000]))
    messages = [record.numpy() for record in tf.data.TFRecordDataset(str(ours))]
    assert messages[1:] == [b"", b"x" * 70_000]
    parsed = tf.train.Example.FromString(messages[0]).features.feature
    assert list(parsed["label"].int64_list.value) == [-3, 2**40]
    assert list(parsed["bytes"].bytes_list.value) == [b"\x00\xff", b""]
    assert list(parsed["numbers"].float_list.value) == [0.5, -1.25]
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for message in messages:
            writer.write(message)
    assert theirs.read_bytes() == ours.read_bytes()
    written = tf.train.Example.FromString(messages[0]).SerializeToString()
    assert example.decode(written, features) == features


# --- images --------------------------------------------------------------------------------------------------
def pictures_of(root: Path, size: tuple[int, int] = (8, 8), channels: int = 3) -> Files:
    settings = folders.Settings.model_validate({"path": str(root), "image_size": size, "channels": channels})
    return folders.load(settings, root, "train")


def test_images_are_decoded_as_they_are_and_stay_with_their_labels(tmp_path: Path) -> None:
    image_folder(tmp_path, {"a": 10, "b": 20})
    stream = stream_of(pictures_of(tmp_path))
    seen = set()
    for images, labels in batches_of(stream, 20, batch_size=5):
        assert images.dtype == np.uint8
        for image, label in zip(images, labels, strict=True):
            number = int(image[0, 0, 0])
            np.testing.assert_array_equal(image, picture(number))
            assert label == (number >= 10)
            seen.add(number)
    assert len(seen) == len(stream.records)


def test_images_of_any_size_are_cut_from_the_middle_and_scaled(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    tall = wide.transpose(1, 0, 2)
    for name, pixels in (("a", wide), ("b", tall)):
        for number in range(2):
            (tmp_path / name / f"{number}.png").write_bytes(png(pixels))
    for images, _ in batches_of(stream_of(pictures_of(tmp_path, (6, 6))), 1, batch_size=2):
        np.testing.assert_array_equal(images, np.full((2, 6, 6, 3), 200))
    [(images, _)] = batches_of(stream_of(pictures_of(tmp_path, (6, 6), channels=1)), 1, batch_size=2)
    assert images.shape == (2, 6, 6, 1)


def test_a_random_part_follows_from_its_numbers(tmp_path: Path) -> None:
    image_folder(tmp_path, {"a": 4, "b": 4}, size=(40, 60, 3))
    stream = stream_of(pictures_of(tmp_path))

    def cut(first: int) -> Any:
        indices = index_batches(len(stream.records), 6, seed=1, num_random=8, first_batch=first)
        dataset = stream.batches(indices, lambda features, _: features, crop=0.2)
        return next(iter(dataset))[0].numpy()

    np.testing.assert_array_equal(cut(3), cut(3))
    middle = batches_of(stream, 1, batch_size=6)[0][0]
    assert not np.array_equal(cut(0), middle)
    assert cut(0).shape == middle.shape


def test_jpeg_photographs_are_read(tmp_path: Path) -> None:
    image_folder(tmp_path, {"a": 2, "b": 2})
    pixels = np.full((30, 20, 3), (200, 100, 50), np.uint8)
    for path in tmp_path.glob("*/*.png"):
        path.with_suffix(".jpg").write_bytes(tf.io.encode_jpeg(pixels, quality=95).numpy())
        path.unlink()
    [(images, _)] = batches_of(stream_of(pictures_of(tmp_path)), 1, batch_size=2)
    assert np.abs(images.astype(int) - [200, 100, 50]).max() <= 4


def test_everything_can_be_kept_in_memory(tmp_path: Path) -> None:
    image_folder(tmp_path, {"a": 10, "b": 20})
    stream = stream_of(pictures_of(tmp_path))
    images, labels = stream.into_memory(8, tf.compat.v1.ConfigProto())
    assert len(images) == len(labels) == len(stream.records)
    for image, label, path in zip(images, labels, pictures_of(tmp_path).paths, strict=True):
        np.testing.assert_array_equal(image, read_png(path.read_bytes()))
        assert label == (path.parent.name == "b")


# --- bad records ---------------------------------------------------------------------------------------------
def broken_image(path: Path) -> None:
    """Its end and its checksums are right, its pixels are not."""
    content = png(picture(1))
    pixels = content.index(b"IDAT")
    length = struct.unpack(">I", content[pixels - 4 : pixels])[0]

    chunk = b"IDAT" + bytes(length)
    path.write_bytes(content[:pixels] + chunk + struct.pack(">I", zlib.crc32(chunk)) + content[pixels + 8 + length :])


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (broken_image, "the image cannot be decoded"),
        (truncated, "a PNG image without its end: truncated"),
        (lambda path: path.write_bytes(b"text"), "not a JPEG, PNG, GIF or BMP image"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.unlink(), "cannot be read: No such file or directory"),
    ],
    ids=["corrupt", "truncated", "no image", "empty", "gone"],
)
def test_a_bad_image_ends_training_or_is_skipped(tmp_path: Path, spoil: Callable[[Path], Any], reason: str) -> None:
    image_folder(tmp_path, {"a": 8, "b": 8})
    records = pictures_of(tmp_path)
    bad = records.paths[5]
    spoil(bad)
    failing = stream_of(records)
    with pytest.raises(tf.errors.OpError) as error:
        batches_of(failing, 4)
    explained = failing.explained(error.value)
    assert isinstance(explained, DataError)
    assert str(explained) == f"bad record: {bad}, offset 0: {reason} (on_bad_record: skip trains without it)"

    found = Found()
    skipping = stream_of(records, found, on_bad_record="skip")
    epochs = batches_of(skipping, 2 * len(records) // 4)
    assert {len(labels) for _, labels in epochs} == {4}, "batches stay full"
    assert [str(one) for one in found] == [f"{bad}, offset 0: {reason}"], "named once, though met twice"
    numbers = {int(image[0, 0, 0]) for images, _ in epochs for image in images}
    assert numbers == {int(path.stem) for path in records.paths if path != bad}
    again = batches_of(stream_of(records, on_bad_record="skip"), 3, first=2)
    np.testing.assert_array_equal([images for images, _ in again], [images for images, _ in epochs[2:5]])

    once = stream_of(records, on_bad_record="skip").in_order(4, lambda stored: stored)
    assert sum(len(labels) for _, labels in once) == len(records) - 1, "in evaluation nothing takes its place"


def test_a_bad_record_of_a_shard_is_named_with_its_offset(tmp_path: Path) -> None:
    records = numbers_of(numbered_shards(tmp_path, [12, 11]))
    file, offset = records.place(15)
    damage(Path(file), offset + 14)
    failing = stream_of(records)
    with pytest.raises(tf.errors.OpError) as error:
        batches_of(failing, 6)
    assert f"{file}, offset {offset}: wrong checksum" in str(failing.explained(error.value))
    found = Found()
    epoch = batches_of(stream_of(records, found, on_bad_record="skip"), 6)
    numbers = np.concatenate([features[:, 0] for features, _ in epoch])
    assert set(numbers.tolist()) == set(range(23)) - {15}
    assert len(found) == 1


def test_a_batch_of_bad_records_alone_ends_training_in_any_case(tmp_path: Path) -> None:
    image_folder(tmp_path, {"a": 3, "b": 3})
    records = pictures_of(tmp_path)
    for path in records.paths:
        broken_image(path)
    stream = stream_of(records, on_bad_record="skip")
    with pytest.raises(tf.errors.OpError) as error:
        batches_of(stream, 1)
    assert "none of 4 records of a batch can be used" in str(stream.explained(error.value))
