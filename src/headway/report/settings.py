"""What a run was asked, as settings by which it can be told from others: dotted path -> value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from headway.spec.load import flat
from headway.spec.secrets import HIDDEN, is_secret, redacted

NO_DIFFERENCE = ("name", "seed", "expose", "limits", "monitor", "site.ports", "site.core_speed")
"""They name a run, or follow the machine: runs that differ in them alone are repeats of one another."""
PLACES = ("path", "directory", "code", "python")
"""Where things lie, by the last part of a setting's path."""


def settings_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Of the job as it was resolved. What is not set is left out; what looks secret is not told."""
    found = {}
    for path, value in flat(job).items():
        if path.startswith(NO_DIFFERENCE) or path.rpartition(".")[2] in PLACES or value in (None, {}):
            continue
        found[path] = told(path, value)
    return found


def told(path: str, value: Any) -> Any:
    """The value of a setting, without what looks secret."""
    if path == "workload.command":
        return redacted(shlex.join(map(str, value)) if isinstance(value, list) else str(value))
    if isinstance(value, dict):
        return {key: told(f"{path}.{key}", inner) for key, inner in value.items()}
    return HIDDEN if path.startswith("workload.env.") and is_secret(path) else value
