"""The report: nothing is lost that must not be, nothing that others wrote is taken for markup, and every number says
where it comes from."""

from __future__ import annotations

import base64
import copy
import csv
import gzip
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from headway.errors import SpecError
from headway.record.folder import RunFolder
from headway.record.run import Run, load_all
from headway.record.seal import result
from headway.report.digest import show_tables
from headway.report.files import write_csv, write_parquet
from headway.report.html import html
from headway.report.markdown import markdown
from headway.report.notebook import notebook
from headway.report.own_time import OwnTime
from headway.report.page import Page, page
from headway.report.run_entries import run_entry
from headway.report.thin import Buckets, extremes, packed, smooth, unpacked
from headway.report.timeline import num_buckets, timeline
from headway.report.words import cell, say

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import PEAK_AT, Made, clone, make_run, make_sweep

VARIED = {"strategy": ["ps-async"], "cluster.worker": [1, 3]}
EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)>|`=1+1'


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One single machine, twice; two and four workers, the last of which slows down."""
    root = tmp_path_factory.mktemp("made")
    for number in (0, 1):
        make_run(root, Made("alone", "single", 1, 0, 200, seed=number))
    make_run(root, Made("two", workers=2, steps=240, seed=3, restarts=True))
    make_run(root, Made("four", workers=4, servers=2, steps=600, seed=4, slows_down=True))
    return root


@pytest.fixture(scope="module")
def of_made(made: Path) -> Page:
    return page(load_all(made))


# --- thinning --------------------------------------------------------------------------------------------------
def test_thinning_keeps_the_lowest_and_the_highest_value_of_every_bucket() -> None:
    random = np.random.default_rng(1)
    t = np.sort(random.uniform(0, 50, 5000))
    values = random.normal(0, 1, 5000)
    buckets = Buckets.over(0, 50, 37)
    thinned = extremes(buckets.of(t), values, 37).reshape(37, 2)
    for number in range(37):
        inside = values[buckets.of(t) == number]
        assert thinned[number].min() == inside.min()
        assert thinned[number].max() == inside.max()


def test_a_bucket_without_samples_is_a_gap_and_what_is_missing_is_no_value() -> None:
    thinned = extremes(np.array([0, 0, 2]), np.array([1.0, np.nan, 5.0]), 3)
    assert thinned[:2].tolist() == [1.0, 1.0]
    assert np.isnan(thinned[2:4]).all()
    assert thinned[4:].tolist() == [5.0, 5.0]


def test_a_bucket_goes_down_where_the_series_does() -> None:
    assert extremes(np.array([0, 0, 0]), np.array([9.0, 4.0, 1.0]), 1).tolist() == [9.0, 1.0]
    assert extremes(np.array([0, 0, 0]), np.array([1.0, 4.0, 9.0]), 1).tolist() == [1.0, 9.0]


def test_packed_values_are_as_they_were_in_four_digits() -> None:
    values = np.array([0.0, 118e6, np.nan, -3.5e6])
    short = packed(values)
    assert short is not None
    assert json.dumps(short)
    again = unpacked(short)
    assert again[2] is None
    assert [one for one in again if one is not None] == pytest.approx([0.0, 118e6, -3.5e6], rel=5e-4)
    assert packed(np.array([np.nan])) is None


def test_smoothing_leaves_out_what_is_not_finite() -> None:
    values = np.array([1.0] * 50 + [np.nan, np.inf] + [1.0] * 50)
    assert smooth(values) == pytest.approx(np.ones(102))


def test_the_peak_of_one_sample_is_on_the_time_line_however_thin_that_is(made: Path) -> None:
    folder = max(RunFolder.all(made), key=lambda folder: folder.name.startswith("four"))
    with duckdb.connect() as connection:
        show_tables(connection, Run(folder))
        line = timeline(connection, OwnTime((0.0,)), 20)
    assert line is not None
    (sent,) = [one for one in line["series"] if one["of"] == "ps0" and one["what"] == "sent"]
    values = [one or 0.0 for one in unpacked(sent)]
    assert max(values) == pytest.approx(118e6, rel=1e-3)
    assert len(values) == 40
    times = line["axes"][sent["axis"]]
    where = (times[values.index(max(values))] - line["start"]) / (line["end"] - line["start"])
    assert where == pytest.approx(PEAK_AT, abs=0.06)


def test_a_steady_pace_is_a_straight_line_however_steps_fall_into_buckets(of_made: Page) -> None:
    run = next(run for run in of_made["runs"] if run["name"].startswith("two"))
    (pace,) = [one for one in run["timeline"]["series"] if one["what"] == "examples_per_s"]
    values = [one for one in unpacked(pace) if one is not None][2:-2]
    assert values == pytest.approx([run["figures"]["examples_per_s"]] * len(values), rel=0.12)


def test_time_lines_are_coarser_in_reports_over_many_nodes() -> None:
    assert num_buckets(1) > num_buckets(1000) > 60 / 2
    assert num_buckets(1000) * 2 * 7 * 1000 < 4e6


# --- the page --------------------------------------------------------------------------------------------------
def test_a_page_is_plain_data(of_made: Page) -> None:
    assert json.loads(json.dumps(of_made, allow_nan=False)) == of_made


def test_every_number_of_a_table_names_the_runs_it_is_made_of(made: Path, of_made: Page) -> None:
    (collection,) = of_made["collections"]
    rates = {str(run.path): result(run)["examples_per_s"] for run in load_all(made)}
    for row in collection["tables"][0]["rows"]:
        assert row["cells"]["examples_per_s"]["value"] == pytest.approx(
            np.median([rates[path] for path in row["runs"]])
        )
        assert set(row["runs"]) <= set(of_made["ids"])
    assert sorted(path for row in collection["tables"][0]["rows"] for path in row["runs"]) == sorted(rates)


def test_repeats_of_one_job_are_one_row_and_the_speedup_names_its_baseline(of_made: Page) -> None:
    table = of_made["collections"][0]["tables"][0]
    rows = {row["cells"]["configuration"]: row["cells"] for row in table["rows"]}
    assert list(rows) == ["single", "ps-async, 2 tasks, 1 server", "ps-async, 4 tasks, 2 servers"]
    assert rows["single"]["repeats"] == 2
    two = rows["ps-async, 2 tasks, 1 server"]
    assert two["speedup"]["value"] == pytest.approx(
        two["examples_per_s"]["value"] / rows["single"]["examples_per_s"]["value"], rel=1e-6
    )
    assert two["efficiency"]["value"] == pytest.approx(two["speedup"]["value"] / 2)
    assert "(weak scaling: every task has its own batch) are against: single" in table["note"]


def test_what_slowed_a_run_down_is_found_with_its_time_on_the_time_line(of_made: Page) -> None:
    found = [one for one in of_made["findings"] if one["trouble"] and "hroughput" in one["title"]]
    assert found, [one["title"] for one in of_made["findings"]]
    (case, *_) = found[0]["cases"]
    line = next(run["timeline"] for run in of_made["runs"] if run["path"] == case["path"])
    moments = [one["start"] for one in case["evidence"] if one["start"] is not None]
    assert moments
    assert all(line["start"] - 1 <= moment <= line["end"] for moment in moments)


def test_charts_have_an_ideal_line_and_a_point_for_each_configuration(of_made: Page) -> None:
    charts = {chart["name"]: chart for chart in of_made["collections"][0]["charts"]}
    assert {"throughput", "speedup", "efficiency", "time", "accuracy", "loss"} <= charts.keys()
    (ideal,) = [series for series in charts["speedup"]["series"] if series["style"] == "ideal"]
    assert ideal["x"] == ideal["y"] == [1, 4]
    points = [x for series in charts["throughput"]["series"] if series["style"] == "measured" for x in series["x"]]
    assert sorted(points) == [1, 2, 4]


def test_one_configuration_alone_has_tables_and_a_time_line_but_no_chart_of_one_bar(made: Path) -> None:
    found = page([run for run in load_all(made) if run.name.startswith("alone")])
    assert found["collections"][0]["charts"] == []
    assert found["runs"][0]["timeline"]["series"]
    assert "Throughput" not in html(found)


def test_events_are_on_the_time_line(of_made: Page) -> None:
    run = next(run for run in of_made["runs"] if run["name"].startswith("two"))
    texts = [event["text"] for event in run["events"] if event["trouble"]]
    assert texts == ["worker/1 restarting (it was killed by signal 9)"]
    assert {"evaluation", "checkpoint", "measured", "state"} <= {event["kind"] for event in run["events"]}
    assert [event["t"] for event in run["events"]] == sorted(event["t"] for event in run["events"])


def test_a_damaged_run_does_not_hide_the_others(made: Path, tmp_path: Path) -> None:
    broken = clone(RunFolder.all(made)[0], f"broken-{tmp_path.name.replace('_', '-')}")
    try:
        broken.job_file.unlink()  # a clone shares its files
        broken.job_file.write_text("{")
        found = page([Run(broken), *load_all(made)[:1]])
        assert [bool(run["problem"]) for run in found["runs"]] == [True, False]
        assert "cannot be read" in html(found)
        assert "damaged" in markdown(found)
    finally:
        shutil.rmtree(broken.path)


def test_a_run_that_never_stepped_has_a_page(made: Path, tmp_path: Path) -> None:
    empty = RunFolder(tmp_path / "empty-run")
    shutil.copytree(RunFolder.all(made)[0].path, empty.path)
    shutil.rmtree(empty.tables)
    for folder in (empty.events_folder, empty.metrics_folder):
        for file in folder.glob("*.jsonl"):
            file.write_text("")
    found = page([Run(empty)])
    assert found["runs"][0]["problem"] is None
    assert found["runs"][0]["timeline"] is None
    assert "empty-run" in html(found)


def test_limits_of_disks_and_credits_are_shown_with_what_was_got(of_made: Page) -> None:
    run = copy.deepcopy(of_made["runs"][0])
    node = run["figures"]["nodes"][0]
    disk, credits = {"read": 100e6, "write": 50e6}, {"per_hour": 6.0, "start": 30.0}
    node["asked"] = {"type": "t2.micro", "cpus": 1.0, "disk": disk, "credits": credits}
    text = run_entry(run, of_made)
    for words in ("type t2.micro", "disk read 100 MB/s, disk write 50 MB/s", "credits per hour 6, credits start 30"):
        assert words in text
    assert f"<td>disk read of {node['node']}</td><td>100 MB/s</td><td>not used</td>" in text
    assert re.search(r"<td>disk write of \w+</td><td>50 MB/s</td><td>[0-9.]+ MB/s at the most</td>", text)


# --- a sweep ---------------------------------------------------------------------------------------------------
def test_a_sweep_is_a_table_of_its_trials_with_what_failed_and_what_is_doubtful(tmp_path: Path) -> None:
    sweep = make_sweep(
        tmp_path,
        "e1-scaling",
        repeats=2,
        steps=60,
        published="e1-scaling",
        vary=VARIED,
        also=[{"strategy": "ps-sync", "cluster.worker": 4}],
    )
    found = page([], [sweep])
    (collection,) = found["collections"]
    rows = {row["cells"]["configuration"]: row for row in collection["tables"][0]["rows"]}
    assert "not ready within 180 s" in rows["ps-sync, worker 4"]["note"]
    assert "loaded (1 of 2 runs)" in rows["ps-async, worker 3"]["note"]
    assert rows["single"]["cells"]["speedup"]["value"] == pytest.approx(1.0)
    lines = [series["name"] for series in collection["charts"][0]["series"] if series["style"] == "measured"]
    assert lines == ["single", "ps-async"]
    published, shape, conclusions = found["published"]
    assert "6,677" in str(published["rows"])
    assert all(row["runs"] for row in shape["rows"] if "relative to 1" in row["cells"]["words"])
    verdicts = {row["cells"]["conclusion"]: row["cells"]["verdict"] for row in conclusions["rows"]}
    assert verdicts["Each further worker shortens the training."] == "re-found"
    assert any(
        series["name"].startswith("E1") and series["y"][0] == 1.0 for series in collection["shapes"][0]["series"]
    )
    text = html(found)
    assert "not ready within 180 s" in text
    assert "Gagliano" in text


# --- what others wrote is text -------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def evil(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """A run whose every text was written by somebody who means no good."""
    folder = RunFolder(tmp_path_factory.mktemp("evil") / "evil-run")
    shutil.copytree(RunFolder.all(made)[-1].path, folder.path)
    launcher = folder.events("launcher")
    event = {"t": 1_700_000_000.0, "kind": "restarting", "launch": 0, "task": EVIL, "reason": EVIL}
    launcher.write_text(launcher.read_text() + json.dumps(event) + "\n")
    node = {"t": 1_700_000_001.0, "kind": "node_ready", "launch": 0, "node": EVIL, "tasks": [EVIL], "asked": {EVIL: 1}}
    launcher.write_text(launcher.read_text() + json.dumps(node) + "\n")
    job = json.loads(folder.job_file.read_text())
    job["choices"].append({"path": EVIL, "value": EVIL, "reason": EVIL})
    job["resolved"]["workload"]["model"]["name"] = EVIL
    folder.job_file.write_text(json.dumps(job))
    environment = json.loads(folder.environment_file.read_text())
    folder.environment_file.write_text(json.dumps({**environment, "cpu": EVIL, "packages": {EVIL: EVIL}}))
    folder.write_facts({**folder.facts(), "reason": EVIL})
    return page([Run(folder)], title=EVIL)


def test_no_text_of_a_run_folder_becomes_markup(evil: Page) -> None:
    assert evil["runs"][0]["problem"] is None
    text = html(evil)
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    assert "&lt;img src=x" in text
    assert text.count("</script>") == text.count("<script") == 4 + 1


def test_only_our_scripts_may_run(of_made: Page) -> None:
    text = html(of_made)
    policy = re.search(r"script-src ([^;]*);", text)
    assert policy is not None
    assert "unsafe" not in policy[1]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (packed_library,) = re.findall(r'id="plotly">([^<]*)<', text)
    library = gzip.decompress(base64.b64decode(packed_library))
    for code in (script.encode(), library):
        assert base64.b64encode(hashlib.sha256(code).digest()).decode() in policy[1]


def test_the_page_asks_for_nothing_from_elsewhere(of_made: Page) -> None:
    text = re.sub(r"<script.*?</script>", "", html(of_made), flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text) == []
    assert "url(" not in text
    assert "@import" not in text


def test_every_link_has_a_target(of_made: Page) -> None:
    text = html(of_made)
    targets = set(re.findall(r' id="([^"]+)"', text))
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links - targets == set()
    assert {run["id"] for run in of_made["runs"]} <= links


# --- other forms -----------------------------------------------------------------------------------------------
def test_markdown_has_the_same_figures_and_no_markup_of_others(of_made: Page, evil: Page) -> None:
    text = markdown(of_made)
    rows = of_made["collections"][0]["tables"][0]["rows"]
    for row in rows:
        assert say(row["cells"]["examples_per_s"]["value"]) in text
    for line in (line for line in text.splitlines() if line.startswith("| ps-async")):
        assert len(re.findall(r"(?<!\\)\|", line)) >= 8
    assert "<script>" not in markdown(evil)


def test_csv_and_parquet_hold_the_same_rows(of_made: Page, tmp_path: Path) -> None:
    write_csv(of_made, tmp_path / "a.csv")
    write_parquet(of_made, tmp_path / "a.parquet")
    with (tmp_path / "a.csv" / "results-runs.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    asked = f"select configuration, examples_per_s, examples_per_s_low from '{tmp_path}/a.parquet/results-runs.parquet'"
    stored = duckdb.execute(asked).fetchall()
    assert [
        (line["configuration"], float(line["examples_per_s"]), float(line["examples_per_s_low"])) for line in lines
    ] == stored
    peak = duckdb.execute(
        f"select max(value) from '{tmp_path}/a.parquet/timeline.parquet' where what = 'sent'"
    ).fetchall()
    assert peak[0][0] == pytest.approx(118e6, rel=1e-3)
    assert {path.stem for path in (tmp_path / "a.csv").glob("*.csv")} == {
        path.stem for path in (tmp_path / "a.parquet").glob("*.parquet")
    }


def test_a_text_is_no_formula_in_a_spreadsheet(evil: Page, tmp_path: Path) -> None:
    formula = copy.deepcopy(evil)
    formula["collections"][0]["tables"][0]["rows"][0]["cells"]["configuration"] = "=HYPERLINK(1)"
    write_csv(formula, tmp_path / "e.csv")
    assert "'=HYPERLINK(1)" in (tmp_path / "e.csv" / "results-runs.csv").read_text()


def test_a_folder_of_somebody_else_is_never_written_over(of_made: Page, tmp_path: Path) -> None:
    folder = tmp_path / "mine.csv"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years")
    with pytest.raises(SpecError, match="no report of ours"):
        write_csv(of_made, folder)
    assert (folder / "thesis.txt").read_text() == "years"


def test_the_notebook_runs_without_the_run_folders(of_made: Page) -> None:
    found = json.loads(notebook(of_made))
    assert found["nbformat"] == 4
    codes = ["".join(each["source"]) for each in found["cells"] if each["cell_type"] == "code"]
    names: dict[str, Any] = {}
    for code in codes:  # .show() would open a browser
        exec(code.replace("show(chart).show()", "show(chart)"), names)  # noqa: S102
    assert len(names["tables"]["runs"]) == 4
    assert len(names["figure"].data) > 5


# --- words -----------------------------------------------------------------------------------------------------
def test_numbers_are_said_in_their_units() -> None:
    assert say(1234.5) == "1,234"
    assert [say(value) for value in (999.4, 999.7, -999.7, 0.0, 0.00001234)] == [
        "999",
        "1,000",
        "-1,000",
        "0",
        "1.2e-05",
    ]
    assert say(0.9996, "s") == "1.0 s"
    assert say(0.05, "share") == "5.0%"
    assert say(1.876, "times") == "1.88\u00d7"
    assert say(125e6, "B/s") == "1 Gbit/s"
    assert say(4e6, "disk") == "4 MB/s"
    assert say(None, "s") == "-"
    assert cell({"value": 800.0, "low": 790.0, "high": 805.0, "num": 3}, "") == "800 (790–805)"  # noqa: RUF001
    assert cell({"value": 800.0, "low": 800.0, "high": 800.0, "num": 1}, "") == "800"
