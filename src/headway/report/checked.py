"""What a page takes from a run folder's environment and texts. A run folder is untrusted input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON may have one, and so may a file's name; UTF-8 cannot


def text_of(text: str) -> str:
    """The text as it can be written to a file."""
    return text if text.isascii() else HALF_A_CHARACTER.sub("\ufffd", text)


def environment_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Machine and versions, as texts and numbers; what is neither is not known."""
    packages = found.get("packages")
    return {
        **{key: found[key] for key in ("host", "system", "cpu", "cores", "memory", "python") if _is_plain(found, key)},
        "packages": {str(key): str(value) for key, value in packages.items()} if isinstance(packages, dict) else {},
    }


def _is_plain(found: Mapping[str, Any], key: str) -> bool:
    return isinstance(found.get(key), (str, int, float))


def commit_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """`hash` and `has_changes`; nothing where no commit is known."""
    commit = found.get("commit")
    if not isinstance(commit, dict) or not isinstance(commit.get("hash"), str):
        return {}
    return {"hash": commit["hash"], "has_changes": bool(commit.get("has_changes"))}
