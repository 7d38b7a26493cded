"""/metrics: the text, the server, and who else speaks of its metrics."""

from __future__ import annotations

import asyncio
import json
import math
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from statuses import BURSTABLE, RUN, Told, three_nodes, trained

from headway.errors import SiteError
from headway.launch import exposition
from headway.launch.exposition import FAMILIES

PROJECT = Path(__file__).parents[2]
DASHBOARD = PROJECT / "docs" / "grafana" / "headway.json"
NAMES = {family.name: family for families in FAMILIES.values() for family in families}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')


def parse(text: str) -> tuple[Samples, dict[str, str]]:
    """As strict as the format: HELP, TYPE, then all samples of one metric, each once. Returns samples and types."""
    assert text.endswith("\n")
    samples: Samples = {}
    types: dict[str, str] = {}
    helped: set[str] = set()
    current = None
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in helped
            assert words.strip()
            helped.add(name)
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert name not in types
            assert kind in ("gauge", "counter")
            types[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, inside, number = match.groups()
            assert name == current, f"{name} stands among the samples of {current}"
            assert name in types
            labels, end = [], 0
            while end < len(inside):
                label = LABEL.match(inside, end)
                assert label, inside
                value = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), label[2])
                labels.append((label[1], value))
                end = label.end()
            assert len(dict(labels)) == len(labels)
            key = (name, frozenset(labels))
            assert key not in samples, f"twice: {line}"
            samples[key] = float(number)  # also NaN and +Inf
    assert helped == set(types)
    return samples, types


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({"run": RUN, **labels}.items())]


# --- the text --------------------------------------------------------------------------------------------------------
def test_every_metric_is_there_with_its_labels_and_in_base_units() -> None:
    told = Told(three_nodes(BURSTABLE))
    told.goes_on(60)
    told.computes("worker0", [0.25, 0.5], [0.75, 1.0])
    status = told.value()
    status["evaluation"] = {"step": 40, "loss": 0.25, "accuracy": 0.9}
    status["nodes"][0]["limits"]["rate"] = 125e6
    status["nodes"][0]["sample"]["context_switches"] = 17
    for task in status["tasks"]:
        task["sample"] |= {"disk_read_bytes": 1, "disk_written_bytes": 2, "context_switches": 3}
    samples, types = parse(exposition.text(status))
    assert set(types) == set(NAMES)
    assert value(samples, "headway_global_step") == status["step"]
    assert value(samples, "headway_target_steps") == 100
    assert value(samples, "headway_steps_per_second") == pytest.approx(30)
    assert value(samples, "headway_evaluation_loss") == 0.25
    node = {"node": "worker0"}
    assert value(samples, "headway_node_up", **node) == 1
    assert value(samples, "headway_node_cpu_seconds_total", **node) == pytest.approx(7.5)
    assert value(samples, "headway_node_memory_bytes", **node) == 300e6
    assert value(samples, "headway_node_memory_limit_bytes", **node) == 2**30
    received = "headway_node_network_receive_bytes_total"
    assert value(samples, received, **node, interface="external") == 60e6
    assert value(samples, received, **node, interface="loopback") == 30e3
    assert value(samples, "headway_node_pressure_seconds_total", **node, resource="cpu") == 0.5
    assert value(samples, "headway_node_credits", **node) == pytest.approx(29.4)
    assert value(samples, "headway_node_gpu_busy", **node, gpu="1") == 1.0
    assert value(samples, "headway_node_gpu_watts", **node, gpu="0") == 120.5
    task = {"node": "worker0", "task": "worker/0"}
    assert value(samples, "headway_task_steps_total", **task) == 605
    assert value(samples, "headway_task_loss", **task) == 1
    assert value(samples, "headway_task_phase", **task, phase="training") == 1
    assert value(samples, "headway_run_state", state="running") == 1
    assert value(samples, "headway_run_state", state="stopping") == 0


def test_counters_and_only_they_end_in_total() -> None:
    for name, family in NAMES.items():
        assert (family.kind == "counter") == name.endswith("_total")
        assert name.startswith("headway_")
        assert "\n" not in family.help
        assert "\\" not in family.help


def test_servers_have_no_steps_and_no_loss() -> None:
    samples, _ = parse(exposition.text(trained()))
    servers = {name for name, labels in samples if ("task", "ps/0") in labels}
    assert "headway_task_memory_bytes" in servers
    assert not servers & {"headway_task_steps_total", "headway_task_loss", "headway_task_stalled"}


def test_what_is_not_known_has_no_line() -> None:
    told = Told(three_nodes())
    samples, types = parse(exposition.text(told.value(gone=["ps0", "worker0", "worker1"])))
    assert value(samples, "headway_node_up", node="ps0") == 0
    assert "headway_node_memory_bytes" not in types
    assert "headway_evaluation_step" not in types


