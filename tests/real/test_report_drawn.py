"""What the charts of a report show in a real browser: runs that failed, many configurations, a resumed run, a user's
own program; and that keys which are the browser's stay so."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, browser, showing

from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.record.run import load_all
from headway.report.html import html
from headway.report.page import page
from headway.spec.load import parse_job
from headway.units import format_seconds

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from made_runs import BEGAN, Made, make_run

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]
DAY = 86_400.0
LOSS = "document.getElementById('plot-learn-loss')"
PLOT = "document.getElementById('timeline-plot')"
SHOWN = "document.getElementById('learn-shown').innerText"
LINES = f"{LOSS}._fullData.filter((one) => one.showlegend && one.mode === 'lines')"
BOXES = "[...document.querySelectorAll('#learn-which input')]"
ID_OF = "((name) => Object.entries(headway.page.names).find((one) => one[1].startsWith(name))[0])"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten configurations, one of them twice; a run whose loss blew up, one that was resumed the next day, and a
    program that ended before it told of anything."""
    root = tmp_path_factory.mktemp("drawn")
    for number in range(10):
        make_run(root, Made(f"c{number}", steps=60, seed=number, batch_size=10 * (number + 1)))
    make_run(root, Made("again", steps=60, seed=20, batch_size=10))
    change(make_run(root, Made("blown", steps=60, seed=21, batch_size=990)), "failed", [], blow_up)
    launches = [{"started": BEGAN + 22_000, "ended": BEGAN + 22_006}, {"started": BEGAN + 22_000 + DAY}]
    change(make_run(root, Made("resumed", steps=120, seed=22, batch_size=980)), "finished", launches, a_day_later)
    own = {"name": "own", "workload": {"command": "python train.py"}, "cluster": {"worker": 2, "ps": 1}}
    folder = create_run(parse_job(own), root)
    folder.write_facts({**folder.facts(), "state": "failed", "launches": [{"started": BEGAN, "ended": BEGAN + 2}]})
    path = root / "report.html"
    path.write_text(html(page(load_all(root))), encoding="utf-8")
    return path


def change(folder: RunFolder, state: str, launches: list[dict[str, float]], row: Any) -> None:
    """Of a made run another one, which is not sealed."""
    for file in folder.tables.glob("*"):
        file.unlink()
    folder.tables.rmdir()
    (folder.path / "result.json").unlink()
    for path in [*folder.events_folder.glob("*.jsonl"), *folder.metrics_folder.glob("*.jsonl")]:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.write_text("".join(to_json(row(one)) + "\n" for one in lines), encoding="utf-8")
    facts = folder.facts()
    folder.write_facts({**facts, "state": state, "launches": launches or facts["launches"]})


def blow_up(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "loss": math.inf} if row["kind"] == "step" and row["step"] > 30 else row


def a_day_later(row: dict[str, Any]) -> dict[str, Any]:
    is_late = row["t"] > BEGAN + 22_006
    return {**row, "t": row["t"] + DAY} | ({"sampler": 1} if "sampler" in row else {}) if is_late else row


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def opened(window: Browser, report: Path) -> Iterator[Browser]:
    with showing(window, report):
        window.ask("headway.everything()")
        window.ask("document.getElementById('learning').scrollIntoView()")
        yield window


def choose(window: Browser, name: str) -> None:
    window.ask(
        "{ const which = document.getElementById('which');"
        f" which.value = {ID_OF}('{name}'); which.dispatchEvent(new Event('change')); }}"
    )
    window.wait_for(f"headway.shown() && headway.shown().run.name.startsWith('{name}')")


def test_a_run_that_failed_is_drawn_with_its_state_and_where_its_loss_blew_up(opened: Browser) -> None:
    names = opened.ask(f"{LINES}.map((one) => one.name)")
    (blown,) = [name for name in names if "(failed)" in name]
    assert "batch 990" in blown
    assert blown.endswith("not finite from step 31")
    drawn = opened.ask(f"{LINES}.find((one) => one.name.includes('failed')).y.filter((one) => one !== null).length")
    assert drawn >= 30
    assert "The loss became not finite" in opened.ask(f"{LOSS}.closest('figure').innerText")


def test_of_many_configurations_it_is_said_how_many_are_drawn_and_no_two_look_alike(opened: Browser) -> None:
    assert opened.ask(SHOWN) == "Drawn: 8 of 12 configurations, of each its first repeat."
    opened.ask("document.getElementById('learn-choice').open = true")
    opened.ask("document.getElementById('learn-every').click()")
    opened.wait_for(f"{LINES}.length === 12")
    assert opened.ask(SHOWN) == "Drawn: all 12 configurations, of each its first repeat."
    looks = opened.ask(f"{LINES}.map((one) => one.line.color + one.line.dash)")
    assert len(set(looks)) == 12
    assert len(set(opened.ask(f"{LINES}.slice(0, 4).map((one) => one.line.dash)"))) == 4


