"""Where a sweep's runs are made: in this process, one after the other (`Alone`), or in several lanes at once (`Lanes`).

conductor ──order──> lane 0 (cores 0-3): making.make ──started, line, ended──> conductor
          ──order──> lane 1 (cores 4-7): making.make ──started, line, ended──>

A lane is a process that may use some cores of this machine, which no other lane has; whatever it starts inherits that.
So for the run the lane is the machine: threads, CPU limits and who loads it are reckoned from its cores alone. What
lanes still share (memory, caches, the disk) is why trials run one after the other unless somebody asks for this.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from headway.bench.judge import Machine
from headway.bench.making import Order, make
from headway.errors import SiteError
from headway.record.files import to_json

Heard = Callable[[Order, dict[str, Any]], None]
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
END_LIMIT = 20.0  # seconds that lanes have to end
CPUS = Path("/sys/devices/system/cpu")
_PR_SET_PDEATHSIG = 1


class Crew(Protocol):
    """Who makes runs. Use as a context manager."""

    @property
    def num_free(self) -> int:
        """Orders that it can take now."""

    @property
    def is_stopping(self) -> bool:
        """Whether somebody wanted an end, whatever has become of what was under way."""

    def begin(self, order: Order) -> None: ...
    def wait(self, heard: Heard) -> None:
        """Until at least one order has ended; everything that is told meanwhile is passed on."""

    def stop(self) -> None:
        """Stop in order what is under way; its end is told as any other."""

    def __enter__(self) -> Crew: ...
    def __exit__(self, *_: object) -> None: ...


class Alone:
    """This process makes them itself."""

    is_stopping = False  # a signal is the run's, which tells of it

    def __init__(self) -> None:
        self._machine = Machine()
        self._order: Order | None = None

    @property
    def num_free(self) -> int:
        return int(self._order is None)

    def begin(self, order: Order) -> None:
        self._order = order

    def wait(self, heard: Heard) -> None:
        order, self._order = self._order, None
        assert order is not None
        make(order, self._machine, lambda message: heard(order, message))

    def stop(self) -> None: ...  # nothing is under way when somebody can say so

    def __enter__(self) -> Alone:
        self._machine.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._machine.__exit__()


# --- cores ----------------------------------------------------------------------------------------------------------
def divide(cores: Mapping[int, frozenset[int]], num: int) -> list[list[int]]:
    """So many lanes, each with as many whole cores. `cores`: each usable CPU -> the CPUs that are the same core
    (threads of it). SiteError where there are too few."""
    whole = sorted({tuple(sorted(together & cores.keys())) for together in cores.values()})
    each = len(whole) // num
    if each == 0:
        threads = f" ({len(cores)} threads)" if len(whole) < len(cores) else ""
        raise SiteError(
            f"--parallel {num}: each trial needs cores of its own, or they would measure each other, and this machine "
            f"gives us {len(whole)}{threads}"
        )
    lanes = [sorted(cpu for core in whole[n * each : (n + 1) * each] for cpu in core) for n in range(num)]
    if len({len(lane) for lane in lanes}) > 1:
        raise SiteError(
            f"--parallel {num}: some cores of this machine have more threads than others, and lanes would be unlike "
            f"({', '.join(str(len(lane)) for lane in lanes)} CPUs). Leave some out with `taskset`"
        )
    return lanes


def cores_here(cpus: Path = CPUS) -> dict[int, frozenset[int]]:
    """Every CPU that this process may use, and which are threads of the same core."""
    return {cpu: _same_core(cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list", cpu) for cpu in _usable()}


def _usable() -> set[int]:
    return os.sched_getaffinity(0)


def _same_core(path: Path, cpu: int) -> frozenset[int]:
    try:
        text = path.read_text(encoding="ascii").strip()  # "0,4" or "0-1"
    except OSError:  # a container may hide it
        return frozenset({cpu})
    found = {cpu}
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


# --- several processes ----------------------------------------------------------------------------------------------
@dataclass
class _Lane:
    cores: list[int]
    process: subprocess.Popen[bytes] | None = None
    order: Order | None = None
    run: str = ""
    """What the order has become so far."""
    heard: bytes = b""
    """The beginning of a message."""


class Lanes:
    """Processes that make runs at the same time, each on its own cores. Signals that want an end go to all of them."""

    def __init__(self, cores: list[list[int]]) -> None:
        self._lanes = [_Lane(each) for each in cores]
        self._selector = selectors.DefaultSelector()
        self.is_stopping = False

    @property
    def num_free(self) -> int:
        return sum(lane.order is None for lane in self._lanes)

    def begin(self, order: Order) -> None:
        lane = next(lane for lane in self._lanes if lane.order is None)
        if lane.process is None:
            self._start(lane)
        lane.order, lane.run = order, ""
        assert lane.process is not None and lane.process.stdin is not None
        try:
            lane.process.stdin.write(to_json(asdict(order)).encode() + b"\n")
            lane.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead, which is heard as its end
        if self.is_stopping:  # somebody wanted an end while this was being begun
            lane.process.send_signal(signal.SIGINT)

    def _start(self, lane: _Lane) -> None:
        # A signal that comes before it can act on it waits until then: it inherits what is blocked.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            lane.process = subprocess.Popen(
                [sys.executable, "-m", "headway.bench.lanes", ",".join(map(str, lane.cores)), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C in the terminal comes to us, and we pass it on
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        assert lane.process.stdout is not None
        lane.heard = b""
        self._selector.register(lane.process.stdout, selectors.EVENT_READ, lane)

    def wait(self, heard: Heard) -> None:
        before = sum(lane.order is not None for lane in self._lanes)
        while sum(lane.order is not None for lane in self._lanes) == before:
            for key, _ in self._selector.select():
                self._read(key.data, key.fd, heard)

    def _read(self, lane: _Lane, file: int, heard: Heard) -> None:
        found = os.read(file, 1 << 16)
        if not found:
            self._died(lane, heard)
            return
        *lines, lane.heard = (lane.heard + found).split(b"\n")
        for line in lines:
            message, order = json.loads(line), lane.order
            assert order is not None
            if message["kind"] == "started":
                lane.run = message["run"]
            elif message["kind"] == "ended":
                lane.order = None
            heard(order, message)

    def _died(self, lane: _Lane, heard: Heard) -> None:
        process, order = lane.process, lane.order
        assert process is not None and process.stdout is not None
        self._selector.unregister(process.stdout)
        process.stdout.close()
        _close(process)
        code = process.wait()
        lane.process = lane.order = None  # the next order starts another one
        if order is not None:
            state = "interrupted" if self.is_stopping else "failed"
            reason = f"its launcher ended with {code}"
            heard(order, {"kind": "ended", "run": lane.run, "state": state, "reason": reason})

    def stop(self) -> None:
        if not self.is_stopping:  # a second signal would end them at once
            self._pass_on(signal.SIGINT)

    def _pass_on(self, number: int, _frame: object = None) -> None:
        self.is_stopping = True
        for lane in self._lanes:
            if lane.process is not None and lane.order is not None:
                lane.process.send_signal(number)

    def __enter__(self) -> Lanes:
        self._handlers = {number: signal.signal(number, self._pass_on) for number in STOPPING}
        return self

    def __exit__(self, *_: object) -> None:
        if any(lane.order is not None for lane in self._lanes):
            self.stop()  # we broke down: what is under way has no one to tell its end to
        processes = [lane.process for lane in self._lanes if lane.process is not None]
        for process in processes:
            _close(process)  # there are no more orders
        deadline = time.monotonic() + END_LIMIT
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()  # its agents notice, and end their tasks
                process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self._selector.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


def _close(process: subprocess.Popen[bytes]) -> None:
    """Its way to orders."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # of an order that it was too dead to take
        process.stdin.close()


# --- one of them ----------------------------------------------------------------------------------------------------
def main(cores: str, parent: int) -> None:
    """A lane: makes what it is ordered until there are no more orders."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return  # who wanted it was gone before it could ask to die with it
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    answers = os.dup(1)
    os.dup2(2, 1)  # whoever prints something does not break into an answer

    def tell(message: dict[str, Any]) -> None:
        os.write(answers, to_json(message).encode() + b"\n")

    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        with Machine() as machine:
            for line in sys.stdin.buffer:
                make(Order(**json.loads(line)), machine, tell)
    except KeyboardInterrupt:
        pass  # before or between orders: an end is wanted


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
