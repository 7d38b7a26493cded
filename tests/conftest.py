"""What all tests share."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests share modules that are no tests themselves.
for folder in ("real", "engine", "unit"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
