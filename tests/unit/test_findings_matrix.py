"""The matrix of findings has every rule in three variants, its jobs are jobs, and its verdicts can fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headway.findings import rules
from headway.spec.load import parse_job

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "findings"))

from conditions import CELLS, EXPLAINED, HEALTHY, Cell  # noqa: E402
from findings_page import Result, page, problems_of, read_results  # noqa: E402

NAMES = {rule.name for rule in rules()}
DOCUMENT = TESTS.parent / "docs" / "findings.md"
RESULTS = TESTS.parent / "benchmarks" / "results" / "findings.jsonl"


def cell_of(name: str) -> Cell:
    return next(cell for cell in CELLS if cell.name == name)


def found(rule: str, trouble: bool = True) -> dict[str, Any]:
    return {"rule": rule, "trouble": trouble, "certainty": "likely", "text": f"{rule}!"}


STATEMENTS = dict.fromkeys(cell.statement for cell in CELLS if cell.condition != HEALTHY and not cell.part)


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: " ".join(map(str, one)))
def test_every_statement_has_three_variants_and_the_last_was_kept_out(statement: tuple[str, bool | None, str]) -> None:
    """A rule that says one of two things (storage is the cause, or is not) has as many of each."""
    mine = [cell for cell in CELLS if cell.statement == statement and not cell.part]
    assert len(mine) >= 3
    assert [cell.kept_out for cell in mine] == [False] * (len(mine) - 1) + [True]


@pytest.mark.parametrize("rule", sorted(NAMES))
def test_what_a_rule_says_is_told_apart(rule: str) -> None:
    # is or is not; too few or enough; at once or bit by bit; a server's link or a training task's
    two = {"storage", "server_count", "throughput_change", "network"}
    assert len([one for one in STATEMENTS if one[0] == rule]) == (2 if rule in two else 1)


def test_there_are_ten_healthy_runs_and_names_are_of_one_cell_each() -> None:
    assert len([cell for cell in CELLS if cell.condition == HEALTHY]) == 10
    assert {cell.condition for cell in CELLS} == NAMES | {HEALTHY}
    assert len({cell.name for cell in CELLS}) == len(CELLS)
    assert {rule for _, rule in EXPLAINED} <= NAMES


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell.job], ids=lambda cell: cell.name)
def test_a_cell_is_a_job_on_emulated_hosts(cell: Cell, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").touch()
        (tmp_path / name / "2.png").touch()
    text = json.dumps(cell.job).replace("{photos}", str(tmp_path)).replace("{here}", str(TESTS / "findings"))
    asked = json.loads(text)
    if cell.photos:
        asked["workload"]["batch_size"] = 1  # of two photographs
    assert parse_job(asked, origin=cell.name).site.kind == "emulated"


def test_a_sweep_is_made_of_cells() -> None:
    for cell in CELLS:
        assert bool(cell.trials) != bool(cell.job)
        assert all(cell_of(name).job for name in cell.trials)


def test_verdicts() -> None:
    cell = cell_of("network-a")
    full = {**found("network"), "text": "The network of ps0 was full."}
    assert problems_of(cell, Result([full])) == []
    assert problems_of(cell, Result([])) == ["not found"]
    assert "unexplained: memory_grows" in problems_of(cell, Result([full, found("memory_grows")]))[0]
    assert problems_of(cell, Result([full, found("oversized", trouble=False)])) == []
    assert problems_of(cell, Result([full, found("oversized")])) != []  # explained as no trouble
    healthy = cell_of("healthy-1")
    assert problems_of(healthy, Result([])) == []
    assert problems_of(healthy, Result([found("straggler")])) != []
    ruled_out = cell_of("storage-c")
    assert problems_of(ruled_out, Result([found("storage"), found("input_bound")])) == ["not found"]
    assert problems_of(ruled_out, Result([found("storage", trouble=False), found("input_bound")])) == []


def test_the_page_has_every_rule_and_says_what_was_not_found() -> None:
    text = page({"network-a": Result([found("fabric")])}, {})
    assert all(f"`{name}`" in text for name in NAMES)
    assert "**not found**" in text
    assert "UNEXPLAINED" in text


def stored() -> list[str]:
    return RESULTS.read_text(encoding="utf-8").splitlines()


def test_the_document_is_that_of_the_stored_results_and_of_the_rules_as_they_are() -> None:
    """docs/findings.md is made again whenever a rule or a result changes: run_findings.py --report."""
    assert DOCUMENT.read_text(encoding="utf-8") == page(*read_results(stored()))


def test_every_cell_has_a_stored_result_of_the_job_that_it_has_now() -> None:
    """Else the page would leave it out, or show what another job did."""
    known, machine = read_results(stored())
    assert set(known) == {cell.name for cell in CELLS}
    assert set(machine) == {"date", "cores", "cpu", "python", "commit"}
    assert len(stored()) == len(CELLS) + 1


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_stored_result_has_no_problem(cell: Cell) -> None:
    """What was provoked was found, what else was found is explained, and no run broke off."""
    assert problems_of(cell, read_results(stored())[0][cell.name]) == []


def test_a_loss_that_rises_and_stays_a_number_was_provoked_too() -> None:
    """In the other cells it is none any more: they say nothing of the limit of how far it may rise."""
    seen = read_results(stored())[0]["staleness-d"]
    assert any("The training loss rose from" in one["text"] for one in seen.found if one["rule"] == "staleness")


def test_healthy_runs_have_no_trouble() -> None:
    known, _ = read_results(stored())
    healthy = [known[cell.name] for cell in CELLS if cell.condition == HEALTHY]
    assert [one["rule"] for seen in healthy for one in seen.found if one["trouble"]] == []


def test_a_result_of_another_job_does_not_count_and_of_several_the_last_does() -> None:
    cell = cell_of("network-a")
    rows: list[dict[str, Any]] = [
        {"machine": {"cores": 2}},
        {"cell": cell.name, "job": cell.job, "found": []},
        {"cell": cell.name, "job": cell.job, "found": [found("network")]},
        {"cell": cell.name, "job": {"name": "another"}, "found": []},
        {"cell": "gone-a", "job": {}, "found": []},
    ]
    known, machine = read_results(map(json.dumps, rows))
    assert {name: len(seen.found) for name, seen in known.items()} == {cell.name: 1}
    assert machine == {"cores": 2}
