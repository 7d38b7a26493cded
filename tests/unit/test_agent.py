"""The agent with real processes: it starts, follows, signals and reaps them, and leaves none behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headway import clock
from headway.agent import protocol
from headway.agent.agent import free_ports
from headway.record.tail import Tail
from headway.sites.isolation import choose

LEASE = 1.0
pytestmark = pytest.mark.timeout(30)
# A task that has a child, and a grandchild that has left its session: what is hardest to find again.
FAMILY = "sleep 300 & setsid sleep 300 & wait"


class Talk:
    """A launcher's end of the stream."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        (folder / "events").mkdir(exist_ok=True)
        self.folder = folder
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "headway.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        files = {"events": str(folder / "events" / "agent.jsonl"), "metrics": str(folder / "metrics.jsonl")}
        hello = {"version": protocol.VERSION, "lease": LEASE, "node": "here", "clock_offset": clock.handed_on()}
        self.send(do="hello", files=files, **hello)
        self.ready = self.hear("ready")

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(protocol.encode(message))
        self.process.stdin.flush()

    def hear(self, what: str) -> dict[str, Any]:
        """The next message of a kind; others are skipped. The lease is renewed meanwhile by our asking."""
        assert self.process.stdout
        while line := self.process.stdout.readline():
            self.send(do="renew")
            message = protocol.decode(line)
            if message["say"] == what:
                return message
        raise AssertionError(f"the agent ended before it said {what!r}")

    def start(self, task: str, *argv: str, **env: str) -> int:
        slug = task.replace("/", "-")
        files = {key: str(self.folder / f"{slug}.{key}") for key in ("log", "events", "alive")}
        self.send(do="start", task=task, attempt=0, argv=list(argv), env=env, cores=None, files=files)
        return int(self.hear("started")["pid"])

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    talk = Talk(tmp_path)
    yield talk
    close(talk)


def close(talk: Talk) -> None:
    talk.process.kill()
    for stream in (talk.process.stdin, talk.process.stdout):
        assert stream
        stream.close()
    talk.process.wait()


def gone(processes: list[psutil.Process], within: float) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not any(is_alive(one) for one in processes):
            return True
        time.sleep(0.02)
    return False


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_family(talk: Talk, size: int) -> list[psutil.Process]:
    deadline = time.monotonic() + 5
    while len(family := talk.descendants()) < size:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return family


def test_it_says_what_the_node_has(talk: Talk) -> None:
    assert talk.ready["facts"]["cores"] == sorted(os.sched_getaffinity(0))
    assert talk.ready["facts"]["memory"] == psutil.virtual_memory().total


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
def test_exit_codes_and_signals_are_told(talk: Talk, script: str, code: int) -> None:
    talk.start("worker/0", "sh", "-c", script)
    assert talk.hear("exited")["code"] == code


def test_a_command_that_does_not_exist_is_told(talk: Talk) -> None:
    files = {key: str(talk.folder / key) for key in ("log", "events", "alive")}
    talk.send(do="start", task="ps/0", attempt=3, argv=["/no/such/program"], env={}, cores=None, files=files)
    answer = talk.hear("started")
    assert "No such file" in answer["error"]
    assert answer["attempt"] == 3


def test_events_come_whole_in_order_and_before_the_exit(talk: Talk) -> None:
    script = 'for k in 1 2 3; do echo "{\\"k\\": $k}" >> "$EVENTS"; sleep 0.15; done; printf torn >> "$EVENTS"'
    talk.start("worker/0", "sh", "-c", script, EVENTS=str(talk.folder / "worker-0.events"))
    data = ""
    while True:
        assert talk.process.stdout
        message = protocol.decode(talk.process.stdout.readline())
        if message["say"] == "lines":
            assert message["offset"] == len(data)
            data += message["data"]
        talk.send(do="renew")
        if message["say"] == "exited":
            break
    assert [json.loads(line)["k"] for line in data.splitlines()] == [1, 2, 3]


