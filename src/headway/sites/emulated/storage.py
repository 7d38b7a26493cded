"""A disk behind a shaped link: what a host has where no control group can limit its disk.

host worker0                                  the box
sshfs: the data, the checkpoints ── disk0 ═════ d1 ── sftp-server ── this machine's files
                                     └ shaped: writing  └ shaped: reading

The kernel slows the link down as it does any other: nothing sleeps, and what waits for the disk waits as it would for
a real one: reading ahead, writing behind and the page cache are the kernel's own. The link's counters are the disk's.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import NoReturn

from headway.host.readings import STORAGE_LINK
from headway.sites.emulated.network import shaped

FIRST = IPv4Address("10.78.0.0")
PORT = 2222
DEVICE = STORAGE_LINK.decode()
MTU = 65_000  # headers would else take some percent of the rate
FUSE = "/dev/fuse"
SERVER_FOLDERS = "/usr/lib/openssh:/usr/libexec/openssh:/usr/lib/ssh"
# Nothing of a file but its content is remembered: another host may have changed it.
OPTIONS = f"directport={PORT},dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0"


@dataclass(frozen=True)
class StorageLink:
    """One host's connection to its disk."""

    number: int
    read: float | None
    """Bytes per second; None: as fast as it goes."""
    write: float | None
    folders: tuple[str, ...]
    """What the host sees through the link."""

    @property
    def port(self) -> str:
        """Our end."""
        return f"d{self.number}"

    @property
    def server(self) -> str:
        return str(FIRST + 4 * self.number + 1)

    @property
    def client(self) -> str:
        return str(FIRST + 4 * self.number + 2)

    def plugged_in(self, pid: int) -> list[str]:
        """Lines for ip, in the box."""
        return [
            f"link add {self.port} mtu {MTU} type veth peer name {DEVICE} mtu {MTU} netns {pid}",
            f"addr add {self.server}/30 dev {self.port}",
            f"link set {self.port} up",
        ]

    def plugged_in_shaping(self) -> list[str]:
        """Lines for tc, in the box: what the host reads."""
        return shaped(self.port, self.read)

    def inside(self) -> list[str]:
        """Lines for ip, in the host."""
        return [f"addr add {self.client}/30 dev {DEVICE}", f"link set {DEVICE} up"]

    def inside_shaping(self) -> list[str]:
        """Lines for tc, in the host: what it writes."""
        return shaped(DEVICE, self.write)


def problem(tool_path: str) -> str | None:
    """Why hosts cannot have this here."""
    if not shutil.which("sshfs", path=tool_path):
        return "the command `sshfs` (package sshfs) is missing"
    if not _server(tool_path):
        return "sftp-server (package openssh-sftp-server) is missing"
    try:
        os.close(os.open(FUSE, os.O_RDWR))
    except OSError as error:
        return f"{FUSE}: {error.strerror}"
    return None


def listen(link: StorageLink) -> socket.socket:
    """At our end of the link alone: nobody but its host can ask."""
    return socket.create_server((link.server, PORT))


def serve(listener: socket.socket, tool_path: str) -> NoReturn:
    """One sftp-server for each folder that the host mounts."""
    server = _server(tool_path)
    if server is None:
        raise OSError("sftp-server is missing")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    while True:
        connection, _ = listener.accept()
        with connection:
            subprocess.Popen([server], stdin=connection.fileno(), stdout=connection.fileno())


def mount(link: StorageLink, tool_path: str) -> None:
    """In the host: from now on, these folders are seen through the link."""
    for folder in link.folders:
        command = [shutil.which("sshfs", path=tool_path) or "sshfs", "-o", OPTIONS, f"{link.server}:{folder}", folder]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise OSError(f"sshfs on {folder}: {(done.stderr or done.stdout).strip()}")


def _server(tool_path: str) -> str | None:
    return shutil.which("sftp-server", path=f"{tool_path}:{SERVER_FOLDERS}")
