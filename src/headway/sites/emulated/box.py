"""`python -m headway.sites.emulated.box`: the process in which emulated hosts live.

The launcher starts it as the init of private processes and a private network, and talks to it over one socket. Each
host is forked from it, already with everything imported, and becomes an agent in namespaces of its own; the agent's
byte stream is a socket that the launcher passes along. When the box ends, however it ends, the kernel ends every host
with it and removes networks and mounts. Only control groups stay; the state file names them (leftovers.py).

  launcher says (`do`)                                       and the box (`say`)
    open    {fabric, hosts_file, state_file}                   opened   {}
    hosts   {hosts: [...], one socket for each}                up       {pids: {host: pid}, delayed_by}
    limit   {limits: {host: {...}}}                            limited  {problems: {host: {limit: why}}}
    shorten {seconds}   latencies, by the queue's own delay    shortened {}
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headway.agent.agent import serve_socket
from headway.host import control_groups, namespaces
from headway.sites.emulated import delay, network, storage
from headway.sites.emulated.probe import TOOL_PATH

MOST_FDS = 250  # the kernel passes at most 253 with one message
MESSAGE = 2**20


def batch(tool: str, lines: Sequence[str]) -> None:
    """Many settings with one start of `ip` or `tc`."""
    if not lines:
        return
    done = subprocess.run(
        [shutil.which(tool, path=TOOL_PATH) or tool, "-batch", "-"],
        input="\n".join(lines),
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"{tool}: {done.stderr.strip()}")


class Box:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._fabric: float | None = None
        self._hosts_file = Path()
        self._state_file: Path | None = None
        self._pids: dict[str, int] = {}
        self._ports: dict[str, str] = {}
        self._delays: list[socket.socket] = []
        self._own_delay = 0.0
        self._storages: dict[str, int] = {}
        self._groups: dict[str, control_groups.Group] = {}

    def serve(self) -> None:
        """Until the launcher's end of the socket is closed; then nothing is left."""
        try:
            while True:
                data, fds, _, _ = socket.recv_fds(self._control, MESSAGE, MOST_FDS)
                if not data:
                    return
                self._reap()
                message = json.loads(data)
                try:
                    answer = getattr(self, f"_do_{message.pop('do')}")(fds=fds, **message)
                except OSError as error:
                    answer = {"say": "problem", "error": str(error)}
                self._control.send(json.dumps(answer).encode())
        finally:
            self._end_hosts()

    def _do_open(self, fds: list[int], fabric: float | None, hosts_file: str, state_file: str) -> dict[str, Any]:
        del fds
        self._fabric, self._hosts_file, self._state_file = fabric, Path(hosts_file), Path(state_file)
        batch("ip", network.switch(fabric))
        batch("tc", network.switch_shaping(fabric))
        for name, value in network.switch_settings(fabric).items():
            (Path("/proc/sys/net/ipv4") / name).write_text(value, encoding="ascii")
        return {"say": "opened"}

    def _do_hosts(self, fds: list[int], hosts: list[dict[str, Any]], netem: bool) -> dict[str, Any]:
        """`hosts`: {name, number, rate, latency, disk, log} of each; a host of the same name is made anew."""
        for host in hosts:
            self._remove(host["name"])
        whistles = {}
        for host, stream in zip(hosts, fds, strict=True):
            whistle, started = os.pipe()
            self._pids[host["name"]] = self._fork_host(host, stream, whistle, netem, keep=(stream, whistle))
            whistles[host["name"]] = started
            os.close(whistle)
            os.close(stream)
        links = [self._link(host, netem) for host in hosts]
        self._ports.update({host["name"]: link.port for host, link in zip(hosts, links, strict=True)})
        batch("ip", network.plugged_in(links, self._fabric))
        batch("tc", network.plugged_in_shaping(links))
        for host in hosts:
            self._plug_in_disk(host)
        delayed = {self._pids[host["name"]]: host["latency"] for host in hosts if host["latency"] and not netem}
        if delayed:
            self._fork_delay(delayed)
        for started in whistles.values():
            os.write(started, b"!")
            os.close(started)
        return {"say": "up", "pids": self._pids}

    def _do_limit(self, fds: list[int], limits: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """`limits`: host -> its group's name, and the fields of control_groups.Limits."""
        del fds
        here = control_groups.find()
        problems: dict[str, dict[str, str]] = {}
        for host, wanted in limits.items():
            group = self._groups[host] = here.make(wanted.pop("group"))
            for name, value in wanted.items():  # one by one: what can be limited is
                if value is None or name == "device":
                    continue
                try:
                    group.limit(control_groups.Limits(**{name: value, "device": wanted.get("device")}))
                except control_groups.ControlGroupError as error:
                    problems.setdefault(host, {})[name] = str(error)
        return {"say": "limited", "problems": problems}

    def _do_shorten(self, fds: list[int], seconds: float) -> dict[str, Any]:
        del fds
        self._own_delay = seconds
        for control in self._delays:
            delay.shorten(control, seconds)
        return {"say": "shortened"}

    # --- hosts -----------------------------------------------------------------------------------------------------
    def _link(self, host: dict[str, Any], netem: bool) -> network.Link:
        latency = host["latency"] or 0.0
        return network.Link(host["number"], self._pids.get(host["name"], 0), host["rate"], latency if netem else 0.0)

    def _fork_host(self, host: dict[str, Any], stream: int, whistle: int, netem: bool, keep: Iterable[int]) -> int:
        """The process id, as the box sees it, of the host's init, which is its agent."""
        told, tell = os.pipe()
        middle = os.fork()
        if middle == 0:  # a new process namespace begins with the next child
            with _ends_here("a host"):
                namespaces.leave(namespaces.A_HOST)
                init = os.fork()
                if init:
                    os.write(tell, str(init).encode())
                    os._exit(0)
                _close_all_but({*keep, 0, 1, 2})
                self._be_host(host, stream, whistle, netem)
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            pid = pipe.read()
        os.waitpid(middle, 0)
        if not pid:
            raise OSError(f"host {host['name']}: no namespaces could be made (logs/box.log)")
        return int(pid)

    def _be_host(self, host: dict[str, Any], stream: int, whistle: int, netem: bool) -> NoReturn:
        log = os.open(host["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.dup2(log, 2)
        os.setsid()
        namespaces.keep_mounts_private()
        namespaces.mount_proc()
        namespaces.set_name(host["name"])
        namespaces.show_instead(Path("/etc/hosts"), self._hosts_file)
        with contextlib.suppress(OSError):  # root's right: want of memory is for tasks to die of, not for the agent
            Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
        if not os.read(whistle, 1):
            raise OSError("the box ended before the network was there")
        os.close(whistle)
        batch("ip", network.inside(host["number"], self._fabric))
        batch("tc", network.inside_shaping(self._link(host, netem)))
        if disk := _disk(host):
            batch("ip", disk.inside())
            batch("tc", disk.inside_shaping())
            storage.mount(disk, TOOL_PATH)
        with socket.socket(fileno=stream) as connection:
            connection.setblocking(False)
            asyncio.run(serve_socket(connection))
        os._exit(0)

    def _fork_delay(self, delays: dict[int, float]) -> None:
        """One process for these hosts; queues are opened here, so that what goes wrong is told."""
        queues = delay.open_queues(delays)
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            with _ends_here("the delay"):
                _close_all_but({0, 1, 2, theirs.fileno(), *(queue.fileno() for queue in queues)})
                delay.hold_back(queues, theirs)
                os._exit(0)
        theirs.close()
        for queue in queues:
            queue.close()
        if self._own_delay:
            delay.shorten(ours, self._own_delay)
        self._delays.append(ours)

    def _plug_in_disk(self, host: dict[str, Any]) -> None:
        """For a host whose disk is behind a link: the link, and a process that serves it."""
        disk = _disk(host)
        if disk is None:
            return
        batch("ip", disk.plugged_in(self._pids[host["name"]]))
        batch("tc", disk.plugged_in_shaping())
        listener = storage.listen(disk)
        server = os.fork()
        if server == 0:
            with _ends_here(f"the disk of {host['name']}"):
                _close_all_but({0, 1, 2, listener.fileno()})
                storage.serve(listener, TOOL_PATH)
        listener.close()
        self._storages[host["name"]] = server

    def _remove(self, name: str) -> None:
        """A host that is to be made anew: its processes, and our end of its link."""
        for pid in (self._pids.pop(name, None), self._storages.pop(name, None)):
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self._reap(pid)
        if port := self._ports.pop(name, None):
            with contextlib.suppress(OSError):  # it may have gone with its other end
                batch("ip", [f"link del {port}"])

    def _reap(self, pid: int | None = None) -> None:
        """Orphans become ours: we are the init process here."""
        with contextlib.suppress(ChildProcessError):
            if pid is not None:
                os.waitpid(pid, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _end_hosts(self) -> None:
        for pid in self._pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in self._pids.values():
            self._reap(pid)
        try:
            for group in self._groups.values():
                group.remove()
        except control_groups.ControlGroupError as error:  # the next start removes it
            print(error, file=sys.stderr, flush=True)
        else:
            if self._state_file:
                self._state_file.unlink(missing_ok=True)


def _disk(host: dict[str, Any]) -> storage.StorageLink | None:
    given = host["disk"]
    if given is None:
        return None
    return storage.StorageLink(host["number"], given["read"], given["write"], tuple(given["folders"]))


@contextlib.contextmanager
def _ends_here(who: str) -> Any:
    """A forked child must never come back into the parent's code."""
    try:
        yield
    except BaseException as error:
        print(f"{who} broke down: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the launcher's alone
    gc.freeze()  # forked hosts share what is imported
    with socket.socket(fileno=int(sys.argv[1])) as control:
        Box(control).serve()


if __name__ == "__main__":
    main()