def test_a_task_hears_what_it_is_told(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", 'read line; echo "$line"; exit 5')
    talk.send(do="tell", task="worker/0", message={"do": "stop"})
    assert talk.hear("exited")["code"] == 5
    assert json.loads((talk.folder / "worker-0.log").read_text()) == {"do": "stop"}


def test_signals_reach_the_whole_group(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", "sleep 300 & sleep 300 & wait")
    family = wait_for_family(talk, 3)
    talk.send(do="signal", task="worker/0", number=int(signal.SIGTERM))
    assert talk.hear("exited")["code"] == -signal.SIGTERM
    assert gone(family, within=2)


def test_what_left_the_session_of_its_task_is_gone_before_the_task_counts_as_ended(talk: Talk) -> None:
    other = talk.start("worker/1", "sh", "-c", FAMILY)
    others = wait_for_family(talk, 3)
    talk.start("worker/0", "sh", "-c", FAMILY)
    family = [one for one in wait_for_family(talk, 6) if one not in others]
    talk.send(do="signal", task="worker/0", number=int(signal.SIGKILL))
    assert talk.hear("exited")["task"] == "worker/0"
    assert not [one for one in family if is_alive(one)]
    assert all(is_alive(one) for one in others), f"the family of task {other} is another one"


def test_a_daemon_of_another_task_is_no_orphan_of_the_one_that_ended(talk: Talk) -> None:
    """It was forked twice, so the agent is its parent, though its task still runs."""
    talk.start("worker/1", "sh", "-c", "(setsid sleep 300 &); exec sleep 301")
    talk.start("worker/0", "sh", "-c", "sleep 0.5")
    assert talk.hear("exited")["task"] == "worker/0"
    assert len([one for one in talk.descendants() if is_alive(one) and "sleep" in one.name()]) == 2
    talk.send(do="signal", task="worker/1", number=int(signal.SIGKILL))
    assert talk.hear("exited")["task"] == "worker/1"
    assert not [one for one in talk.descendants() if is_alive(one)]


def test_a_heartbeat_that_stops_is_seen(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", 'for k in 1 2 3; do touch "$ALIVE"; sleep 0.2; done; sleep 60',
               ALIVE=str(talk.folder / "worker-0.alive"))  # fmt: skip
    ages = [talk.hear("alive")["tasks"]["worker/0"]["age"] for _ in range(4)]
    assert ages[0] < 0.5
    assert ages[-1] > 0.9


def test_a_task_can_be_pinned(talk: Talk) -> None:
    core = min(os.sched_getaffinity(0))
    files = {key: str(talk.folder / f"ps-0.{key}") for key in ("log", "events", "alive")}
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    talk.send(do="start", task="ps/0", attempt=0, argv=[sys.executable, "-c", code], env={}, cores=[core], files=files)
    talk.hear("exited")
    assert json.loads((talk.folder / "ps-0.log").read_text()) == [core]


def test_without_a_launcher_the_lease_runs_out_and_nothing_is_left(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", FAMILY)
    family = wait_for_family(talk, 3)
    assert talk.process.stdin
    talk.process.stdin.close()  # the launcher is gone
    time.sleep(LEASE / 2)
    assert talk.process.poll() is None  # it may come back within the lease
    assert gone(family, within=LEASE + 2)
    assert talk.process.wait(timeout=5) == 0
    (event,) = [json.loads(line) for line in (talk.folder / "events" / "agent.jsonl").read_text().splitlines()]
    assert "lease" in event["reason"]


def test_an_agent_that_breaks_down_ends_and_leaves_nothing(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", FAMILY)
    family = wait_for_family(talk, 3)
    talk.send(do="no such thing")
    assert "broke down" in talk.hear("goodbye")["reason"]
    assert gone(family, within=2)


def test_told_to_quit_nothing_is_left(talk: Talk) -> None:
    talk.start("worker/0", "sh", "-c", FAMILY)
    family = wait_for_family(talk, 3)
    talk.send(do="quit")
    assert talk.hear("goodbye")["reason"] == "told to quit"
    assert gone(family, within=2)


def test_a_killed_agent_takes_its_tasks_along(talk: Talk) -> None:
    pid = talk.start("worker/0", "sleep", "300")
    talk.process.kill()
    assert gone([psutil.Process(pid)], within=2)


def test_in_namespaces_a_killed_agent_takes_everything_along(tmp_path: Path) -> None:
    isolation = choose(private_network=True)
    assert isolation.private_processes, isolation.reason
    talk = Talk(tmp_path, isolation.command)
    try:
        talk.start("worker/0", "sh", "-c", FAMILY)
        family = wait_for_family(talk, 4)
        family[0].kill()  # the agent itself, below `unshare`
        assert gone(family, within=2)
    finally:
        close(talk)


def test_free_ports_are_free_and_differ() -> None:
    assert len(set(free_ports(20, None, None))) == 20


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        if port < 65535 - 3:
            assert port not in free_ports(2, port, port + 3)
        with pytest.raises(OSError, match="only 0 of 1"):
            free_ports(1, port, port)


def test_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    tail = Tail(path)
    assert tail.read() == (0, "")
    path.write_text("one\ntw")
    assert tail.read() == (0, "one\n")
    assert tail.read() == (4, "")
    path.write_text("one\ntwo\n")
    assert tail.read() == (4, "two\n")
    assert Tail(path).read() == (8, "")
