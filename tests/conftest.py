"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Tests share modules that are no tests themselves.
for folder in ("real", "engine", "unit"):
    sys.path.insert(0, str(Path(__file__).parent / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is in tests/real starts processes, and has the machine to itself in `make test`."""
    for item in items:
        if item.path.parent.name == "real":
            item.add_marker(pytest.mark.real)
