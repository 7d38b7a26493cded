"""Parts of the system that a test needs, and that a machine may not have."""

from __future__ import annotations

import os

import pytest


def need(problem: str | None) -> None:
    """A part that is missing is a failure in CI, and a stated skip elsewhere."""
    if problem:
        if os.environ.get("CI"):
            pytest.fail(f"missing here: {problem}")
        pytest.skip(f"missing here: {problem}")
