"""What the monitor costs: CPU of an agent that samples, less that of one that does not, as a share of one core.

  benchmarks/monitor.py              5 samples a second, three tasks, a minute for each
  benchmarks/monitor.py --hertz 50

The tasks are TensorFlow-like: processes with many threads, open files and connections. Wanted: at most 1 % at 5 Hz.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from headway.agent import protocol

THREADS, FILES, CONNECTIONS = 30, 100, 10
TASK = f"""
import socket, threading, time
files = [open("/proc/self/stat") for _ in range({FILES})]
server = socket.create_server(("127.0.0.1", 0))
links = []
for _ in range({CONNECTIONS}):
    links.append(socket.create_connection(server.getsockname()))
    links.append(server.accept()[0])
for _ in range({THREADS}):
    threading.Thread(target=time.sleep, args=(1e6,), daemon=True).start()
time.sleep(1e6)
"""


def agent_cpu(hertz: float | None, tasks: int, seconds: float) -> float:
    """Shares of a core that an agent used, with this many tasks and samples."""
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        folder = Path(scratch)
        agent = subprocess.Popen([sys.executable, "-m", "headway.agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert agent.stdin and agent.stdout

        def send(**message: Any) -> None:
            assert agent.stdin
            agent.stdin.write(protocol.encode(message))
            agent.stdin.flush()

        files = {"events": str(folder / "events.jsonl"), "metrics": str(folder / "metrics.jsonl")}
        send(do="hello", version=protocol.VERSION, lease=1000, node="here", files=files)
        for number in range(tasks):
            own = {key: str(folder / f"{number}.{key}") for key in ("log", "events", "alive")}
            argv = [sys.executable, "-c", TASK]
            send(do="start", task=f"worker/{number}", attempt=0, argv=argv, env={}, cores=None, files=own)
        if hertz:
            send(do="monitor", hertz=hertz)
        reader = subprocess.Popen(["cat"], stdin=agent.stdout, stdout=subprocess.DEVNULL)
        time.sleep(3)  # until the tasks are there
        before = psutil.Process(agent.pid).cpu_times()
        time.sleep(seconds)
        after = psutil.Process(agent.pid).cpu_times()
        send(do="quit")
        agent.wait(10)
        reader.wait(10)
        if hertz:
            rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            count = sum(row["kind"] == "node_sample" for row in rows)
            print(f"  {count / (seconds + 3):.1f} samples a second, {len(rows)} rows")
        return (after.user + after.system - before.user - before.system) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hertz", type=float, default=5.0)
    parser.add_argument("--tasks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    costs = []
    for _ in range(asked.rounds):
        without = agent_cpu(None, asked.tasks, asked.seconds)
        with_it = agent_cpu(asked.hertz, asked.tasks, asked.seconds)
        costs.append(with_it - without)
        print(f"agent: {without:.2%} of a core; {asked.hertz:g} samples a second of {asked.tasks} tasks: {with_it:.2%}")
    print(f"the monitor costs {min(costs):.2%} to {max(costs):.2%} of one core (wanted at 5 Hz: at most 1 %)")


if __name__ == "__main__":
    main()
