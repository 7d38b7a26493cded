"""Three conditions provoked for real on emulated hosts, and found. All of them: make findings-matrix."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from emulating import need_emulation
from running import headway

from headway.findings import findings
from headway.record.run import load

sys.path.insert(0, str(Path(__file__).parents[1] / "findings"))

from conditions import cell

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("name", "rule", "resource"),
    [
        ("network-a", "network", "network of ps0"),
        ("network-d", "network", "network of worker0 and worker1"),
        ("chief_undersized-a", "chief_undersized", "CPU of chief0"),
    ],
)
def test_a_provoked_condition_is_found(name: str, rule: str, resource: str, tmp_path: Path) -> None:
    need_emulation("cpu", "memory")
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps(cell(name).job))
    done = headway("run", str(job), root=tmp_path, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {one.rule: one for one in findings(load("last", tmp_path))}
    assert found[rule].resource == resource
    assert found[rule].trouble
    shown = headway("findings", "last", root=tmp_path)
    assert found[rule].title in shown.stdout
