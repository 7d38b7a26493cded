"""Runs that nobody ran: record files with the rows of a training that might have been, sealed like real ones.

For the report's benchmark and tests: as many nodes, steps and samples as wanted, with a known peak, a server that slows
down, a restart, evaluations and checkpoints. Nothing here measures anything.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headway.bench.folder import SweepFolder
from headway.bench.plan import make_plan
from headway.launch.prepare import create_run
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.record.seal import seal
from headway.spec.load import parse_job
from headway.spec.sweep import LoadedSweep, parse_sweep

BEGAN = 1_700_000_000.0
STARTING = 4.0  # seconds from the command to the first step
PEAK_AT = 0.62  # of the training: one sample in which the first server's node sends far more than ever
SLOW_FROM = 0.7  # of the training: the first server slows down, and everything with it
JOINT = ("ps-sync", "allreduce")  # every task makes a step for each update: so many times as many rows


@dataclass(frozen=True)
class Made:
    """What is made up."""

    name: str = "made"
    strategy: str = "ps-async"
    workers: int = 2
    servers: int = 1
    steps: int = 400
    rate: float = 8.0
    """Steps per second of one worker, if it were alone."""
    hertz: float = 5.0
    slows_down: bool = False
    restarts: bool = False
    seed: int = 0
    batch_size: int = 100
    has_all_series: bool = False
    """Nodes have whatever a monitor can count: throttled CPUs, loopback, reading, credits, what others do."""


def make_run(root: Path, made: Made) -> RunFolder:
    """A sealed run folder."""
    random = np.random.default_rng(made.seed)
    folder = create_run(parse_job(_job(made)), root)
    total = made.rate * (1 if made.strategy in JOINT else made.workers) / (1 + 0.06 * (made.workers - 1))
    seconds = made.steps / total
    begin = BEGAN + made.seed * 1000 + STARTING
    slow = 0.55 if made.slows_down else 1.0
    seconds = SLOW_FROM * seconds + (1 - SLOW_FROM) * seconds / slow
    end = begin + seconds
    tasks = [f"worker-{index}" for index in range(made.workers)]
    servers = [f"ps-{index}" for index in range(made.servers)]
    moments = np.sort(begin + seconds * _pace(np.linspace(0, 1, made.steps, endpoint=False) + 1 / made.steps, slow))
    for index, task in enumerate(tasks):
        _write(folder.events(task), _steps(made, moments, index, begin, random))
    chief = folder.events("worker-0")
    _append(chief, _quality(made, begin, end))
    _append(chief, _placement(made, begin))
    for server in servers:
        _write(folder.events(server), [{"t": begin - 1, "kind": "ready", "attempt": 0, "port": 1}])
    if made.strategy == "ps-sync":
        _append(folder.events("ps-0"), _updates(made, moments, random))
    _write(folder.events("launcher"), _launcher(made, [*tasks, *servers], begin, end))
    for number, name in enumerate([*servers, *tasks]):
        _samples(folder.metrics(name.replace("-", "")), made, name, number, begin - 3, end + 1, slow, random)
    facts = folder.facts()
    launches = [{"started": begin - STARTING, "ended": end + 1.0, "pid": 1}]
    folder.write_facts(
        {**facts, "state": "finished", "reason": None, "created": begin - STARTING, "launches": launches}
    )
    seal(folder)
    return folder


def clone(folder: RunFolder, name: str) -> RunFolder:
    """The same run under another name."""
    other = RunFolder(folder.path.with_name(name))
    shutil.copytree(folder.path, other.path, copy_function=os.link)  # large files are there once
    for file in ("run.json", "result.json"):
        facts = json.loads((other.path / file).read_text(encoding="utf-8"))
        (other.path / file).unlink()
        (other.path / file).write_text(to_json({**facts, "run": name}), encoding="utf-8")
    return other


def _job(made: Made) -> dict[str, Any]:
    cluster = {"worker": made.workers} | ({"ps": made.servers} if made.servers else {})
    return {
        "name": made.name,
        "workload": {
            "model": "softmax",
            "dataset": "synthetic",
            "batch_size": made.batch_size,
            "stop": {"steps": made.steps},
        },
        "strategy": made.strategy,
        "cluster": cluster,
        "expose": "cluster",
    }


def _pace(share: np.ndarray[Any, Any], slow: float) -> np.ndarray[Any, Any]:
    """When, as a share of all seconds, a share of all steps is done."""
    whole = SLOW_FROM + (1 - SLOW_FROM) / slow
    return np.where(share < SLOW_FROM, share, SLOW_FROM + (share - SLOW_FROM) / slow) / whole


def _steps(
    made: Made, moments: np.ndarray[Any, Any], index: int, begin: float, random: np.random.Generator
) -> list[dict[str, Any]]:
    first, every = (0, 1) if made.strategy in JOINT else (index, made.workers)
    own = moments[first::every]
    took = np.diff(own, prepend=begin) * random.uniform(0.85, 1.0, len(own))
    global_steps = np.arange(first, made.steps, every) + 1
    loss = 2.3 * np.exp(-3 * global_steps / made.steps) + 0.2 + random.normal(0, 0.08, len(own))
    stale = random.poisson(made.workers - 1, len(own))
    return [
        {
            "t": float(own[number]),
            "kind": "step",
            "attempt": 0,
            "generation": 1,
            "step": int(global_steps[number]),
            "own_step": number + 1,
            "num_steps": 1,
            "seconds": float(took[number]),
            "input_seconds": float(took[number]) * 0.03,
            "loss": float(loss[number]),
            "staleness": [int(stale[number])] if made.strategy == "ps-async" else None,
            "examples": made.batch_size,
            "warmup": number < 3,
            "accepted": 1,
            "penalty": None,
        }
        for number in range(len(own))
    ]


def _updates(made: Made, moments: np.ndarray[Any, Any], random: np.random.Generator) -> list[dict[str, Any]]:
    """One after the other, with the tasks in the order in which their gradients came."""
    names = [f"worker/{index}" for index in range(made.workers)]
    spreads = random.exponential(0.1 * float(np.median(np.diff(moments))), len(moments))
    return [
        {
            "t": float(moment) - 1e-4,  # before any task hears of it
            "kind": "update",
            "attempt": 0,
            "generation": 1,
            "step": number + 1,
            "tasks": [names[place] for place in random.permutation(made.workers)],
            "examples": made.batch_size * made.workers,
            "dropped": [],
            "spread": float(spreads[number]),
        }
        for number, moment in enumerate(moments)
    ]


def _quality(made: Made, begin: float, end: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in range(1, 9):
        t, step = begin + (end - begin) * part / 8, made.steps * part // 8
        quality = {"accuracy": 0.97 - 0.6 * 0.6**part, "loss": 0.15 + 2.0 * 0.55**part}
        rows.append(
            {"t": t, "kind": "evaluation", "attempt": 0, "step": step, "num_examples": 1000, "seconds": 0.2, **quality}
        )
        if part % 4 == 0:
            rows.append(
                {"t": t, "kind": "checkpoint", "attempt": 0, "step": step, "path": "", "bytes": 1, "seconds": 0.1}
            )
    rows.append({"t": end + 0.1, "kind": "finished", "attempt": 0, "step": made.steps, **quality})
    return rows


def _placement(made: Made, begin: float) -> list[dict[str, Any]]:
    names = ["ps/0", "ps/0", "ps/1" if made.servers > 1 else "ps/0"]
    sizes = [12_845_056, 204_800, 3_276_800]
    placement = [
        {"name": f"layer{number}/weights", "device": device, "bytes": size, "shape": [size // 4], "trainable": True}
        for number, (device, size) in enumerate(zip(names, sizes, strict=True))
    ]
    return [{"t": begin - 0.5, "kind": "variables", "attempt": 0, "placement": placement if made.servers else []}]


def _launcher(made: Made, names: list[str], begin: float, end: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        task = _task(name)
        asked = {"cpus": 2.0, "rate": 125e6}
        ready = {"node": name.replace("-", ""), "pid": 1, "tasks": [task], "asked": asked, "cores": [0, 1]}
        rows.append({"t": begin - 3.5, "kind": "node_ready", "launch": 0, **ready})
        rows.append({"t": begin - 3 + 0.05 * number, "kind": "task_started", "launch": 0, "task": task, "attempt": 0})
    rows.append({"t": begin - 0.2, "kind": "state", "launch": 0, "state": "running", "reason": None})
    if made.restarts:
        middle = (begin + end) / 2
        why = {"task": "worker/1", "reason": "it was killed by signal 9", "restart": 1, "allowed": 3}
        rows.append({"t": middle, "kind": "restarting", "launch": 0, **why})
    rows.append({"t": end + 0.5, "kind": "state", "launch": 0, "state": "finished", "reason": None})
    return rows


def _task(name: str) -> str:
    """worker-0 -> worker/0"""
    return name.replace("-", "/")


def _samples(
    path: Path,
    made: Made,
    name: str,
    number: int,
    start: float,
    end: float,
    slow: float,
    random: np.random.Generator,
) -> None:
    """Counters of a node and of the task on it, at `hertz`."""
    t = np.arange(start, end, 1 / made.hertz)
    trains = (t > start + 3) & (t < end - 1)
    is_server = name.startswith("ps")
    late = (t - start - 3) / (end - start - 4) > (SLOW_FROM / (SLOW_FROM + (1 - SLOW_FROM) / slow))
    pace = np.where(late, slow, 1.0)
    cpus = np.where(trains, (0.5 if is_server else 1.6) * pace * random.normal(1, 0.07, len(t)), 0.05).clip(0)
    if is_server and number == 0 and slow < 1:
        cpus = np.where(trains & late, 0.2 * random.normal(1, 0.02, len(t)), cpus)
    rate = 8e6 * made.workers if is_server else 8e6
    sent = np.where(trains, rate * pace * random.normal(1, 0.15, len(t)), 2e3).clip(0)
    if number == 0:
        sent[int(len(t) * PEAK_AT)] = 118e6
    received = np.where(trains, rate * pace * random.normal(1, 0.15, len(t)), 2e3).clip(0)
    written = np.where(random.random(len(t)) < 0.02, 4e6, 1e4)
    memory = (4e8 + 1.5e8 * (1 - np.exp(-(t - start) / 6)) + random.normal(0, 1e6, len(t))).astype(int)

    def counter(rates: np.ndarray[Any, Any]) -> list[int]:
        return [int(one) for one in np.cumsum(rates / made.hertz)]

    seconds = [round(float(one), 4) for one in np.cumsum(cpus / made.hertz)]
    task = _task(name)
    into, out, disk, levels = counter(received), counter(sent), counter(written), memory.tolist()
    nothing = [0] * len(t)
    local = counter(0.2 * received * random.uniform(0, 1, len(t))) if made.has_all_series else nothing
    read = counter(np.where(random.random(len(t)) < 0.1, 2e6, 0.0)) if made.has_all_series else nothing
    more = _further(t, cpus, out, made.hertz, random) if made.has_all_series else [""] * len(t)
    lines = []
    for place, moment in enumerate(t.tolist()):
        shared = f'"disk_read_bytes":{read[place]},"loopback_received_bytes":{local[place]}'
        shared += f',"loopback_sent_bytes":{local[place]},"sampler":{start},"cpu_seconds":{seconds[place]}'
        shared += f',"disk_written_bytes":{disk[place]}'
        net = f'"received_bytes":{into[place]},"sent_bytes":{out[place]}'
        level = f'"memory":{levels[place]}{more[place]}'
        lines.append(f'{{"t":{moment:.4f},"kind":"node_sample",{shared},{net},{level}}}\n')
        lines.append(
            f'{{"t":{moment:.4f},"kind":"task_sample","task":"{task}","attempt":0,{shared},{net},'
            f'"rss":{levels[place]},"threads":9}}\n'
        )
    path.write_text("".join(lines), encoding="utf-8")


def _further(
    t: np.ndarray[Any, Any], cpus: np.ndarray[Any, Any], sent: list[int], hertz: float, random: np.random.Generator
) -> list[str]:
    """The rest of what a monitor counts on an emulated node whose CPU is burstable."""
    throttled = np.cumsum(cpus * random.uniform(0.0, 0.3, len(t)) / hertz)
    credits = 30 - np.cumsum(cpus / hertz) / 60 + 0.2 * (t - t[0]) / 60
    machine = np.cumsum((cpus + random.uniform(0.0, 0.2, len(t))) / hertz)
    return [
        f',"throttled_seconds":{throttled[place]:.4f},"credits":{credits[place]:.4f},"cpus":2.0'
        f',"machine_cpu_seconds":{machine[place]:.3f},"steal_seconds":0,"memory_limit":2147483648,"oom_kills":0'
        f',"sent_packets":{sent[place] // 1400},"received_packets":{sent[place] // 1400}'
        for place in range(len(t))
    ]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(to_json(row) + "\n" for row in rows), encoding="utf-8")


def _append(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(to_json(row) + "\n" for row in rows)


def make_sweep(root: Path, name: str = "made-sweep", repeats: int = 3, steps: int = 300, **more: Any) -> SweepFolder:
    """A finished sweep over 1, 2, 3 and 4 workers under two strategies, against a single machine. One trial failed, and
    one run is marked. `more`: of the sweep's settings."""
    settings = {
        "name": name,
        "job": _job(Made(steps=steps)),
        "vary": {"strategy": ["ps-async", "ps-sync"], "cluster.worker": [1, 2, 3, 4]},
        "baseline": {"strategy": "single"},
        **more,
    }
    sweep = parse_sweep(settings)
    loaded = LoadedSweep(sweep, _job(Made(steps=steps)))
    plan = make_plan(loaded, 2)
    folder = SweepFolder.create(root, loaded, [trial.as_file() for trial in plan.trials], [], {"cpu": "made up"})
    events = folder.writer()
    events.write("begun")
    for number, trial in enumerate(plan.trials):
        if trial.left_out:
            continue
        strategy = "single" if trial.is_baseline else trial.settings.get("strategy", "ps-async")
        if strategy == "ps-sync" and trial.tasks == 4:
            why: dict[str, Any] = {"state": "failed", "reason": "worker/3 was not ready within 180 s"}
            events.write("ended", False, trial=trial.key, repeat=0, run=f"{name}-nothing", marks=[], **why)
            continue
        for repeat in range(repeats):
            pace = {"ps-sync": 0.72, "single": 1.05}.get(strategy, 1.0)
            rate = 8 * pace * (1 + 0.01 * ((number * 7 + repeat * 5) % 5 - 2))
            made = Made(
                trial.key,
                "ps-async",
                trial.tasks,
                0 if trial.is_baseline else 1,
                steps,
                rate,
                seed=number * 10 + repeat,
            )
            if trial.is_baseline:
                made = replace(made, strategy="single")
            run = make_run(folder.runs, made)
            marks = ["loaded"] if repeat == 0 and trial.tasks == 3 else []
            why_marked = {"loaded": "others took 0.4 CPUs"} if marks else {}
            kept: dict[str, Any] = {"state": "finished", "marks": marks, "why": why_marked, "seconds": 40.0}
            events.write("ended", False, trial=trial.key, repeat=repeat, run=run.name, **kept)
    events.write("finished")
    events.close()
    return folder
