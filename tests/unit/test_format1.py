"""Run folders of format 1 stay readable, and every command gives the figures that it gave when they were made.

tests/data/format1.tar.xz has real folders, made by commit 4bc2a7f: one of each strategy, a launched program, one whose
launcher was killed (its last line is cut), one that was resumed, and a sweep. tests/data/format1.json is what the
commands of that commit gave. Where a figure is corrected on purpose, CORRECTIONS says which and why.
`python tests/unit/test_format1.py` writes it anew.
"""

from __future__ import annotations

import json
import math
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

DATA = Path(__file__).parent.parent / "data"
RUNS = ("single", "ps-async", "ps-sync", "allreduce", "program", "torn", "resumed")
TABLES = ("steps", "updates", "evaluations", "checkpoints", "events", "node_samples", "task_samples", "node_rates")
COUNTS = " union all ".join(
    f"select '{each}' as name, run, count(*), sum(t) from {each} group by run" for each in TABLES
)
COMMANDS: dict[str, list[str]] = {
    "runs": ["runs", "-o", "json"],
    **{f"show {run}": ["show", run, "-o", "json"] for run in RUNS},
    **{f"findings {run}": ["findings", run, "--evidence", "-o", "json"] for run in RUNS},
    "cost": ["cost", *RUNS, "--price", "1/h", "-o", "json"],
    "query rows": ["query", f"{COUNTS} order by all", "-o", "json"],
    "query runs": ["query", "select * from runs order by run", "-o", "json"],
    "query steps": [
        "query",
        "select run, task, generation, sum(step), sum(seconds), sum(loss), sum(examples), sum(accepted) from steps "
        "group by all order by all",
        "-o",
        "json",
    ],
    "compare runs": ["compare", "ps-async", "ps-sync", "--across", "strategy", "-o", "json"],
    "sweep": ["sweeps", "show", "sweep", "-o", "json"],
    "findings of the sweep": ["findings", "sweep", "--evidence", "-o", "json"],
}
CORRECTIONS: dict[str, str] = {}
"""Command: path of a figure -> why it is another one now."""


def unpacked(root: Path) -> Path:
    with tarfile.open(DATA / "format1.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root / "format1"


def said(root: Path, command: str) -> Any:
    """What a command gives, as data; the folder is called RUNS."""
    from headway.cli import app

    result = CliRunner().invoke(app, [*COMMANDS[command], "--runs", str(root)])
    assert result.exit_code == 0, f"{command}: {result.output}"
    return json.loads(result.output.replace(str(root), "RUNS"))


def differences(then: Any, now: Any, path: str = "") -> list[str]:
    """Where the two differ; what is only there now is no difference."""
    if isinstance(then, dict) and isinstance(now, dict):
        missing = [f"{path}.{key}: missing" for key in then.keys() - now.keys()]
        return missing + [
            each for key in then.keys() & now.keys() for each in differences(then[key], now[key], f"{path}.{key}")
        ]
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = enumerate(zip(then, now, strict=True))
        return [each for n, pair in pairs for each in differences(*pair, f"{path}[{n}]")]
    if isinstance(then, float) and isinstance(now, (int, float)):
        return [] if math.isclose(then, now, rel_tol=1e-9, abs_tol=1e-12) else [f"{path}: {then} -> {now}"]
    return [] if then == now else [f"{path}: {then!r} -> {now!r}"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_gives_the_same_figures_as_before(command: str, folders: Path) -> None:
    then = json.loads((DATA / "format1.json").read_text(encoding="utf-8"))[command]
    found = differences(then, said(folders, command))
    assert [each for each in found if f"{command}: {each.split(':')[0]}" not in CORRECTIONS] == []


def test_a_difference_is_found() -> None:
    assert differences({"a": [1.0, {"b": "x"}], "c": 1}, {"a": [1.1, {"b": "y"}], "d": 1}) == [
        ".c: missing",
        ".a[0]: 1.0 -> 1.1",
        ".a[1].b: 'x' -> 'y'",
    ]


if __name__ == "__main__":
    folder = unpacked(Path(sys.argv[1]))
    kept = {command: said(folder, command) for command in COMMANDS}
    (DATA / "format1.json").write_text(json.dumps(kept, ensure_ascii=False) + "\n", encoding="utf-8")
