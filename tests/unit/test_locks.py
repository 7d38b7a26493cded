"""Locks between processes: one holder, readers who are in nobody's way, and files that are no locks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headway import locks
from headway.bench.folder import SweepFolder
from headway.cli import app
from headway.errors import Busy, StorageError
from headway.launch import control
from headway.locks import Held
from headway.record.folder import RunFolder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@contextmanager
def other_process(path: Path, how: str = "wait") -> Iterator[subprocess.Popen[bytes]]:
    """Has the lock until it is killed."""
    code = (
        "import time; from pathlib import Path; from headway import locks\n"
        f"lock = locks.{how}(Path({str(path)!r})); print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == b"held\n"
            yield process
        finally:
            process.kill()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


# --- who has it ---------------------------------------------------------------------------------------------------
def test_one_process_has_it_until_it_dies(path: Path) -> None:
    assert locks.is_held(path) is Held.FREE
    assert not path.exists(), "looking makes no file"
    with other_process(path) as process:
        assert locks.is_held(path) is Held.HELD
        assert locks.attempt(path) is None
        with pytest.raises(Busy, match="taken"):
            locks.take(path, "taken", limit=0.1)
        process.kill()
        process.wait()
        assert locks.is_held(path) is Held.FREE
        lock = locks.attempt(path)
        assert lock is not None
        assert locks.is_held(path) is Held.HELD
        os.close(lock)


def test_it_is_waited_for_no_longer_than_the_limit(path: Path) -> None:
    lock = locks.wait(path)
    waited: list[float] = []
    begun = time.monotonic()
    with pytest.raises(Busy, match="taken"):
        locks.take(path, "taken", limit=0.3, waiting=lambda: waited.append(time.monotonic()), pause=0.05)
    assert 0.3 <= time.monotonic() - begun < 3
    assert 2 <= len(waited) <= 7
    os.close(lock)
    os.close(locks.take(path, "taken", limit=0))  # what was refused has left nothing open


def test_whoever_stops_waiting_leaves_nothing_open(path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    before = open_files()
    lock = locks.wait(path)
    with pytest.raises(KeyboardInterrupt):
        locks.take(path, "taken", waiting=stop)
    os.close(lock)
    assert open_files() == before


def test_held_waits_and_gives_back(path: Path) -> None:
    lock = locks.wait(path)
    threading.Timer(0.2, os.close, [lock]).start()
    begun = time.monotonic()
    with locks.held(path):
        assert time.monotonic() - begun > 0.1
        assert locks.is_held(path) is Held.HELD
    assert locks.is_held(path) is Held.FREE


def test_a_reader_who_looks_just_then_does_not_keep_it_from_being_taken(path: Path) -> None:
    path.touch()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.2, os.close, [looking]).start()
    os.close(locks.take(path, "taken"))


def test_the_last_who_shares_it_can_have_it_alone(path: Path) -> None:
    ours = locks.share(path)
    with other_process(path, "share") as process:
        assert locks.attempt(path) is None
        assert not locks.upgrade(ours)
        process.kill()
        process.wait()
        assert locks.upgrade(ours)
    os.close(ours)


def test_a_new_lock_has_a_new_file(path: Path) -> None:
    os.close(locks.wait(path, new=True))
    with pytest.raises(FileExistsError):
        locks.wait(path, new=True)


def test_a_file_that_its_holder_removed_is_not_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()

    def too_late(lock: int) -> bool:
        path.unlink()
        return True

    monkeypatch.setattr(locks, "upgrade", too_late)
    assert locks.attempt(path) is None
    assert locks.attempt(path) is None  # nor is it made


def test_only_held_counts_as_true() -> None:
    assert [each for each in Held if each] == [Held.HELD]


# --- what is a lock file -------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_umask")
@pytest.mark.parametrize("take", [locks.wait, locks.share, lambda path: locks.take(path, "taken")])
def test_only_its_owner_may_open_it(path: Path, take: Callable[[Path], int]) -> None:
    lock = take(path)
    assert mode_of(path) == 0o600
    assert not os.get_inheritable(lock)
    os.close(lock)


def make_link(path: Path) -> None:
    (path.parent / "target").touch()
    path.symlink_to("target")


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/cwd/{os.path.relpath(path)}")


NO_LOCKS = [
    pytest.param(make_link, "a symbolic link", id="link"),
    pytest.param(make_dangling_link, "a symbolic link", id="dangling link"),
    pytest.param(os.mkfifo, "a FIFO", id="FIFO"),
    pytest.param(Path.mkdir, "a folder", id="folder"),
    pytest.param(make_socket, "a socket", id="socket"),
]


@pytest.mark.parametrize(("make", "kind"), NO_LOCKS)
def test_what_is_no_regular_file_is_refused_at_once(
    path: Path, make: Callable[[Path], Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    make(path)
    begun = time.monotonic()
    for take in (locks.wait, locks.share, locks.attempt, lambda path: locks.take(path, "taken")):
        with pytest.raises(StorageError, match=f"{path} is {kind}, and no lock file"):
            take(path)
    assert locks.is_held(path) is Held.UNKNOWN
    assert time.monotonic() - begun < 5
    assert not (path.parent / "nowhere").exists()


def test_a_device_is_refused() -> None:
    with pytest.raises(StorageError, match="/dev/null is a device"):
        locks.attempt(Path("/dev/null"))


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(24, "Too many open files")])
def test_a_lock_that_cannot_be_opened_is_neither_held_nor_free(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def refuse(*_: Any) -> int:
        raise error

    path.touch()
    monkeypatch.setattr(os, "open", refuse)
    assert locks.is_held(path) is Held.UNKNOWN
    with pytest.raises(type(error)):
        locks.wait(path)


def test_a_file_system_without_locks_tells_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(37, "No locks available")

    path.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert locks.is_held(path) is Held.UNKNOWN


# --- what a run says -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("written", "make", "state"),
    [
        ("running", os.mkfifo, "unknown"),
        ("preparing", make_link, "unknown"),
        ("running", Path.mkdir, "unknown"),
        ("running", Path.touch, "interrupted"),
        ("running", lambda _: None, "interrupted"),
        ("finished", os.mkfifo, "finished"),
    ],
)
def test_the_state_of_a_run_whose_lock_cannot_be_opened(
    tmp_path: Path, written: str, make: Callable[[Path], Any], state: str
) -> None:
    folder = RunFolder.create(tmp_path, "test")
    folder.write_facts({"name": "x", "state": written, "reason": None, "created": 1.0, "launches": []})
    make(folder.path / "lock")
    before = sorted(folder.path.iterdir())
    assert folder.facts()["state"] == state
    assert sorted(folder.path.iterdir()) == before, "reading makes no file"


def test_a_run_whose_lock_is_something_else_is_not_started(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "test")
    os.mkfifo(folder.path / "lock")
    with pytest.raises(StorageError, match="is a FIFO, and no lock file"):
        folder.hold()


@pytest.fixture
def of_another(tmp_path: Path) -> RunFolder:
    """A run that says it runs, with a lock that cannot be opened."""
    folder = RunFolder.create(tmp_path, "test")
    folder.write_facts({"name": "x", "state": "running", "reason": None, "created": 1.0, "launches": []})
    os.mkfifo(folder.path / "lock")
    return folder


@pytest.mark.parametrize("command", ["stop", "top", "resume"])
def test_a_run_that_may_be_running_is_left_alone(of_another: RunFolder, command: str) -> None:
    said = CliRunner().invoke(app, [command, "last", "--runs", str(of_another.path.parent)])
    assert isinstance(said.exception, Busy)
    assert str(said.exception).startswith(f"{of_another.name} may be running: its lock cannot be opened")


def test_status_names_a_run_that_may_be_running(of_another: RunFolder) -> None:
    root = str(of_another.path.parent)
    assert f"{of_another.name}: unknown" in CliRunner().invoke(app, ["status", "--runs", root]).output
    of_another.write_facts({"name": "x", "state": "finished", "reason": None, "created": 1.0, "launches": []})
    assert "nothing runs" in CliRunner().invoke(app, ["status", "--runs", root]).output


@pytest.mark.parametrize(
    ("ends", "held", "state"),
    [
        (["begun"], Held.HELD, "running"),
        (["begun"], Held.FREE, "interrupted"),
        (["begun"], Held.UNKNOWN, "unknown"),
        (["begun", "finished"], Held.UNKNOWN, "finished"),
    ],
)
def test_the_state_of_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: list[str], held: Held, state: str
) -> None:
    monkeypatch.setattr(SweepFolder, "events", lambda _: [{"kind": kind} for kind in ends])
    monkeypatch.setattr(SweepFolder, "is_held", lambda _: held)
    assert SweepFolder(tmp_path).state == state


# --- the launcher's socket -----------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_umask")
def test_only_the_owner_may_ask_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ("long" * 30) / "control.sock"
    path.parent.mkdir()
    modes: list[int] = []
    start = asyncio.start_unix_server

    async def looked_at(*args: Any, **kwargs: Any) -> asyncio.AbstractServer:
        modes.append(mode_of(path))  # nobody listens yet
        return await start(*args, **kwargs)

    async def answer(request: dict[str, Any]) -> dict[str, Any]:
        return {"heard": request["do"]}

    async def talk() -> dict[str, Any]:
        server = await control.serve(path, answer)
        modes.append(mode_of(path))
        try:
            return await asyncio.to_thread(control.ask, path, {"do": "status"})
        finally:
            server.close()

    monkeypatch.setattr(asyncio, "start_unix_server", looked_at)
    assert asyncio.run(talk()) == {"heard": "status"}
    assert modes == [0o600, 0o600]
