"""The HTML report in a real browser: it opens offline without a complaint, its charts are drawn, its links lead
somewhere, its time lines zoom together, and all of that works from the keyboard and in the dark."""

from __future__ import annotations

import json
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, showing

from headway.record.folder import RunFolder
from headway.record.run import Run, load_all
from headway.report.html import html
from headway.report.page import page

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import SLOW_FROM, STARTING, Made, make_run, make_sweep

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
EVIL = '<img src=x onerror="console.error(1)"></script><script>console.error(2)</script>'
CLOSED = "document.querySelectorAll('details:not([open])').length"
PLOT = "document.getElementById('timeline-plot')"
FIRST = "document.querySelector('#findings a[data-from]')"
ID_OF = "((name) => Object.entries(headway.page.names).find((one) => one[1].startsWith(name))[0])"
# Of the time line's nodes; the page itself has none of these colours.
COLORS_ON_PAPER = (
    f"[...new Set({PLOT}._fullData.filter((one) => one.name.startsWith('worker')).map((one) => one.line.color))]"
)
ALL_DRAWN = "headway.everything().then(() => [...document.querySelectorAll('.plot')].every((one) => one.dataset.drawn))"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, the second of which slows down, one in which nothing was sampled, a sweep, and runs of somebody who
    means no good: one that is not sealed, and two that are."""
    root = tmp_path_factory.mktemp("made")
    make_run(root, Made("two", steps=240, seed=3, restarts=True))
    make_run(root, Made("slower", workers=3, servers=2, steps=900, seed=4, slows_down=True))
    evil = RunFolder(root / "evil-run")
    shutil.copytree(RunFolder.all(root)[0].path, evil.path)
    evil.write_facts({**evil.facts(), "reason": EVIL})
    with evil.events("launcher").open("a") as file:
        file.write(json.dumps({"t": 1_700_003_010.0, "kind": "restarting", "task": EVIL, "reason": EVIL}) + "\n")
    good = RunFolder.all(root)[-1]
    for name in ("vile-sealed", "vile-figures"):
        spoil(RunFolder(root / name), good)
    empty_run(RunFolder(root / "zero-run"), good)
    sweep = make_sweep(root, repeats=1, steps=60, vary={"cluster.worker": [1, 2, 3]}, published="e1-scaling")
    path = root / "report.html"
    path.write_text(html(page(load_all(root), [sweep])), encoding="utf-8")
    return path


def spoil(folder: RunFolder, good: RunFolder) -> None:
    """Sealed: its figures are read as they lie there."""
    shutil.copytree(good.path, folder.path)
    figures = json.loads((folder.path / "result.json").read_text())
    if folder.name == "vile-figures":
        figures["accuracy"] = {"value": f'1">{EVIL}', "low": 0, "high": 1, "num": 1}
    figures |= {"name": EVIL, "reason": EVIL, "model": EVIL}
    figures["tasks"][0]["task"] = figures["nodes"][0]["node"] = figures["servers"][0]["task"] = EVIL
    figures["servers"][0]["largest"][0]["name"] = EVIL
    (folder.path / "result.json").write_text(json.dumps(figures))
    assert Run(folder).is_sealed


def empty_run(folder: RunFolder, good: RunFolder) -> None:
    """It was broken off before anything happened."""
    shutil.copytree(good.path, folder.path)
    shutil.rmtree(folder.tables)
    for inside in (folder.events_folder, folder.metrics_folder):
        for file in inside.glob("*.jsonl"):
            file.write_text("")


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def opened(window: Browser, report: Path) -> Iterator[Browser]:
    with showing(window, report):
        yield window


def choose(window: Browser, name: str) -> dict[str, Any]:
    """Show the time line of the run whose name begins so."""
    show(window, name)
    window.wait_for(f"headway.shown() && headway.shown().run.name.startsWith('{name}') && {PLOT}.dataset.drawn")
    found = window.ask("headway.shown().run.timeline")
    assert isinstance(found, dict)
    return found


def show(window: Browser, name: str) -> None:
    window.ask(
        "{ document.getElementById('timeline').scrollIntoView(); const which = document.getElementById('which');"
        f" which.value = {ID_OF}('{name}'); which.dispatchEvent(new Event('change')); }}"
    )


def shown_range(window: Browser) -> list[float]:
    return [float(one) for one in window.ask(f"{PLOT}.layout.xaxis.range")]


def test_every_chart_is_drawn(opened: Browser) -> None:
    assert opened.ask(ALL_DRAWN)
    assert opened.ask("document.querySelectorAll('.plot').length") > 12
    assert opened.ask("[...document.querySelectorAll('.plot')].every((one) => one.querySelector('svg.main-svg'))")
    lines = opened.ask("document.querySelectorAll('#timeline-plot .scatterlayer .trace').length")
    assert lines > 8
    assert opened.ask("document.querySelectorAll('[id^=plot-throughput] .point').length") > 0


def test_every_link_leads_to_what_it_names(opened: Browser) -> None:
    links = "[...document.querySelectorAll('a[href^=\"#\"]')].map((one) => one.getAttribute('href').slice(1))"
    missing = f"{links}.filter((one) => !document.getElementById(one)).length"
    assert opened.ask(missing) == 0
    opened.ask("document.querySelector('#results td a').click()")
    opened.wait_for("document.querySelector('details.run[open]') !== null")
    assert opened.ask("document.querySelector('details.run[open]').id === location.hash.slice(1)")


def test_dragging_zooms_all_rows_together_and_says_what_else_moved(opened: Browser) -> None:
    line = choose(opened, "slower")
    box = opened.ask(
        "(() => { const row = document.querySelectorAll('#timeline-plot .nsewdrag')[3].getBoundingClientRect();"
        " return [row.x, row.y, row.width, row.height]; })()"
    )
    opened.ask(f"scrollBy(0, {box[1] - 300})")
    middle = 300 + box[3] / 2
    late = line["start"] + 0.8 * (line["end"] - line["start"])
    opened.drag((box[0] + 0.8 * box[2], middle), (box[0] + 0.95 * box[2], middle))
    opened.wait_for("headway.shown().range !== null")
    low, high = shown_range(opened)
    assert low == pytest.approx(late, abs=0.05 * (line["end"] - line["start"]))
    assert high < line["end"]
    # Every row has the one axis, so all of them show the same interval.
    assert opened.ask("new Set(document.getElementById('timeline-plot')._fullData.map((one) => one.xaxis)).size") == 1
    moved = opened.ask("document.getElementById('moved-list').innerText")
    assert "all tasks: examples per second" in moved
    assert "ps0: CPUs in use" in moved
    assert "▼" in moved
    assert "memory" not in moved


def test_what_moved_is_silent_where_nothing_did(opened: Browser) -> None:
    line = choose(opened, "two")
    begin, end = line["start"] + 8, line["start"] + 12
    series = "map((one) => one.series.of + ' ' + one.series.what)"
    assert opened.ask(f"headway.moved(headway.shown().run, {begin}, {end}).{series}") == []
    slow = choose(opened, "slower")
    late = STARTING + SLOW_FROM * (slow["end"] - STARTING)
    found = opened.ask(f"headway.moved(headway.shown().run, {late}, {slow['end'] - 1}).{series}")
    assert "ps0 cpus" in found
    assert "all tasks examples_per_s" in found


def test_a_finding_leads_to_its_place_on_the_time_line(opened: Browser) -> None:
    opened.ask(f"{FIRST}.click()")
    opened.wait_for("headway.shown() && headway.shown().range !== null")
    asked = opened.ask(f"[Number({FIRST}.dataset.from), Number({FIRST}.dataset.to)]")
    start, end = opened.ask("[headway.shown().run.timeline.start, headway.shown().run.timeline.end]")
    # What is drawn when there is time must not show another run, or all of this one.
    opened.ask("headway.everything()")
    opened.wait_for("document.activeElement.id === 'timeline-plot'")
    low, high = shown_range(opened)
    assert start <= low <= max(asked[0], start) + 1e-6
    assert min(asked[1], end) - 1e-6 <= high <= end
    assert high - low < end - start
    assert opened.ask(f"headway.shown().id === {FIRST}.dataset.run")


def test_of_two_runs_asked_for_at_once_the_later_is_shown(opened: Browser) -> None:
    first, last = (opened.ask(f"{ID_OF}('{name}')") for name in ("slower", "two"))
    opened.ask(
        "{ const which = document.getElementById('which');"
        f" for (const id of ['{first}', '{last}']) {{ which.value = id; which.dispatchEvent(new Event('change')); }} }}"
    )
    opened.ask(f"Promise.all([headway.data('data-{first}'), headway.data('data-{last}'), headway.everything()])")
    opened.wait_for(f"headway.shown() && headway.shown().id === '{last}' && {PLOT}.dataset.drawn")
    assert opened.ask("document.getElementById('timeline-where').innerText").startswith("two")
    assert opened.ask("document.getElementById('which').value") == last


def test_a_run_without_samples_does_not_spoil_the_time_line_of_the_next(opened: Browser) -> None:
    line = choose(opened, "slower")
    opened.ask("document.getElementById('timeline-plot').focus()")
    opened.press("+")
    opened.wait_for("headway.shown().range !== null")
    show(opened, "zero")
    opened.wait_for(f"{PLOT}.innerText === 'Nothing was sampled in this run.'")
    assert "Nothing was sampled" in opened.ask("document.getElementById('moved').innerText")
    assert opened.ask("document.getElementById('moved-list').children.length") == 0
    assert opened.ask("document.getElementById('from').value") == ""
    for button in ("zoom", "whole", "theme", "theme"):
        opened.ask(f"document.getElementById('{button}').click()")
    assert choose(opened, "slower") == line
    opened.wait_for(f"{PLOT}.querySelectorAll('.scatterlayer .trace').length > 8")
    assert shown_range(opened) == [line["start"], line["end"]]
    assert "Nothing was sampled" not in opened.ask(f"{PLOT}.innerText")


def test_the_keyboard_is_enough(opened: Browser) -> None:
    opened.press("Tab")
    assert opened.ask("document.activeElement.className") == "skip"
    opened.press("Enter")
    assert opened.ask("location.hash") == "#findings"
    line = choose(opened, "two")
    opened.ask("document.getElementById('timeline-plot').focus()")
    opened.press("+")
    opened.wait_for("headway.shown().range !== null")
    low, high = shown_range(opened)
    assert line["start"] < low < high < line["end"]
    opened.press("ArrowRight")
    opened.wait_for(f"{PLOT}.layout.xaxis.range[0] > {low + 0.1}")
    opened.press("0")
    opened.wait_for(f"{PLOT}.layout.xaxis.range[0] <= {line['start'] + 1e-6}")
    opened.ask("document.getElementById('from').value = 6")
    opened.ask("document.getElementById('to').value = 9; document.getElementById('to').focus()")
    opened.press("Enter")
    opened.wait_for(f"{PLOT}.layout.xaxis.range[0] == 6")
    assert shown_range(opened) == [6, 9]
    opened.ask("document.querySelector('#every-run + .wide th button, #every-run ~ .wide th button').focus()")
    opened.press("Enter")
    rows = "[...document.querySelectorAll('#every-run ~ .wide tbody tr')]"
    names = opened.ask(f"{rows}.map((one) => one.cells[0].innerText.split('\\n')[0])")
    assert names[0] == "evil-run"
    assert names == sorted(names)


def test_dark_and_light_differ_and_charts_follow(opened: Browser) -> None:
    assert opened.ask(ALL_DRAWN)
    tick = "getComputedStyle(document.querySelector('.plot[data-drawn] .xtick text')).fill"
    colors = f"[getComputedStyle(document.body).backgroundColor, {tick}]"
    light = opened.ask(colors)
    opened.ask("document.getElementById('theme').click()")
    opened.wait_for(f"JSON.stringify({colors}) !== '{json.dumps(light, separators=(',', ':'))}'")
    opened.wait_for(f"({colors})[1] !== '{light[1]}'")
    dark = opened.ask(colors)
    assert dark[0] != light[0]
    opened.ask("document.getElementById('theme').click()")


def test_texts_of_a_run_folder_stay_texts(opened: Browser) -> None:
    for name in ("evil", "vile-sealed"):
        choose(opened, name)
        opened.ask(ALL_DRAWN)
    opened.ask("for (const each of document.querySelectorAll('details')) each.open = true")
    assert "is no number" in opened.ask(f"document.getElementById({ID_OF}('vile-figures')).innerText")
    assert opened.ask("document.querySelectorAll('img').length") == 0
    assert opened.ask("document.body.innerText.includes('onerror') || document.body.textContent.includes('onerror')")


def test_nothing_is_wider_than_a_narrow_window(opened: Browser) -> None:
    opened.size(420)
    assert opened.ask(ALL_DRAWN)
    opened.wait_for("document.documentElement.scrollWidth <= 420")


def test_on_paper_it_has_every_chart_in_black_on_white(opened: Browser, tmp_path: Path) -> None:
    opened.wait_for(
        "[...document.querySelectorAll('.plot')].every((one) => one.dataset.drawn)"
    )  # also what is far below
    colors = opened.ask(COLORS_ON_PAPER)
    opened.ask("document.getElementById('theme').click()")
    opened.ask(
        "addEventListener('beforeprint', () => { window.printed = [document.documentElement.dataset.theme,"
        f" {PLOT}.querySelector('svg.main-svg').getBoundingClientRect().width, {CLOSED}]; }})"
    )
    opened.ask("document.querySelector('details.run').open = true")
    folded = opened.ask(CLOSED)
    assert folded > 3
    opened.print(tmp_path / "report.pdf")
    lines = lines_in(tmp_path / "report.pdf", colors)
    assert min(lines.values()) > 20, lines
    theme, width, folded_on_paper = opened.ask("window.printed")
    assert folded_on_paper == 0
    opened.wait_for(f"{CLOSED} === {folded}")
    assert opened.ask("document.querySelector('details.run').open")
    assert theme == "light"
    assert width == pytest.approx(980, abs=2)
    opened.wait_for("document.documentElement.dataset.theme === 'dark'")
    opened.ask("document.getElementById('theme').click()")
    # Blank charts would be noticed.
    opened.ask("for (const plot of document.querySelectorAll('.plot')) plot.style.visibility = 'hidden'")
    opened.print(tmp_path / "blank.pdf")
    assert max(lines_in(tmp_path / "blank.pdf", colors).values()) == 0


def lines_in(pdf: Path, colors: list[str]) -> dict[str, int]:
    """How many lines have each of these colours: what strokes a path sets its colour before."""
    found = dict.fromkeys(colors, 0)
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf.read_bytes(), re.DOTALL):
        try:
            drawing = zlib.decompress(packed).decode("latin-1")
        except zlib.error:
            continue
        for parts in re.findall(r"([0-9.]+) ([0-9.]+) ([0-9.]+) RG", drawing):
            color = "#" + "".join(f"{round(255 * float(part)):02x}" for part in parts)
            if color in found:
                found[color] += 1
    return found


def test_a_report_of_one_run_that_was_broken_off(window: Browser, report: Path, tmp_path: Path) -> None:
    empty = RunFolder(tmp_path / "empty-run")
    empty_run(empty, RunFolder.all(report.parent)[0])
    path = tmp_path / "empty.html"
    path.write_text(html(page([Run(empty)])), encoding="utf-8")
    window.complaints.clear()
    window.open(path)
    window.ask("headway.everything()")
    assert "Nothing was sampled" in window.ask("document.getElementById('timeline-plot').innerText")
    assert window.complaints == []
