"""What Headway says of itself is what it has: one sentence everywhere, and a command for each of its verbs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import typer.main
from typer.core import TyperGroup

import headway
from headway.cli import app

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
# The command by which a verb is true.
COMMANDS = {
    "run": "run",
    "watch": "top",
    "measure": "bench",
    "explain": "findings",
    "predict": "predict",
    "deploy": "deploy",
    "tune": "tune",
}


def commands() -> TyperGroup:
    found = typer.main.get_command(app)
    assert isinstance(found, TyperGroup)
    return found


def sentence() -> str:
    return re.split(r"(?<=\.)\s", README.split("\n\n")[1], maxsplit=1)[0].replace("\n", " ")


def test_the_sentence_is_the_same_everywhere() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"{project['description']}." == sentence()
    assert commands().help == sentence()
    assert (headway.__doc__ or "").splitlines()[0].lower() == f"headway: {sentence()}".lower()


def test_every_verb_has_a_command() -> None:
    verbs = re.findall(r"\w+", sentence().partition(" distributed")[0].lower().replace(" and ", " "))
    assert len(verbs) >= 3
    assert [verb for verb in verbs if COMMANDS[verb] not in commands().commands] == []


def test_every_command_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"\bheadway ([a-z]+)\b", README))
    assert len(named) > 10
    assert named - {*commands().commands} == set()
