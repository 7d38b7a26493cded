"""`python -m headway.agent`: serve a launcher on standard input and output."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from headway.agent.agent import serve_pipes
from headway.host import namespaces

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def bring_loopback_up() -> None:
    """A new network namespace has its loopback interface down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def show_resolver(shown: Path) -> None:
    """The name servers that a private network reaches; mounts are private, too."""
    try:
        namespaces.show_instead(Path("/etc/resolv.conf").resolve(strict=True), shown)
    except OSError as error:
        print(f"names of other hosts may not be found: {error}", file=sys.stderr, flush=True)


def main() -> None:
    if "--private-network" in sys.argv:
        bring_loopback_up()
    if "--resolver" in sys.argv:
        show_resolver(Path(sys.argv[sys.argv.index("--resolver") + 1]))
    asyncio.run(serve_pipes(sys.stdin.buffer, sys.stdout.buffer))
    os._exit(0)  # at once: a task's pipe that is still open must not keep us


if __name__ == "__main__":
    main()
