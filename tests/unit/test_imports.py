"""Which way imports may point, and what must not be loaded."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headway"
# A room may import only from rooms further down (and from itself).
ORDER = [
    "cli",
    "testing",
    "report",
    "findings",
    "bench",
    "launch",
    "sites",
    "agent",
    "host",
    "metrics",
    "record",
    "spec",
    "workloads",
    "units",
    "plural",
    "clock",
    "locks",
    "errors",
]
# What runs inside a task: it uses the lower rooms, and nobody imports it.
ENGINE_MAY_USE = {"engines", "record", "spec", "workloads", "units", "plural", "clock", "locks", "errors"}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("headway.") and "__" not in name}
    return rooms


def sources() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in ORDER]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    allowed = ENGINE_MAY_USE if room == "engines" else set(ORDER[ORDER.index(room) :])
    assert imported_rooms(path) <= allowed


def loaded_by(*code: str) -> set[str]:
    script = "; ".join([*code, "import sys; print(*sys.modules)"])
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


HEAVY = {"tensorflow", "keras", "duckdb", "numpy", "scipy", "pydantic", "yaml"}


def test_help_loads_nothing_heavy() -> None:
    loaded = loaded_by(
        "import headway.cli",
        "from typer.testing import CliRunner",
        "assert 'Commands' in CliRunner().invoke(headway.cli.app, ['--help']).output",
    )
    assert loaded & HEAVY == set()


def test_the_agent_stays_small() -> None:
    assert loaded_by("import headway.agent.agent") & (HEAVY | {"rich", "typer"}) == set()


def test_modules_that_use_scipy_load_it_when_they_need_it() -> None:
    assert "scipy" not in loaded_by("import headway.metrics.estimate, headway.bench.judge")


def test_validating_a_job_needs_no_tensorflow() -> None:
    assert "tensorflow" not in loaded_by(
        "from headway.spec.load import load_job",
        "from pathlib import Path",
        f"load_job(Path({str(PACKAGE.parents[1] / 'examples' / 'mnist-async.yaml')!r}))",
    )
