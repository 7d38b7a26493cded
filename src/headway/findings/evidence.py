"""A run's tables, read once into the `Facts` that rules look at."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.findings.facts import NOTHING, TRAINING, Array, Facts, Node, Task, role_of
from headway.record.distributions import LEAST_INTERVAL
from headway.record.usage import fabric_rate, limits_of

if TYPE_CHECKING:
    from headway.record.run import Run

# Counter of a sample -> the series of its rate. (record/rates.py has them in SQL; here the levels are wanted, too.)
NODE_RATES = {
    "cpu_seconds": "cpus",
    "throttled_seconds": "throttled",
    "received_bytes": "received",
    "sent_bytes": "sent",
    "loopback_received_bytes": "loopback_received",
    "loopback_sent_bytes": "loopback_sent",
    "disk_read_bytes": "disk_read",
    "disk_written_bytes": "disk_written",
    "machine_cpu_seconds": "machine_cpus",
    "steal_seconds": "steal",
    "io_pressure_seconds": "io_pressure",
}
NODE_LEVELS = {"memory": "memory", "credits": "credits", "cpus": "cpus_allowed"}
TASK_RATES = {"cpu_seconds": "cpus", "context_switches": "context_switches"}
TASK_LEVELS = {"rss": "rss", "threads": "threads"}
KINDS = "'node_ready', 'restarting', 'agent_lost', 'rollback', 'task_exited'"
NO_MEMORY = "no more memory"  # what the launcher says of a task that was killed for want of it (launch/messages.py)
# Columns that are looked at: others of large tables would cost as much to read.
STEPS = "task, t, attempt, num_steps, seconds, input_seconds, loss, examples, warmup"
NODE_SAMPLES = ", ".join(["node", "t", "sampler", *NODE_RATES, *NODE_LEVELS, "memory_limit", "oom_kills"])
TASK_SAMPLES = ", ".join(["task", "t", "sampler", "attempt", *TASK_RATES, *TASK_LEVELS])


def read(run: Run, figures: dict[str, Any] | None = None) -> Facts:
    """Everything that rules look at; of a run that is alive, so far."""
    from headway.record.seal import result
    from headway.record.tables import connected, select_table

    figures = result(run) if figures is None else figures
    job = run.job
    workload, strategy, site = job["workload"], job["strategy"], job["site"]
    is_program = "command" in workload
    with connected(run.folder) as connection:

        def table(name: str, columns: str = "*", where: str = "true") -> dict[str, Any]:
            rows = select_table(run.folder, name, connection)
            return dict(connection.execute(f"select {columns} from ({rows}) where {where}").fetchnumpy())

        steps, usage = table("steps", STEPS), table("task_samples", TASK_SAMPLES)
        launches = [launch["started"] for launch in run.facts["launches"]]
        start, end = _watched(usage, launches) if is_program and not len(steps["t"]) else _window(steps, launches)
        inside = f"t > {start!r} and t <= {end!r}"
        stale = table("steps", "unnest(staleness) as staleness", inside)
        updates = table("updates", "t, spread, tasks[-1] as last", inside)
        events = table("events", "t, kind, data", f"kind in ({KINDS})")
        samples = table("node_samples", NODE_SAMPLES)
        pauses = [
            (float(row_end) - float(seconds), float(row_end), what)
            for name, what in (("evaluations", "evaluation"), ("checkpoints", "checkpoint"))
            for row_end, seconds in zip(*table(name, "t, coalesce(seconds, 0) as seconds").values(), strict=True)
        ]
    told = [(float(t), kind, json.loads(data)) for t, kind, data in zip(*events.values(), strict=True)]
    asked = {data["node"]: data for _, kind, data in told if kind == "node_ready"}
    killed = [
        data["task"] for _, kind, data in told if kind == "task_exited" and NO_MEMORY in (data.get("reason") or "")
    ]
    nodes = tuple(_nodes(samples, asked, killed, (start, end)))
    where = {task: node.name for node in nodes for task in node.tasks}
    names = [f"{role}/{index}" for role in (*TRAINING, "ps", "evaluator") for index in range(_count(job, role))]
    return Facts(
        run=run.name,
        strategy=strategy["kind"],
        site=site["kind"],
        is_program=is_program,
        start=start,
        end=end,
        nodes=nodes,
        tasks=tuple(_task(name, where.get(name), steps, usage, job, (start, end)) for name in names),
        cores=run.environment.get("cores"),
        fabric=fabric_rate(site),
        updates={name: _filled(updates[name]) for name in ("t", "spread")},
        last_of=tuple(str(task) for task in updates["last"]),
        staleness=_filled(stale["staleness"]),
        server_bytes={server["task"]: float(server["bytes"]) for server in figures.get("servers") or ()},
        placement=strategy.get("placement"),
        transfer=strategy.get("transfer"),
        exchange=strategy.get("exchange"),
        batch_size=workload.get("batch_size"),
        dataset=None if is_program else workload["dataset"]["name"],
        learning_rate=None if is_program else workload["optimizer"]["learning_rate"],
        warmup=job.get("measure", {}).get("warmup", 0),
        pauses=tuple(pauses),
        notes=tuple(
            (t, f"{data.get('task') or data.get('node') or ''} {kind}".strip())
            for t, kind, data in told
            if kind not in ("node_ready", "task_exited")
        ),
    )


def _count(job: dict[str, Any], role: str) -> int:
    return int(job["cluster"].get(role, {}).get("count", 0))


def _filled(column: Any) -> Array:
    """A column of a table, NaN where it is missing."""
    return np.ma.filled(np.ma.asarray(column).astype(float), np.nan)


def _window(steps: dict[str, Any], launches: list[float]) -> tuple[float, float]:
    """The measured time; of a resumed run, that of the launch that trained longest."""
    found = [(0.0, 0.0)]
    t, task, is_measured = _filled(steps["t"]), np.asarray(steps["task"]), ~_filled(steps["warmup"]).astype(bool)
    begun = t - _filled(steps["seconds"])
    for since, until in pairwise([*launches, np.inf]):
        mine = (t >= since) & (t < until)
        firsts = [begun[rows].min() for name in set(task) if np.any(rows := mine & is_measured & (task == name))]
        if firsts:
            found.append((float(max(firsts)), float(t[mine].max())))
    return max(found, key=lambda span: span[1] - span[0])


def _watched(usage: dict[str, Any], launches: list[float]) -> tuple[float, float]:
    """Of a program that tells of no step: when all of its training tasks ran, in the launch where that was longest.
    Links, memory and machine can be looked at without steps."""
    found = [(0.0, 0.0)]
    t, task = _filled(usage["t"]), np.asarray(usage["task"])
    training = [name for name in dict.fromkeys(map(str, task.tolist())) if role_of(name) in TRAINING]
    for since, until in pairwise([*launches, np.inf]):
        mine = [t[(task == name) & (t >= since) & (t < until)] for name in training]
        if mine and all(len(each) for each in mine):
            found.append((float(max(each.min() for each in mine)), float(min(each.max() for each in mine))))
    return max(found, key=lambda span: span[1] - span[0])


def _nodes(
    samples: dict[str, Any], asked: dict[str, dict[str, Any]], killed: list[str], window: tuple[float, float]
) -> Iterator[Node]:
    owner = np.asarray(samples["node"])
    filled = {key: _filled(column) for key, column in samples.items() if key != "node"}
    names = dict.fromkeys([*asked, *map(str, owner.tolist())])
    for name in names:
        told = asked.get(name, {})
        limits = limits_of(told)
        here = owner == name
        mine = {key: column[here] for key, column in filled.items()}
        disk = limits.get("disk") or {}
        limit = mine["memory_limit"][~np.isnan(mine["memory_limit"])] if len(mine["t"]) else NOTHING
        kills = mine["oom_kills"][~np.isnan(mine["oom_kills"])] if len(mine["t"]) else NOTHING
        yield Node(
            name,
            tuple(told.get("tasks", ())),
            cpus=limits.get("cpus"),
            rate=limits.get("rate"),
            memory_limit=limits.get("memory") or (float(limit[-1]) if len(limit) else None),
            disk_read=disk.get("read"),
            oom_kills=max(int(max(kills, default=0)), sum(task in killed for task in told.get("tasks", ()))),
            cores=len(told.get("cores") or ()) or None,
            series=_series(mine, "sampler", NODE_RATES, NODE_LEVELS, *window),
        )


def _task(
    name: str,
    node: str | None,
    steps: dict[str, Any],
    usage: dict[str, Any],
    job: dict[str, Any],
    window: tuple[float, float],
) -> Task:
    start, end = window
    mine = np.asarray(steps["task"]) == name
    own = {key: _filled(column[mine]) for key, column in steps.items() if key != "task"}
    inside = ~own["warmup"].astype(bool) & (own["t"] > start) & (own["t"] <= end)
    owner = np.asarray(usage["task"]) == name
    samples = {key: _filled(column[owner]) for key, column in usage.items() if key != "task"}
    threads = (job["cluster"].get(role_of(name), {}).get("threads") or {}).get("intra_op")
    return Task(
        name,
        node,
        {key: own[key][inside] for key in ("t", "seconds", "num_steps", "input_seconds", "loss", "examples")},
        _series(samples, "attempt", TASK_RATES, TASK_LEVELS, start, end),
        threads,
        len(set(own["attempt"])) or 1,
    )


def _series(
    samples: dict[str, Array], apart: str, rates: dict[str, str], levels: dict[str, str], start: float, end: float
) -> dict[str, Array]:
    """Rates between samples, never over a gap; levels at their ends. Only what lies in the measured time."""
    t = samples["t"]
    order = np.argsort(t, kind="stable")
    t, groups, sampler = t[order], samples[apart][order], samples["sampler"][order]
    if len(t) < 2:
        return {"t": NOTHING}
    seconds = np.diff(t)
    is_whole = (groups[1:] == groups[:-1]) & (sampler[1:] == sampler[:-1]) & (seconds >= LEAST_INTERVAL)
    is_whole &= (t[:-1] >= start - 0.5) & (t[1:] <= end)
    found = {"t": t[1:][is_whole], "seconds": seconds[is_whole]}
    for counter, rate in rates.items():
        values = samples[counter][order]
        if np.count_nonzero(~np.isnan(values)) > 0.9 * len(values):
            found[rate] = (np.diff(values) / seconds)[is_whole]
        elif np.any(~np.isnan(values)):  # counted less often: its rate holds until it is counted again
            found[rate] = _held(t, values)[1:][is_whole]
    for column, level in levels.items():
        values = samples[column][order]
        if np.any(~np.isnan(values)):
            found[level] = values[1:][is_whole]
    return found


def _held(t: Array, counters: Array) -> Array:
    known = np.flatnonzero(~np.isnan(counters))
    rates = np.full(len(t), np.nan)
    for before, after in pairwise(known):
        rates[before + 1 : after + 1] = (counters[after] - counters[before]) / max(t[after] - t[before], 1e-9)
    return rates
