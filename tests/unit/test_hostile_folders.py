"""A run folder is untrusted: 200 that were tampered with, and every command that reads. 2,000: `make test-system`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_folders import check


def test_no_folder_makes_a_reading_command_misbehave(tmp_path: Path) -> None:
    check(200, tmp_path)


@pytest.mark.system
def test_nor_do_two_thousand(tmp_path: Path) -> None:
    check(2000, tmp_path)
