"""Sockets: is this task's port free, and do the parameter servers answer?"""

from __future__ import annotations

import errno
import socket

from headway.errors import SiteError

CONNECT_SECONDS = 0.5


class PortTaken(SiteError):
    """Another program listens on the port that this task was given."""


def check_free(port: int) -> None:
    """Raise PortTaken if somebody listens on `port`. It is bound as gRPC binds it (all interfaces, both families,
    SO_REUSEADDR), so the answer is the one that TensorFlow's server would get, but a certain one."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # the machine has no IPv6
        with probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise PortTaken(f"port {port} is taken by another program") from None
                if family == socket.AF_INET6:
                    continue  # IPv6 is known to the kernel but switched off
                raise


def answers(address: str) -> bool:
    """Whether something accepts connections at host:port."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
