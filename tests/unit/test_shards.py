"""TFRecord files without TensorFlow: framing, index, reading in any order, and all that can be wrong with them."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from pictures import damage, numbered_shards

from headway.errors import DataError, FormatError
from headway.workloads import example, shards, tfrecord
from headway.workloads.records import BadRecord, Content, Example
from headway.workloads.shards import Index, Layout, Shards

FEATURES: dict[str, example.Value | list[example.Value]] = {
    "image/encoded": b"\x00\xff" * 200,
    "image/class/label": 7,
    "negative": -5,
    "many": [1, 300, 2**40],
    "floats": [0.5, -2.0],
    "texts": [b"one", b"two"],
}


def test_a_message_comes_back_with_the_features_that_are_wanted() -> None:
    message = example.encode(FEATURES)
    assert example.decode(message, FEATURES) == {
        name: value if isinstance(value, list) else [value] for name, value in FEATURES.items()
    }
    assert example.decode(message, ["image/class/label", "other"]) == {"image/class/label": [7]}


def test_numbers_that_are_not_packed_are_read_too() -> None:
    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    integers = field(3, b"\x08\x05\x08\x06")  # int64_list with two single values
    floats = field(2, b"\x0d" + struct.pack("<f", 1.5))
    entries = [field(1, field(1, name) + field(2, value)) for name, value in ((b"i", integers), (b"f", floats))]
    assert example.decode(field(1, b"".join(entries)), ["i", "f"]) == {"i": [5, 6], "f": [1.5]}


@pytest.mark.parametrize(
    "message", [b"\x0a", b"\x0a\x7f\x01", b"\x0f", b"\x08\x01\x08" + b"\xff" * 11, b"\x0a\x02\x08\x01"]
)
def test_what_is_no_example_is_an_error(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends inside|wire type|64 bits|number stands"):
        example.decode(message, ["a"])


def test_records_lie_where_their_lengths_say(tmp_path: Path) -> None:
    contents = [b"first", b"", bytes(1000), b"last"]
    path = tmp_path / "file"
    path.write_bytes(tfrecord.frame(contents))
    lengths = tfrecord.scan(path)
    assert lengths == [5, 0, 1000, 4]
    whole = path.read_bytes()
    for content, offset in zip(contents, tfrecord.offsets(lengths).tolist(), strict=True):
        assert whole[offset + tfrecord.HEADER :].startswith(content)
    (tmp_path / "empty").touch()
    assert tfrecord.scan(tmp_path / "empty") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], r"file, offset 21: truncated: the file ends at byte 41, inside record 1"),
        (lambda content: content[:30], r"file, offset 21: truncated: the file ends at byte 30, inside record 1"),
        (lambda content: b"\x01" + content[1:], r"file, offset 0: record 0 begins with a wrong checksum"),
        (lambda _: b"no records, but text of some length", r"offset 0: .* \(is this a TFRecord file\?\)"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path: Path, change: object, message: str) -> None:
    content = tfrecord.frame([b"first", b"second"[:5]])
    assert len(content) == 42
    (tmp_path / "file").write_bytes(change(content))  # type: ignore[operator]
    with pytest.raises(DataError, match=message):
        tfrecord.scan(tmp_path / "file")


def records_of(folder: Path) -> Shards:
    index = Index.read(folder / shards.INDEX)
    return Shards.of(index.layout, folder, index.splits["train"])


def number_of(result: Example | BadRecord) -> int:
    assert isinstance(result, Example), result
    return int(struct.unpack("<f", result.content)[0])


def test_records_are_read_in_any_order_and_more_than_once(tmp_path: Path) -> None:
    records = records_of(numbered_shards(tmp_path, [5, 1, 7]))
    assert len(records) == 13
    chosen = [12, 0, 5, 5, 3, 12]
    results = records.read(chosen)
    assert [number_of(result) for result in results] == chosen
    assert [result.label for result in results if isinstance(result, Example)] == [n % 4 for n in chosen]
    some = records.take(np.array([4, 2, 12]))
    assert [number_of(result) for result in some.read(range(3))] == [4, 2, 12]
    assert records.num_bytes() == sum(path.stat().st_size for path in tmp_path.glob("train-*"))


def test_a_bad_record_is_a_value_with_file_offset_and_reason(tmp_path: Path) -> None:
    records = records_of(numbered_shards(tmp_path, [3, 3, 3]))
    file, offset = records.place(1)
    damage(Path(file), offset + 20)
    [before, bad, after] = records.read([0, 1, 2])
    assert (number_of(before), number_of(after)) == (0, 2)
    assert str(bad) == f"{file}, offset {offset}: wrong checksum"

    second = Path(records.place(3)[0])
    second.write_bytes(second.read_bytes()[:-1])
    bad = records.read([5])[0]
    assert isinstance(bad, BadRecord)
    assert bad.reason == f"truncated: the file ends at byte {second.stat().st_size}, inside the record"

    third = Path(records.place(6)[0])
    third.unlink()
    assert [getattr(bad, "reason", None) for bad in records.read([6, 8])] == [
        "cannot be read: No such file or directory"
    ] * 2

    shutil.copy(file, third)
    content = third.read_bytes()
    third.write_bytes(content[:-10] + tfrecord.frame([b"x"]) + bytes(30))
    assert isinstance(records.read([8])[0], BadRecord), "another file than the index knows"


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ({"features": bytes(4), "label": 4}, "label 4 is not in 0..3"),
        ({"features": bytes(4), "label": -1}, "label -1 is not in 0..3"),
        ({"features": bytes(4), "label": 1.0}, "label 1.0 is not in 0..3"),
        ({"features": bytes(4), "label": b"1"}, "'features' must be bytes and 'label' a number"),
        ({"features": bytes(4)}, "has 0 values of feature 'label' instead of one"),
        ({"features": bytes(4), "label": [1, 2]}, "has 2 values of feature 'label' instead of one"),
        ({"features": bytes(5), "label": 1}, "has 5 bytes of features instead of 4"),
        (None, "no tf.train.Example: "),
    ],
)
def test_what_is_in_a_record_is_checked(tmp_path: Path, features: dict[str, example.Value] | None, reason: str) -> None:
    contents = [b"\x0a\x7f" if features is None else example.encode(features)]
    (tmp_path / "file").write_bytes(tfrecord.frame(contents))
    layout = Layout(Content("raw", (1,), "float32"), classes=4, features="features", label="label")
    shard = shards.scanned([tmp_path / "file"], tmp_path / "cache")
    [bad] = Shards.of(layout, Path(), shard).read([0])
    assert isinstance(bad, BadRecord)
    assert bad.reason.startswith(reason)
    assert shards.problems(layout, Path(), shard) == [f"{tmp_path / 'file'}, offset 0: {bad.reason}"]


def test_labels_may_begin_at_another_number_and_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(tfrecord.frame([example.encode({"features": bytes(4), "label": 3})]))
    listed = shards.scanned([tmp_path / "file"], tmp_path / "cache")
    content = Content("raw", (1,), "float32")
    for layout, expected in (
        (Layout(content, 4, features="features", label="label", first_label=1), 2),
        (Layout(content, None, features="features", label="label"), 3),
    ):
        assert [getattr(one, "label", one) for one in Shards.of(layout, Path(), listed).read([0])] == [expected]


def test_an_index_is_made_once_and_again_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(tfrecord.frame([b"one", b"two"]))
    assert [shard.lengths for shard in shards.scanned([path], cache)] == [[3, 3]]
    with monkeypatch.context() as patch:
        patch.setattr(tfrecord, "scan", None)  # whoever calls it now breaks
        assert [shard.lengths for shard in shards.scanned([path], cache)] == [[3, 3]]
    path.write_bytes(tfrecord.frame([b"four"]))
    assert [shard.lengths for shard in shards.scanned([path], cache)] == [[4]]
    [kept] = (cache / "tfrecords").iterdir()
    kept.write_text("damaged")
    assert [shard.lengths for shard in shards.scanned([path], cache)] == [[4]]


def test_missing_shards_are_named() -> None:
    here = [Path(f"a/train-{number:05d}-of-00005") for number in (0, 1, 4)] + [Path("a/notes.txt")]
    assert shards.missing_shards(here) == ["train-00002-of-00005", "train-00003-of-00005"]
    assert shards.missing_shards([Path("a/x-00000-of-00001.tfrecord")]) == []


def test_a_newer_or_damaged_index_is_refused(tmp_path: Path) -> None:
    index = tmp_path / shards.INDEX
    for content, message in (('{"format": 99}', "newer Headway"), ("[]", "damaged"), ('{"format": 1}', "damaged")):
        index.write_text(content)
        with pytest.raises(FormatError, match=message):
            Index.read(index)
