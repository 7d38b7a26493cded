"""`headway stop` signals the launcher of a run, and never anybody else. The processes here are real."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.errors import Busy
from headway.launch import identity
from headway.launch.control import ask
from headway.launch.identity import signal_launcher

SLEEP = "import sys, time; print('here', flush=True); time.sleep(60)"


def child(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLEEP, *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    yield from child("headway")


def entry(pid: int, **changes: Any) -> dict[str, Any]:
    return {"pid": pid, "pid_started": identity._stat(str(pid))[0], "boot": identity._boot(), **changes}


def test_the_recorded_launcher_is_signalled(launcher: subprocess.Popen[bytes]) -> None:
    signal_launcher("r", entry(launcher.pid), signal.SIGTERM)
    assert launcher.wait(10) == -signal.SIGTERM


def test_a_process_knows_itself() -> None:
    assert identity.identity() == entry(os.getpid())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pid_started": 1}, "at another time"),
        ({"boot": "another"}, "another machine"),
        ({"pid_started": None}, "older Headway"),
        ({"boot": None}, "older Headway"),
        ({"pid": "1"}, "older Headway"),
        ({"pid": True}, "older Headway"),
        ({"pid": -1}, "older Headway"),
        ({"pid": 0}, "older Headway"),
        ({"pid": 2**22 + 1}, "does not exist"),
        ({"pid": 2**80}, "does not exist"),
    ],
)
def test_another_process_is_not_signalled(launcher: subprocess.Popen[bytes], changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Busy, match=why):
        signal_launcher("r", entry(launcher.pid) | changes, signal.SIGKILL)
    assert launcher.poll() is None


def test_another_users_process_is_not_signalled(
    launcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = entry(launcher.pid)
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    with pytest.raises(Busy, match="another user"):
        signal_launcher("r", found, signal.SIGKILL)
    assert launcher.poll() is None


def test_another_program_is_not_signalled() -> None:
    for process in child("something else"):
        with pytest.raises(Busy, match="no Headway launcher"):
            signal_launcher("r", entry(process.pid), signal.SIGKILL)
        assert process.poll() is None


def test_a_dead_process_is_not_signalled(launcher: subprocess.Popen[bytes]) -> None:
    found = entry(launcher.pid)
    launcher.kill()
    os.waitid(os.P_PID, launcher.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Busy, match="has ended"):
        signal_launcher("r", found, signal.SIGKILL)


def test_a_link_to_a_socket_is_not_asked(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as elsewhere:
        elsewhere.bind(str(tmp_path / "elsewhere"))
        elsewhere.listen()
        elsewhere.settimeout(0)
        (tmp_path / "control.sock").symlink_to("elsewhere")
        with pytest.raises(Busy, match="does not answer"):
            ask(tmp_path / "control.sock", {"do": "stop"})
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
