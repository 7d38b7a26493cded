"""Watching a real run from outside: `headway top`, with and without a terminal, and /metrics."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import LIMIT, Running, headway, write_job

from headway.cli.top import BLOCKS

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("watching")
    job = write_job(folder / "job.yaml")
    with Running(folder / "runs", "run", str(job), "--metrics-port", "0") as running:
        running.trains("chief/0", "worker/0")
        running.wait_for(lambda: running.status()["nodes"][0]["history"].get("cpus", [None])[-1], "samples of the node")
        yield running
        if running.process.poll() is None:
            running.stop()


def _in_the_foreground() -> None:
    """Of the terminal at standard input: Ctrl-C comes from there."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # off in who runs the tests in the background; children inherit that


class Terminal:
    """A command on a terminal of 80 columns and 24 lines."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.ours, theirs = pty.openpty()
        self.settings = termios.tcgetattr(self.ours)
        termios.tcsetwinsize(theirs, (24, 80))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway", *arguments],
            env={**environment, "HEADWAY_RUNS": str(root), "TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_in_the_foreground,  # noqa: PLW1509
        )
        os.close(theirs)
        self.seen = ""

    def wait_for(self, *parts: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not all(part in self.seen for part in parts):
            assert time.monotonic() < deadline, f"no {parts} in:\n{self.seen}"
            self._read()

    def end(self) -> int:
        """Its exit code; all that it printed is in `seen`."""
        while self._read():
            pass
        self.is_restored = termios.tcgetattr(self.ours) == self.settings
        os.close(self.ours)
        return self.process.wait(timeout=LIMIT)

    def _read(self) -> bool:
        try:
            data = os.read(self.ours, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.seen += data.decode(errors="replace")
        return bool(data)


def test_top_on_a_terminal_draws_until_ctrl_c_and_the_run_goes_on(watched: Running) -> None:
    terminal = Terminal(watched.root, "top")
    terminal.wait_for("local", "chief/0", "worker/0", "training", BLOCKS[-1], "steps/s")
    assert "\x1b[" in terminal.seen  # in place
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 0, terminal.seen
    assert f"{watched.folder.name} goes on" in terminal.seen
    assert "Traceback" not in terminal.seen
    assert watched.process.poll() is None


@pytest.mark.parametrize("how", ["q", "Q", "\x03", signal.SIGTERM, signal.SIGHUP], ids=str)
def test_top_is_left_by_a_key_or_a_signal_and_the_terminal_is_as_before(watched: Running, how: str | int) -> None:
    terminal = Terminal(watched.root, "top")
    terminal.wait_for("chief/0", "q: leave")
    assert not termios.tcgetattr(terminal.ours)[3] & (termios.ICANON | termios.ECHO)
    os.write(terminal.ours, b"xyz\r")  # other keys do nothing
    time.sleep(0.5)
    assert terminal.process.poll() is None
    if isinstance(how, str):
        os.write(terminal.ours, how.encode())
    else:
        terminal.process.send_signal(how)
    assert terminal.end() == (0 if isinstance(how, str) else 128 + how), terminal.seen
    assert terminal.is_restored
    assert "Traceback" not in terminal.seen
    if isinstance(how, str):
        assert f"{watched.folder.name} goes on" in terminal.seen
    assert watched.process.poll() is None


def test_top_without_a_terminal_says_once_how_things_are(watched: Running) -> None:
    done = headway("top", "fault", root=watched.root)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    for part in (f"{watched.folder.name}: running", "local", "chief/0", "ps/0", "CPUs", "loopback", BLOCKS[-1]):
        assert part in done.stdout
    status = json.loads(headway("top", "-o", "json", root=watched.root).stdout)
    assert status["run"] == watched.folder.name
    (node,) = status["nodes"]
    assert node["up"] is True
    assert node["now"]["cpus"] > 0
    assert node["now"]["loopback_sent"] > 0
    chief = next(task for task in status["tasks"] if task["task"] == "chief/0")
    assert chief["now"]["memory"] > 50e6
    assert any(chief["history"]["steps_per_s"])
    assert any(chief["history"]["loss"])


def test_metrics_are_served_on_loopback_and_nothing_else_is(watched: Running) -> None:
    (event,) = watched.events("metrics_served")
    assert event["address"] in watched.output()
    with urllib.request.urlopen(event["address"], timeout=10) as answer:
        text = answer.read().decode()
    for series in ('headway_node_up{run="', 'task="chief/0"', 'interface="loopback"', "# TYPE headway_task_loss gauge"):
        assert series in text
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(event["address"].replace("/metrics", "/"), timeout=10)
    refused.value.close()


def test_a_port_that_is_taken_is_said_before_there_is_a_run(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for more in ([], ["--detach"]):
            refused = headway("run", str(job), "--metrics-port", port, *more, root=tmp_path / "runs")
            assert refused.returncode == 5
            assert f"--metrics-port {port}" in refused.stderr
            assert "Traceback" not in refused.stderr
    assert not (tmp_path / "runs").exists()


def test_a_background_run_serves_metrics_too(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", cluster={"chief": 1, "ps": 1})
    started = headway("run", str(job), "--detach", "--metrics-port", "0", "-o", "json", root=tmp_path)
    assert started.returncode == 0, started.stderr
    said = json.loads(started.stdout)
    try:
        deadline = time.monotonic() + LIMIT
        while True:  # it listens from the beginning, and answers when the launcher is up
            try:
                with urllib.request.urlopen(said["metrics"], timeout=LIMIT) as answer:
                    assert f'run="{said["run"]}"' in answer.read().decode()
                break
            except OSError:
                assert time.monotonic() < deadline
    finally:
        headway("stop", said["run"], "--now", root=tmp_path)


def test_top_ends_with_the_run_and_says_how(watched: Running) -> None:
    """The last test of this file: it ends the run that the others watch."""
    terminal = Terminal(watched.root, "top", watched.folder.name)
    terminal.wait_for("training")
    watched.stop()
    assert terminal.end() == 0, terminal.seen
    assert "stopped (headway stop)" in terminal.seen
    over = headway("top", root=watched.root)
    assert over.returncode == 8
    assert "is not running (it is stopped)" in over.stderr
