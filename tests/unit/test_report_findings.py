"""Findings in a report, and those of a sweep's runs on the command line: said once, of whom, and what to do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway.bench.folder import SweepFolder
from headway.cli import app
from headway.cli.findings import in_common
from headway.findings import Evidence, Finding
from headway.report.found import no_trouble, of_page
from headway.report.html import html
from headway.report.markdown import markdown
from headway.report.page import Page, page
from headway.report.parts import findings as findings_section
from headway.report.words import in_unit

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import make_sweep


def finding(run: str, certainty: str = "likely", **more: Any) -> Finding:
    known: dict[str, Any] = {"title": "A link is full", "trouble": True, "advice": "a faster link"}
    known |= {"evidence": (), "text": f"as {run} says", **more}
    return Finding(rule="link", resource="ps0", certainty=certainty, run=run, **known)  # type: ignore[arg-type]


def page_of(runs: dict[str, list[Finding]], unread: tuple[str, ...] = ()) -> Page:
    """What the findings of a page need."""
    digests: dict[str, dict[str, Any]] = {
        path: {"findings": [asdict(one) for one in found], "problem": None, "findings_problem": None}
        for path, found in runs.items()
    }
    for path in unread:
        digests[path] |= {"findings_problem": "KeyError: 't'"}
    ids = {path: f"run-{number}" for number, path in enumerate(runs)}
    names = {number: path.rpartition("/")[2] for path, number in ids.items()}
    return {**of_page(digests, ()), "ids": ids, "names": names, "runs": list(digests.values())}


def test_runs_are_counted_and_not_cases() -> None:
    found = page_of({"/a": [finding("a"), finding("a")], "/b": []})
    assert (found["findings"][0]["runs"], len(found["findings"][0]["cases"])) == (1, 2)
    assert "in 2 runs" not in findings_section(found)
    assert "1 more case<" in findings_section(found)
    assert "in 2 runs" in findings_section(page_of({"/a": [finding("a")], "/b": [finding("b")]}))


def test_advice_that_differs_stands_with_its_case() -> None:
    same = findings_section(page_of({"/a": [finding("a")], "/b": [finding("b")]}))
    assert same.count("a faster link") == 1
    other = page_of({"/a": [finding("a")], "/b": [finding("b", advice="fewer workers")]})
    assert findings_section(other).count('class="advice"') == 2
    assert "fewer workers" in findings_section(other)


def test_trouble_and_what_is_good_to_know_are_told_apart_as_in_the_page() -> None:
    calm = finding("b", "certain", trouble=False, title="One server is enough")
    found = in_common([[finding("a", "possible"), finding("a", "possible")], [calm]])
    assert [(one.title, one.trouble) for one in found] == [("A link is full", True), ("One server is enough", False)]
    assert found[0].text == "In 1 of 2 runs; in a: as a says"


def test_where_no_rule_could_read_nothing_is_called_sound() -> None:
    for runs, unread, words in (
        ({"/a": [], "/b": []}, (), "No trouble was found: no rule saw"),
        ({"/a": [], "/b": []}, ("/a",), "in what the rules could read"),
        ({"/a": []}, ("/a",), None),
    ):
        found = page_of(runs, unread)  # type: ignore[arg-type]
        said = no_trouble(found)
        assert said is None if words is None else words in str(said)
        section = findings_section(found)
        assert ("No rule could read the record of run" in section) == bool(unread)
        assert ("No trouble" in section) == (words is not None)


def test_a_quantity_has_its_unit_once() -> None:
    assert in_unit(3.1, "times") == "3.1 times"
    assert in_unit(0.974, "share") == "97 %"
    assert in_unit(None, "s") == "-"
    text = findings_section(page_of({"/a": [finding("a", evidence=(Evidence("slower", 3.1, "times"),))]}))
    assert "<b>3.1 times</b>" in text


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    root = tmp_path_factory.mktemp("made")
    return make_sweep(root, repeats=1, steps=60, vary={"strategy": ["ps-async"], "cluster.worker": [1, 2]})


def with_case(found: Page, **of: Any) -> Page:
    """The same page, and a finding of that run or sweep."""
    case = {**asdict(finding("a", text="costs $1 or $2")), "path": None, "sweep": None, **of}
    return {**found, "findings": [{**case, "runs": 1, "sweeps": 0, "cases": [case]}]}


def test_a_finding_of_a_sweep_names_it_and_leads_to_its_table(sweep: SweepFolder) -> None:
    found = with_case(page([], [sweep]), sweep=sweep.name)
    text = html(found)
    assert f'<a href="#results-{sweep.name}">sweep <code>{sweep.name}</code></a>' in text
    assert f'id="results-{sweep.name}"' in text
    assert f"or \\$2 (sweep {sweep.name})" in markdown(found)


def test_markdown_names_the_run_of_each_case_and_has_no_mathematics(sweep: SweepFolder) -> None:
    made = page([], [sweep])
    path = made["runs"][1]["path"]
    text = markdown(with_case(made, path=path))
    assert f"- costs \\$1 or \\$2 (run 1 {Path(path).name})" in text
    assert "$" not in text.replace("\\$", "")


def test_one_damaged_run_of_a_sweep_does_not_hide_what_was_found_in_the_others(tmp_path: Path) -> None:
    made = make_sweep(tmp_path, repeats=1, steps=60, vary={"strategy": ["ps-async"], "cluster.worker": [1, 2]})
    bad = sorted(made.runs.iterdir())[0]
    (bad / "result.json").unlink()
    (bad / "tables" / "steps.parquet").write_bytes(b"")
    shown = CliRunner().invoke(app, ["findings", made.name], env={"HEADWAY_RUNS": str(tmp_path)})
    assert shown.exit_code == 0, shown.output
    assert f"{bad.name}: cannot be read" in shown.stderr
    assert shown.stdout.startswith(made.name)
    found = page([], [made])
    assert [bool(run["problem"]) for run in found["runs"]].count(True) == 1
    assert made.name not in found["sweeps_not_read"]  # what its other runs say together is still said
    assert f"No rule could read sweep {made.name}" in html({**found, "sweeps_not_read": {made.name: "a reason"}})
    alone = subprocess.run(
        [sys.executable, "-m", "headway", "findings", str(bad)], capture_output=True, text=True, check=False
    )
    assert alone.returncode == 7  # documented: a damaged file
    assert f"{bad.name}: its record is damaged" in alone.stderr
    assert "Traceback" not in alone.stderr


def test_a_table_says_how_sure_few_runs_can_be(tmp_path: Path) -> None:
    few = make_sweep(tmp_path, repeats=3, steps=60, vary={"strategy": ["ps-async"]})
    text = markdown(page([], [few]))
    assert "lies with 95 % \\(of 3 runs with 75% at most\\)." in text