def test_numbers_that_are_none_and_odd_names_do_not_break_it() -> None:
    status = trained()
    status["run"] = 'a "b" \\ c\nd'
    status["tasks"][0]["loss"], status["tasks"][1]["loss"] = math.nan, math.inf
    status["nodes"][0]["sample"]["received_bytes"] = 2**63 + 1
    text = exposition.text(status)
    assert f"}} {2**63 + 1}\n" in text
    losses = {key: number for key, number in parse(text)[0].items() if key[0] == "headway_task_loss"}
    assert [dict(labels)["run"] for _, labels in losses] == [status["run"]] * 2
    assert sorted(map(str, losses.values())) == ["inf", "nan"]


# --- the server ------------------------------------------------------------------------------------------------------
def served(work: Callable[[int], Awaitable[None]], status: dict[str, Any] | None = None) -> None:
    seen = trained() if status is None else status

    async def main() -> None:
        listening = exposition.listen(0)
        server = await exposition.serve(listening, lambda: seen)
        host, port = listening.getsockname()
        assert host == "127.0.0.1"
        assert exposition.address(listening) == f"http://127.0.0.1:{port}/metrics"
        try:
            await work(port)
        finally:
            server.close()

    asyncio.run(main())


async def talk(port: int, request: bytes) -> tuple[int, dict[str, str], str]:
    """What comes back until the server hangs up: code, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = (await asyncio.wait_for(reader.read(), 20)).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    first, *rest = head.split("\r\n")
    version, code, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in rest)
    assert int(headers["content-length"]) == len(body.encode())
    return int(code), headers, body


def test_a_scrape_gets_the_text() -> None:
    async def work(port: int) -> None:
        for target in ("/metrics", "/metrics?debug=1"):
            code, headers, body = await talk(port, f"GET {target} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
            assert code == 200
            assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert value(parse(body)[0], "headway_node_up", node="ps0") == 1

    served(work)


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "GET /metrics/x HTTP/1.0", "POST /metrics HTTP/1.1"])
def test_anything_else_is_not_found(request_line: str) -> None:
    async def work(port: int) -> None:
        assert (await talk(port, f"{request_line}\r\n\r\n".encode()))[0] == 404

    served(work)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics SPDY/3\r\n\r\n",
        b"\x16\x03\x01\xff\r\n\r\n",
    ],
    ids=["nothing", "blank", "one word", "old", "other protocol", "TLS"],
)
def test_garbage_is_refused_and_the_next_scrape_works(garbage: bytes) -> None:
    async def work(port: int) -> None:
        assert (await talk(port, garbage))[0] == 400
        assert (await talk(port, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == 200

    served(work)


def test_endless_and_silent_clients_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "LIMIT", 0.3)

    async def work(port: int) -> None:
        _, endless = await asyncio.open_connection("127.0.0.1", port)
        endless.write(b"x" * 1_000_000)
        silent, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metr")
        assert b"400" in await asyncio.wait_for(silent.read(), 10)
        assert (await talk(port, b"GET /metrics HTTP/1.1\r\n\r\n"))[0] == 200
        for each in (endless, writer):
            each.close()

    served(work)


def test_a_bug_in_the_text_is_an_answer_and_not_the_end() -> None:
    async def work(port: int) -> None:
        code, _, body = await talk(port, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (code, body) == (500, "KeyError('run')\n")

    served(work, {})


def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SiteError, match=rf"--metrics-port {port}: 127.0.0.1:{port} cannot be had \(Address already"
        ):
            exposition.listen(port)


# --- who else speaks of these metrics --------------------------------------------------------------------------------
def test_the_documentation_has_every_metric_and_no_other() -> None:
    text = (PROJECT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"headway_[a-z_]+", text)) == set(NAMES)


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"])


def test_the_dashboard_asks_only_for_what_is_served() -> None:
    used = set(re.findall(r"headway_[a-z_]+", DASHBOARD.read_text(encoding="utf-8")))
    assert used <= set(NAMES)
    for metric in ("node_cpu_seconds_total", "node_cpus_limit", "node_memory_bytes", "node_credits", "task_loss"):
        assert f"headway_{metric}" in used
    for panel in panels():
        for target in panel.get("targets", []):
            for name in re.findall(r"headway_[a-z_]+", target["expr"]):
                is_rate = re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[\$__rate_interval\]\)", target["expr"])
                assert bool(is_rate) == (NAMES[name].kind == "counter"), target["expr"]


def test_the_dashboard_is_whole() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert board["schemaVersion"] >= 36
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert list(variables) == ["datasource", "run", "node"]
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert place["x"] + place["w"] <= 24
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["targets"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            letters = [target["refId"] for target in panel["targets"]]
            assert len(set(letters)) == len(letters)
            assert all(target["expr"] and 'run=~"$run"' in target["expr"] for target in panel["targets"])
    titles = " ".join(panel["title"] for panel in board["panels"])
    for what in ("Steps", "Loss", "CPU", "Memory", "Network", "Loopback", "Disk", "Throttled", "Credits"):
        assert what in titles
