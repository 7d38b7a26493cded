"""Whatever a job or a sweep says: a plan or a message, never a traceback, in 2 s and 500 MB (hostile.py)."""

from __future__ import annotations

import hostile
import pytest


def test_no_job_and_no_sweep_makes_a_traceback() -> None:
    hostile.check(200)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_no_job_and_no_sweep_of_many_makes_a_traceback() -> None:
    hostile.check(2000)
