"""Runs that never were, for the rules of findings: everything is as it should be unless a test says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.findings.facts import Array, Facts, Node, Task

SECONDS = 30.0
START = 1000.0
STEP = 0.2
GBIT = 125e6


def times(seconds: float = SECONDS, every: float = 0.2) -> Array:
    return START + np.arange(every, seconds + every / 2, every)


def node(
    name: str, *tasks: str, cpus: float | None = 0.4, used: Any = 0.25, seconds: float = SECONDS, **more: Any
) -> Node:
    """`used`: CPUs; `received` ... in `series`: numbers or arrays as long as the samples."""
    t = times(seconds)
    series = {"cpus": used, "received": 1e6, "sent": 1e6, "machine_cpus": 0.9, "steal": 0.0, **more.pop("series", {})}
    filled = {key: np.broadcast_to(np.asarray(value, dtype=float), t.shape) for key, value in series.items()}
    more = {"rate": GBIT, "memory_limit": 2e9, **more}
    return Node(name, tasks, cpus=cpus, series={"t": t, "seconds": np.full(len(t), 0.2), **filled}, **more)


def task(
    name: str, on: str | None, step: Any = STEP, input_seconds: float = 0.001, seconds: float = SECONDS, **more: Any
) -> Task:
    """`step`: seconds of each step, a number or one for each; `batch`: examples of a step."""
    is_one = isinstance(step, (int, float))
    lengths = np.full(round(seconds / step), step) if is_one else np.asarray(step, dtype=float)
    t = START + np.cumsum(lengths)
    loss = more.pop("loss", np.linspace(2.0, 1.0, len(t)))
    steps = {
        "t": t,
        "seconds": lengths,
        "num_steps": np.ones(len(t)),
        "input_seconds": np.full(len(t), input_seconds),
        "loss": np.asarray(loss, dtype=float),
        "examples": np.full(len(t), float(more.pop("batch", 100))),
    }
    samples = times(seconds)
    usage = {"t": samples, "seconds": np.full(len(samples), 0.2), "cpus": np.full(len(samples), 0.25)}
    usage["rss"] = np.broadcast_to(np.asarray(more.pop("rss", 5e8), dtype=float), samples.shape)
    return Task(name, on, steps, usage, **{"threads": 1, **more})


def server(name: str = "ps/0", on: str = "ps0") -> Task:
    return Task(name, on)


def healthy(**changes: Any) -> Facts:
    """PS-W-W, ps-async, nothing at its limit."""
    facts: dict[str, Any] = {
        "run": "a-run",
        "strategy": "ps-async",
        "site": "emulated",
        "start": START,
        "end": START + SECONDS,
        "cores": 2,
        "nodes": (node("ps0", "ps/0", used=0.2), node("worker0", "worker/0"), node("worker1", "worker/1")),
        "tasks": (task("worker/0", "worker0"), task("worker/1", "worker1"), server()),
        "staleness": np.ones(300),
        "server_bytes": {"ps/0": 13e6},
        "placement": "partitioned",
        "warmup": 10,
        "learning_rate": 0.01,
    }
    return Facts(**{**facts, **changes})


def synchronous(late: float = 0.01, last: Any = None, interval: float = 0.25, **changes: Any) -> Facts:
    """ps-sync: `late` seconds between an update's first and last gradient; `last`: who came last."""
    t = START + np.arange(interval, SECONDS, interval)
    names = last or [f"worker/{number % 2}" for number in range(len(t))]
    names = [names] * len(t) if isinstance(names, str) else names
    updates = {"t": t, "spread": np.full(len(t), late)}
    return healthy(strategy="ps-sync", updates=updates, last_of=tuple(names), staleness=np.zeros(0), **changes)
