"""A run folder is untrusted: 200 that were tampered with, and every command that reads."""

from __future__ import annotations

from pathlib import Path

from hostile_folders import check


def test_no_folder_makes_a_reading_command_misbehave(tmp_path: Path) -> None:
    found = check(200, tmp_path)
    assert found["damaged"] > 30, found  # it is tampered with where it matters,
    assert found["shown"] > 30, found  # and where it does not
