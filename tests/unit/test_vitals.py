"""What the kernel says of processes that stand still, with real ones. The clock is ours: looks follow each other as
fast as they can be made."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from parts import need

from headway.host.vitals import WINDOW, Checkup, Vitals, families

PTRACE_ATTACH = 16
Start = Callable[..., subprocess.Popen[bytes]]
pytestmark = pytest.mark.timeout(30)

# clone(CLONE_VFORK): the parent waits in state D until the child ends, which it does not.
IN_STATE_D = """
import ctypes, platform, time
numbers = {"x86_64": 56, "aarch64": 220}
if ctypes.CDLL(None).syscall(numbers[platform.machine()], 0x4000 | 17, 0, 0, 0, 0) == 0:
    time.sleep(300)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(argv, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not look():
        assert time.monotonic() < deadline, f"not within 10 s: {what}"
        time.sleep(0.01)


def in_state(pid: int, state: str) -> None:
    until(lambda: state_of(pid) == state, f"state {state} of {pid}")


def looked(checkup: Checkup, pids: list[int], seconds: int = 8, began: float = 0.0) -> Vitals:
    """A look every second of our clock."""
    return [checkup.look(pids, began + second) for second in range(seconds + 1)][-1]


def test_a_stopped_process_is_seen_and_named_until_it_goes_on(start: Start) -> None:
    pid = start("sleep", "300").pid
    checkup = Checkup(pid)
    in_state(pid, "S")
    assert looked(checkup, [pid]).stopped_for == 0
    os.kill(pid, signal.SIGSTOP)
    in_state(pid, "T")
    vitals = looked(checkup, [pid], began=9.0)
    assert (vitals.stopped_for, vitals.stopped, vitals.whole, vitals.by_debugger) == (8.0, "sleep", True, False)
    os.kill(pid, signal.SIGCONT)
    in_state(pid, "S")
    assert checkup.look([pid], 18.0).stopped_for == 0


def test_a_stopped_program_is_seen_beside_a_process_that_lives(start: Start) -> None:
    root = start("sh", "-c", "sleep 300 & sleep 300 & wait").pid
    until(lambda: len(families([root])[root]) == 3, "two children")
    _, first, second = family = families([root])[root]
    for pid in (first, second):
        in_state(pid, "S")
    os.kill(first, signal.SIGSTOP)
    in_state(first, "T")
    part = looked(Checkup(root), family)
    assert (part.stopped_for, part.stopped, part.whole) == (8.0, "sleep", False)
    os.kill(second, signal.SIGSTOP)
    in_state(second, "T")
    assert looked(Checkup(root), family).whole


def test_a_family_has_the_grandchildren_and_nobody_else(start: Start) -> None:
    root = start("sh", "-c", "sh -c 'sleep 300 & wait' & wait").pid
    other = start("sleep", "300").pid
    until(lambda: len(families([root])[root]) == 3, "a grandchild")
    found = families([root, other])
    assert found[other] == [other]
    assert found[root][0] == root
    assert other not in found[root]


def test_one_that_sleeps_is_idle_after_a_while(start: Start) -> None:
    pid = start("sleep", "300").pid
    in_state(pid, "S")
    checkup = Checkup(pid)
    assert [checkup.look([pid], float(second)).idle_for for second in range(8)] == [0, 0, 0, 0, 0, WINDOW, 6.0, 7.0]


def test_one_that_computes_is_not_idle_though_it_gets_no_cpu(start: Start) -> None:
    """Between two looks a hundredth of a second passes, so it looks like one that is starved: runnable, no CPU time."""
    pid = start(sys.executable, "-c", "while True: pass").pid
    in_state(pid, "R")
    assert looked(Checkup(pid), [pid], 20).idle_for == 0


def test_work_in_a_second_thread_counts(start: Start) -> None:
    code = "import threading\ndef work():\n while True: pass\nthreading.Thread(target=work).start()"
    pid = start(sys.executable, "-c", code).pid
    until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) == 2, "a second thread")
    assert looked(Checkup(pid), [pid], 20).idle_for == 0


def test_waiting_in_the_kernel_is_seen(start: Start) -> None:
    pid = start(sys.executable, "-c", IN_STATE_D).pid
    in_state(pid, "D")
    checkup = Checkup(pid)
    looked(checkup, [pid], 4)  # the CPU time of its start is over
    vitals = looked(checkup, [pid], began=5.0)
    assert vitals.disk_for >= 8.0
    assert vitals.idle_for >= 8.0


def test_looks_that_were_not_made_count_little(start: Start) -> None:
    """The agent, or the whole machine, was suspended: that is not the task's standstill."""
    pid = start("sleep", "300").pid
    in_state(pid, "S")
    checkup = Checkup(pid)
    looked(checkup, [pid], 8)
    os.kill(pid, signal.SIGSTOP)
    in_state(pid, "T")
    checkup.look([pid], 9.0)
    vitals = checkup.look([pid], 1000.0)
    assert vitals.stopped_for == 2.0
    assert vitals.idle_for == 0


def test_who_has_ended_has_no_signs() -> None:
    child = subprocess.Popen(["true"])
    until(lambda: state_of(child.pid) == "Z", "its end")
    assert looked(Checkup(child.pid), [child.pid]).stopped_for == 0  # nobody has taken note of its end yet
    child.wait()
    assert looked(Checkup(child.pid), [child.pid]).disk_for == 0


def test_a_debugger_is_told_from_a_stop(start: Start) -> None:
    pid = start("sleep", "300").pid
    in_state(pid, "S")
    libc = ctypes.CDLL(None, use_errno=True)
    refused = libc.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0
    need(f"leave to trace a process ({os.strerror(ctypes.get_errno())})" if refused else None)
    in_state(pid, "t")
    vitals = looked(Checkup(pid), [pid])
    assert (vitals.stopped_for, vitals.by_debugger) == (8.0, True)


def test_how_long_and_how_much_of_it_is_stopped_are_of_one_process(start: Start) -> None:
    """A child that was stopped long ago does not make the rest of the task stopped for as long."""
    root = start("sh", "-c", "sleep 300 & sleep 300 & wait").pid
    until(lambda: len(families([root])[root]) == 3, "two children")
    _, first, second = family = families([root])[root]
    checkup = Checkup(root)
    for number, pid in enumerate((first, second, root)):
        in_state(pid, "S")
        os.kill(pid, signal.SIGSTOP)
        in_state(pid, "T")
        vitals = looked(checkup, family, seconds=2, began=3.0 * number)
        expected = {first: (2.0, False), second: (2.0, True), root: (2.0, True)}
        assert (vitals.stopped_for, vitals.whole) == expected[pid]
    os.kill(root, signal.SIGCONT)
    in_state(root, "S")
    os.kill(second, signal.SIGCONT)
    in_state(second, "S")
    vitals = checkup.look(family, 9.0)
    assert (vitals.stopped_for, vitals.whole) == (9.0, False)
