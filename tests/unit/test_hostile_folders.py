"""A run folder is untrusted: 200 that were tampered with, and every command that reads. 2,000: `make test-system`."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from hostile_folders import check

from headway.errors import FormatError


def test_no_folder_makes_a_reading_command_misbehave(tmp_path: Path) -> None:
    codes = check(200, tmp_path)
    damaged = codes[FormatError.exit_code]
    assert 20 < damaged < 180, codes  # it is tampered with where it matters, and where it does not


@pytest.mark.system
def test_nor_do_two_thousand(tmp_path: Path) -> None:
    halves = [tmp_path / "1", tmp_path / "2"]  # one for each core
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(check, [1000, 1000], halves, [1, 2]))
