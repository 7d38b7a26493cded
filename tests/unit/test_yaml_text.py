"""YAML that a stranger wrote, or that has a mistake: one clear message, at once, and nothing that grows without end."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from headway.errors import SpecError
from headway.spec.load import apply_override, read_settings
from headway.spec.yaml_text import MOST_DEPTH, YamlError, parse_yaml

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (LAUGHS, "at most 20,000"),
        ("&a [*a]", "*a stands inside"),
        ("[" * 5000, f"at most {MOST_DEPTH}"),
        ("- " * 5000, f"at most {MOST_DEPTH}"),
        ("- x\n" * 60_000, "at most 20,000"),
        ("a: " + "x" * 300_000, "at most 256 KiB"),
        ("n: " + "9" * 4300, "too long for a number"),
        ("n: 0x" + "f" * 99, "too long for a number"),
        ("n: 0x" + "f" * 20, "2^63 - 1"),
        ("n: " + "1:" * 50_000 + "1", "too long for a number"),
        ("n: !!int x", "'x' is not of the type !!int"),
        ("n: !!float x", "'x' is not of the type !!float"),
        ("n: !!bool x", "'x' is not of the type !!bool"),
        ("n: 0x_", "'0x_' is not of the type !!int"),
        ("n: !!set {a, b}", "!!set is not allowed"),
        ("n: !!timestamp 2020-13-45", "!!timestamp is not allowed"),
        ("n: !!python/object/apply:os.system [ls]", "os.system is not allowed"),
        ("name: a\nseed: 1\nname: b", "the key 'name' is there twice, first in line 1"),
        ("1: a", "'1' is not text; write it in quotes"),
        ("on: a", "'on' is not text; write it in quotes"),
        ("? [a]\n: b", "must be text"),
        ('n: "\\ud800"', "'\\ud800' is not allowed"),
        ('n: "a\\0b"', "'\\x00' is not allowed"),
        ('n: "\\UFFFFFFFF"', "no character of this number"),
        ("a\0b", "special characters are not allowed"),
        ("a: b: c", "mapping values are not allowed here"),
        ("a: [1, 2", "expected ',' or ']'"),
    ],
    ids=lambda value: value[:20],
)
def test_what_settings_cannot_be_made_of_is_refused_at_once(text: str, wanted: str) -> None:
    began = time.process_time()
    with pytest.raises(YamlError, match=re.escape(wanted)) as raised:
        parse_yaml(text)
    assert len(raised.value.problem) < 200
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2020-01-01", {"a": "2020-01-01"}),  # text: no setting is a date
        ("a: &b {c: 1, d: 2}\ne: {<<: *b, c: 3}", {"a": {"c": 1, "d": 2}, "e": {"c": 3, "d": 2}}),
        ("a: &b [1, 2]\nc: *b", {"a": [1, 2], "c": [1, 2]}),
        ("a: 9223372036854775807", {"a": 2**63 - 1}),
        ("", None),
    ],
)
def test_ordinary_yaml_is_read(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


def test_a_mistake_in_a_file_is_shown_with_its_line_and_a_caret_below_it(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: mnist\nworkload: a: b\n")
    with pytest.raises(SpecError) as raised:
        read_settings(path, "job")
    assert str(raised.value).splitlines() == [
        f"{path}, line 2, column 12: not valid YAML: mapping values are not allowed here",
        "  workload: a: b",
        "             ^",
    ]


@pytest.mark.parametrize("end", ["\n", "\n\n"])
def test_a_text_that_ends_too_soon_has_no_caret_below_an_empty_line(tmp_path: Path, end: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"workload: {{model: softmax{end}")
    with pytest.raises(YamlError) as raised:
        parse_yaml(path.read_text())
    (line,) = raised.value.in_file(path).splitlines()
    assert "expected ',' or '}'" in line


def test_a_mistake_in_an_override_is_one_line_without_a_caret() -> None:
    with pytest.raises(SpecError) as raised:
        apply_override({}, "cluster.worker=[1, 2")
    assert "^" not in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/urandom"])
def test_a_file_that_never_ends_is_not_read_to_its_end(path: str) -> None:
    with pytest.raises(SpecError, match="too large for a job file: at most 256 KiB"):
        read_settings(Path(path), "job")


def test_a_folder_or_a_picture_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="Is a directory"):
        read_settings(tmp_path, "job")
    (tmp_path / "picture").write_bytes(b"\x89PNG\xff")
    with pytest.raises(SpecError, match="not a text file in UTF-8"):
        read_settings(tmp_path / "picture", "job")
