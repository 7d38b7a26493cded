"""What a report must not tell: a page is sent to others, and a user's command may carry a password."""

from __future__ import annotations

import re
import shlex

HIDDEN = "***"
_PLAIN = "headway-hid-this"  # while words are joined: a shell would want asterisks in quotes
SECRET = ("key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "credentials", "auth")
_ENDS = ("key", "token", "secret", "password")  # apikey, HFTOKEN
_GIVEN = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*")
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")


def is_secret(name: str) -> bool:
    """Whether an option or a variable of that name holds something that nobody else should see: --api-key, HF_TOKEN."""
    parts = [part for part in re.split(r"[^a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()) if part]
    return any(part in SECRET for part in parts) or bool(parts and parts[-1].endswith(_ENDS))


def redacted(command: str) -> str:
    """The command line with `***` for the values of options and variables whose names look secret."""
    try:
        words = shlex.split(command)
    except ValueError:  # no command line: nobody can say what in it is a value
        return HIDDEN
    hidden = _hidden(words)
    return command if hidden == words else shlex.join(hidden).replace(_PLAIN, HIDDEN)


def _hidden(words: list[str]) -> list[str]:
    found: list[str] = []
    is_value = False
    for word in words:
        given = _GIVEN.fullmatch(word)
        if is_value and not _OPTION.fullmatch(word):
            found.append(_PLAIN)
        elif given and is_secret(given["name"]):
            found.append(f"{given['name']}={_PLAIN}")
        elif re.search(r"\s", word):  # sh -c "TOKEN=... python train.py"
            found.append(redacted(word))
        else:
            found.append(_IN_ADDRESS.sub(rf"\1{_PLAIN}@", word))
        is_value = bool(_OPTION.fullmatch(word)) and is_secret(word)
    return found
