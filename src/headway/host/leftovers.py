"""Where it is noted what a run changes on this machine, so that it can be undone when the run was killed."""

from __future__ import annotations

import os
from pathlib import Path


def state_folder() -> Path:
    """Of this user, gone with the next start of the machine."""
    if os.geteuid() == 0:
        return Path("/run/headway")
    return Path(os.environ.get("XDG_RUNTIME_DIR", f"/tmp/headway-{os.geteuid()}")) / "headway"
