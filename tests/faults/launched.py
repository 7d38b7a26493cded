"""A training program of somebody who knows nothing of Headway: for faults of users' own programs.

  python launched.py STEPS [TASK]

Alone it counts steps. Several wait for each other in every step, as in an all-reduce; with a server each asks that for
the next step. A step takes a twentieth of a second, and is printed. TASK, once it was started again, prints one step
and then waits for a lock that nobody frees.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

STEP_SECONDS = 0.05
PATIENCE = 60.0  # seconds for the others to start


def main(steps: int, hangs: str | None) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    if config["task"]["type"] == "ps":
        serve(config["cluster"]["ps"][0])
    is_alone = int(os.environ["WORLD_SIZE"]) == 1
    exchange = asking(config["cluster"]["ps"][0]) if "ps" in config["cluster"] else counting if is_alone else meeting()
    is_to_hang = os.environ["HEADWAY_TASK"] == hangs and os.environ["HEADWAY_ATTEMPT"] == "1"
    made, step = 0, 0
    while step < steps:
        time.sleep(STEP_SECONDS)
        step = exchange(step)
        made += 1
        if is_to_hang and made == 2:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        print(f"step {step} loss {1 / step:.4f}", flush=True)


def counting(step: int) -> int:
    return step + 1


def meeting() -> Callable[[int], int]:
    """Everybody sends a byte to the first one, which answers when it has all of them."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(address) as listener:
            peers = [listener.accept()[0] for _ in range(size - 1)]
    else:
        peers = [connected(address)]

    def exchange(step: int) -> int:
        for peer in peers:
            if rank == 0:
                received(peer, 1)
            else:
                peer.sendall(b"x")
        for peer in peers:
            if rank == 0:
                peer.sendall(b"y")
            else:
                received(peer, 1)
        return step + 1

    return exchange


def asking(server: str) -> Callable[[int], int]:
    host, _, port = server.rpartition(":")
    peer = connected((host, int(port)))

    def exchange(_: int) -> int:
        peer.sendall(b"x")
        return int.from_bytes(received(peer, 8), "big")

    return exchange


def serve(own: str) -> None:
    count, lock = 0, threading.Lock()

    def answer(peer: socket.socket) -> None:
        nonlocal count
        while peer.recv(1):
            with lock:
                count += 1
                peer.sendall(count.to_bytes(8, "big"))

    host, _, port = own.rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def connected(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(address)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def received(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := peer.recv(size - len(data))):
            sys.exit("a peer is gone")
        data += more
    return data


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
