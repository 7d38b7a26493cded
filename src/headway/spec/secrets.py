"""What reports and commands must not tell: they are shown to others, and a user's command may carry a password."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_PLAIN = "headway-hid-this"  # while words are joined: a shell would want asterisks in quotes
SECRET = ("key", "token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "credentials", "auth")
_ENDS = ("key", "token", "secret", "password")  # apikey, HFTOKEN
_GIVEN = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)=(?P<value>.+)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*")
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_HEADER = re.compile(r"(?P<name>(?:-H|--header=)?[A-Za-z][\w-]*:\s*)(?P<value>\S.*)", re.DOTALL)
_HEADERS = ("authorization", "cookie")  # besides those that is_secret knows: X-Api-Key
_WITH_PASSWORD = ("mysql", "mysqldump", "mysqladmin", "mariadb", "sshpass")  # their -pX is a password, joined to it


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
    is_joined = False
    for place, word in enumerate(words):
        is_joined = is_joined or word.rpartition("/")[2] in _WITH_PASSWORD
        header = _HEADER.fullmatch(word)
        if place and words[place - 1] == "-p" and (is_joined or not word.isdecimal()):  # -p NUMBER is a port mostly
            is_value = True
        given = _GIVEN.fullmatch(word)
        if is_value and not _OPTION.fullmatch(word):
            found.append(_PLAIN)
        elif is_joined and word.startswith("-p") and word != "-p":
            found.append(f"-p{_PLAIN}")
        elif header and _is_secret_header(header["name"]):
            found.append(f"{header['name']}{_PLAIN}")
        elif given and is_secret(given["name"]):
            found.append(f"{given['name']}={_PLAIN}")
        elif re.search(r"\s", word):  # sh -c "TOKEN=... python train.py"
            found.append(redacted(word))
        else:
            found.append(_IN_ADDRESS.sub(rf"\1{_PLAIN}@", word))
        is_value = bool(_OPTION.fullmatch(word)) and is_secret(word)
    return found


def _is_secret_header(name: str) -> bool:
    plain = name.removeprefix("-H").removeprefix("--header=").rstrip(": \t\n")
    return is_secret(plain) or plain.lower().endswith(_HEADERS)


def without_secrets(value: Any, path: str = "") -> Any:
    """A job, or a run's figures, as they may be shown: a program's command and variables without what looks secret."""
    if path.rpartition(".")[2] == "command" and isinstance(value, (list, tuple)):
        return [word.replace(_PLAIN, HIDDEN) for word in _hidden([str(word) for word in value])]
    if path.rpartition(".")[2] == "command" and isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(inner, f"{path}.{key}") for key, inner in value.items()}
    return HIDDEN if ".env." in path and is_secret(path) else value