def test_configurations_are_chosen_with_the_keyboard(opened: Browser) -> None:
    opened.ask("document.querySelector('#learn-choice summary').focus()")
    opened.press("Enter")
    opened.wait_for("document.getElementById('learn-choice').open")
    opened.ask(f"{BOXES}.find((one) => !one.checked).focus()")
    before = opened.ask(f"{LINES}.length")
    opened.press(" ")
    opened.wait_for(f"{LINES}.length === {before + 1}")
    assert opened.ask(SHOWN).startswith("Drawn: 9 of 12")
    opened.ask("document.getElementById('learn-none').click()")
    opened.wait_for(f"{LOSS}.innerText.includes('no configuration is chosen')")


def test_the_nodes_of_a_time_line_differ_in_dashes_too(opened: Browser) -> None:
    choose(opened, "c0")
    dashes = (
        f"[...new Set({PLOT}._fullData.filter((one) => one.name.startsWith('worker')).map((one) => one.line.dash))]"
    )
    opened.wait_for(f"{PLOT}._fullData && {dashes}.length > 1")


def test_a_resumed_run_is_as_long_as_it_ran_and_says_where_it_went_on(opened: Browser) -> None:
    choose(opened, "resumed")
    opened.wait_for(f"{PLOT}.innerText.includes('resumed after') || {PLOT}.textContent.includes('resumed after')")
    assert "resumed after 23 h 59 min" in opened.ask(f"{PLOT}.textContent")
    assert opened.ask("headway.shown().run.timeline.end") < 40
    opened.ask(
        "{ const axis = document.getElementById('learn-axis'); axis.value = 'seconds';"
        " axis.dispatchEvent(new Event('change')); }"
    )
    opened.ask("document.getElementById('learn-every').click()")
    opened.wait_for(f"{LOSS}.textContent.includes('without the time between launches')")
    assert max(opened.ask(f"{LINES}.flatMap((one) => one.x)")) < 40


def test_what_is_not_known_of_a_program_is_not_made_up(opened: Browser) -> None:
    choose(opened, "own")
    for name in ("servers", "staleness"):
        words = f"document.getElementById('{name}-plot').textContent"
        opened.wait_for(f'{words}.includes("not known of a user\'s own program")')
        assert not opened.ask(f"/no servers|ever stale/.test({words})")


def test_keys_with_ctrl_are_the_browsers_and_arrows_stop_at_the_ends(opened: Browser) -> None:
    choose(opened, "c0")
    opened.wait_for(f"{PLOT}.dataset.drawn")
    opened.ask(f"{PLOT}.focus()")
    opened.ask("window.taken = []")
    opened.ask("addEventListener('keydown', (event) => taken.push(event.defaultPrevented))")
    for modifiers in (1, 2, 4):  # Alt, Ctrl, Cmd
        opened.press("+", modifiers=modifiers)
    assert opened.ask("taken") == [False] * 3
    assert opened.ask("headway.shown().range") is None
    opened.press("+")
    opened.wait_for("headway.shown().range !== null")
    low, high = opened.ask("headway.shown().range")
    for _ in range(6):
        opened.press("ArrowRight")
        opened.ask("new Promise((done) => setTimeout(done, 60))")
    end = opened.ask("headway.shown().run.timeline.end")
    opened.wait_for(f"Math.abs(headway.shown().range[1] - {end}) < 1e-6")
    now = opened.ask("headway.shown().range")
    assert now[1] - now[0] == pytest.approx(high - low, rel=1e-6)


def test_durations_are_said_as_the_tables_say_them(opened: Browser) -> None:
    seconds = [0.0000042, 0.0009996, 0.0123, 0.9, 0.9996, 1.0, 59.4, 59.97, 60.0, 75.0, 119.6, 3599.7, 7200.0, 86_000.0]
    said = opened.ask(f"{json.dumps(seconds)}.map((one) => headway.say(one, 's'))")
    assert said == [format_seconds(one) for one in seconds]


def test_one_outlier_does_not_make_what_else_moved_deaf(opened: Browser) -> None:
    """Steps of 3 ms that become 6 ms, and one of a minute."""
    times = list(range(200))
    values = [3 if t < 150 else 6 for t in times]
    values[20] = 60_000
    series = [{"of": "worker/0", "what": "step_seconds", "axis": 0, "unit": 1e-3, "values": values}]
    line = {"start": 0, "end": 199, "breaks": [], "axes": [times], "series": series}
    run = json.dumps({"timeline": line, "events": []})
    assert opened.ask(f"headway.moved({run}, 150, 199).length") == 1
    assert opened.ask(f"headway.moved({run}, 100, 140).length") == 0
