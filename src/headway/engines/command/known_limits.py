"""What the last lines of a program that failed tell: a known limit of a library, or a start that would fail again."""

from __future__ import annotations

import re
from pathlib import Path

KNOWN = (
    (
        r"PerReplica",
        "Keras 3's fit() does not work under MultiWorkerMirroredStrategy: a known limit of TensorFlow with Keras 3, "
        "not of this script. Write the training loop yourself (docs/guide), or use tf_keras, or TensorFlow 2.15",
    ),
)
# The last line of a program that could not start: as Python says it, or a shell (also by its exit code).
CANNOT_START = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError)\b"
    r"|can't open file .*: \[Errno \d+\]"
    r"|can't find '__main__' module"
    r"|: No module named "
)
SHELL_CODES = (126, 127)  # not executable; not found


def would_fail_again(code: int, last_line: str) -> bool:
    """Whether a program that ended soon, without a step, would do so again."""
    return code in SHELL_CODES or (code > 0 and CANNOT_START.search(last_line) is not None)


NO_NETWORK = re.compile(
    r"name resolution|Name or service not known|nodename nor servname|Could not resolve host|getaddrinfo failed|"
    r"No address associated with hostname|unknown host|ENETUNREACH|Network is unreachable|EAI_AGAIN",
    re.IGNORECASE,
)
ROUTES = Path("/proc/net/route")


def explanation(output: str) -> str | None:
    """Of the last lines of a program that failed."""
    if (line := next(filter(NO_NETWORK.search, reversed(output.splitlines())), None)) and not _reaches_others():
        return (
            f"{line.strip()[:200]}: this run's network is private, so it reaches no other host. Give it a way out with "
            "--set site.network=outbound (`headway doctor` says whether there is one here), or use this machine's own "
            "network with --set expose=cluster"
        )
    return next((text for pattern, text in KNOWN if re.search(pattern, output)), None)


def _reaches_others() -> bool:
    """There is a default route; or it is not known."""
    try:
        return any(line.split()[1:2] == ["00000000"] for line in ROUTES.read_text(encoding="ascii").splitlines()[1:])
    except OSError:
        return True
