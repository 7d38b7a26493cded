"""Figures that are more than a mean: how step times and the use of nodes are distributed, who holds others up, what
part of a step is communication, how long until so much accuracy. Each is defined in docs/metrics.md.

The window is that of the rates (view `span`): after the warm-up of every training task, to the last step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.record.rates import rates
from headway.record.usage import limits_of
from headway.spec.cluster import shared_out

if TYPE_CHECKING:
    import duckdb

TRAINING_ROLES = ("chief", "worker")
# Accuracies for which the time is given, where an evaluation reached them.
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.96, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995)
LEAST_INTERVAL = 0.02  # seconds between two samples below which a rate means nothing
NODE_USE = (
    "cpus",
    "memory",
    "received",
    "sent",
    "loopback_received",
    "loopback_sent",
    "disk_read",
    "disk_written",
)
TASK_USE = ("cpus", "rss", *NODE_USE[2:])
STEP_SECONDS = """
select avg(s), quantile_cont(s, 0.05), quantile_cont(s, 0.25), median(s), quantile_cont(s, 0.75),
       quantile_cont(s, 0.95), quantile_cont(s, 0.99), max(s), stddev_samp(s) / nullif(avg(s), 0)
from (select seconds / num_steps as s from steps where not warmup{only})
"""
STEP_NAMES = ("mean", "p5", "p25", "median", "p75", "p95", "p99", "max", "variability")
# Seconds of training until an evaluation, over all launches: what lies between launches is nobody's.
REACHED = """
with trained as (select launch, min(t - seconds) as first, max(t) as last from steps group by launch),
     begun as (select launch, first, coalesce(sum(last - first) over (order by launch rows between unbounded preceding
               and 1 preceding), 0) as before from trained),
     heard as (select t, step, accuracy, {launch} from evaluations where accuracy is not null)
select t, step, accuracy, t - first + before as seconds from heard join begun using (launch) order by t
"""
RATE_CHANGE = """
with last_one as (select first, (last - first) / 3 as third, last from span order by launch desc limit 1)
select coalesce(sum(updates) filter (t > first and t <= first + third), 0),
       coalesce(sum(updates) filter (t > last - third and t <= last), 0)
from made, last_one
"""
LATECOMERS = """
select latest, count(*) / sum(count(*)) over () as share
from (select tasks[-1] as latest from updates join span on t between first and last where len(tasks) > 1)
group by latest order by share desc, latest limit 1
"""


def distributions(
    connection: duckdb.DuckDBPyConnection, job: dict[str, Any], figures: dict[str, Any], launch: str
) -> dict[str, Any]:
    """`connection`: has the views steps, updates, made, evaluations, span, node_samples and task_samples. `figures`:
    those that are known already. `launch`: SQL that names the launch of a row."""
    threads = {role: settings["threads"]["intra_op"] for role, settings in job["cluster"].items() if _is_role(settings)}
    for table in ("node_rates", "task_rates"):
        base = f"select * from {table.removesuffix('_rates')}_samples"
        connection.execute(f"create or replace temp view {table} as {rates(table, base)}")
    return {
        "asked_batch": asked_batch(job),
        "step_seconds": _step_seconds(connection),
        "straggling": _straggling(connection, figures),
        "rate_change": _rate_change(connection),
        "communication_share": _communication(figures, threads),
        "time_to_accuracy": _time_to_accuracy(connection, launch),
        "bytes_per_step": _bytes_per_step(figures),
        "node_use": _use(connection, "node_rates", "node", NODE_USE),
        "role_use": _use(connection, "task_rates", "split_part(task, '/', 1)", TASK_USE),
    }


def _is_role(settings: Any) -> bool:
    return isinstance(settings, dict) and "threads" in settings


def asked_batch(job: dict[str, Any]) -> int | None:
    """Examples in one update, as the job says it; None where updates are unlike, or it is not known (a program)."""
    workload, cluster, strategy = job["workload"], job["cluster"], job["strategy"]
    if "command" in workload:
        return None
    roles = [role for role in TRAINING_ROLES for _ in range(cluster[role]["count"])]
    if (whole := workload.get("global_batch_size")) is not None:
        sizes = shared_out(whole, len(roles))
    else:
        sizes = [cluster[role].get("batch_size") or workload["batch_size"] for role in roles]
    if not sizes or any(size is None for size in sizes):
        return None
    contributing = len(sizes) if strategy["kind"] in ("ps-sync", "allreduce") else 1
    contributing = min(contributing, strategy.get("aggregate") or contributing)
    if contributing == len(sizes):
        return sum(sizes)
    return contributing * sizes[0] if len(set(sizes)) == 1 else None


def _step_seconds(connection: duckdb.DuckDBPyConnection) -> dict[str, float] | None:
    """Of every task together; those of each one are in `tasks`."""
    row = connection.execute(STEP_SECONDS.format(only="")).fetchone()
    return None if row is None or row[0] is None else dict(zip(STEP_NAMES, row, strict=True))


def step_seconds_of(connection: duckdb.DuckDBPyConnection, task: str) -> dict[str, float | None]:
    row = connection.execute(STEP_SECONDS.format(only=" and task = ?"), [task]).fetchone() or (None,) * len(STEP_NAMES)
    return dict(zip(STEP_NAMES, row, strict=True))


def _straggling(connection: duckdb.DuckDBPyConnection, figures: dict[str, Any]) -> dict[str, Any] | None:
    """The slowest training task against the median one. Where tasks wait for each other their steps last alike, so
    there it is told from the order in which gradients arrive (ps-sync); in allreduce it cannot be told."""
    if figures["num_training_tasks"] < 2 or figures["strategy"] == "allreduce":
        return None
    paces = {task["task"]: task["step_seconds"] for task in figures["tasks"] if task["step_seconds"]}
    if figures["strategy"] == "ps-sync":
        late, spread = connection.execute(LATECOMERS).fetchone(), figures["spread"]
        if late is None or not paces or not spread:
            return None
        step = sorted(paces.values())[len(paces) // 2]
        own = max(step - spread["median"], 1e-3 * step)
        return {"task": late[0], "ratio": step / own, "last_share": late[1], "how": "order of arrival"}
    if len(paces) < 2:
        return None
    ordered = sorted(paces.values())
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    slowest = max(paces, key=lambda task: paces[task])
    return {"task": slowest, "ratio": paces[slowest] / middle, "last_share": None, "how": "own steps"}


def _rate_change(connection: duckdb.DuckDBPyConnection) -> float | None:
    """Updates in the last third of the window over those in its first third; of a resumed run, of its last launch."""
    row = connection.execute(RATE_CHANGE).fetchone()
    return None if row is None or not row[0] else float(row[1] / row[0])


def _communication(figures: dict[str, Any], threads: dict[str, int | None]) -> float | None:
    """The share of a step in which a training task neither computes nor waits for input: it sends, receives, or waits
    for others (also for a CPU that somebody else has). Computing is taken as the CPU time that it used, over what it
    could use: its threads, or fewer where its node has fewer CPUs. Sending takes CPU time, too, which is not seen here.
    None where CPU time was not counted."""
    if figures["num_training_tasks"] < 2 and not figures["num_ps"]:
        return 0.0
    limits = {task: limits_of(node).get("cpus") for node in figures["nodes"] for task in node.get("tasks", [])}
    used = {each["task"]: each["cpus"] for each in figures["task_usage"]}
    shares = []
    for task in figures["tasks"]:
        role = task["task"].partition("/")[0]
        most = min(threads.get(role) or 1, limits.get(task["task"]) or float("inf"))
        if used.get(task["task"]) is not None:
            shares.append(1 - min(1.0, used[task["task"]] / most) - (task["input_share"] or 0.0))
    return max(0.0, sum(shares) / len(shares)) if shares else None


def _time_to_accuracy(connection: duckdb.DuckDBPyConnection, launch: str) -> dict[str, dict[str, float]]:
    """For each target that an evaluation reached: step, moment and seconds of training at that evaluation, and the
    seconds at the one before, when it was not yet reached (`after`, 0 for the first one): the truth lies between."""
    found: dict[str, dict[str, float]] = {}
    before = 0.0
    for t, step, accuracy, seconds in connection.execute(REACHED.format(launch=launch)).fetchall():
        for target in TARGETS:
            if accuracy >= target:
                found.setdefault(f"{target:g}", {"seconds": seconds, "after": before, "step": step, "t": t})
        before = seconds
    return found


def _bytes_per_step(figures: dict[str, Any]) -> float | None:
    """Payload that all tasks together send, over the network and loopback, for each global step."""
    own, joint = figures["task_steps_per_s"], figures["steps_per_s"]
    told = [each for each in figures["task_usage"] if each.get("steps") and each["sent_bytes_per_step"] is not None]
    if not told or not own or not joint:
        return None

    def of_one(what: str) -> float:
        """For an own step of one training task."""
        each = [sum(one.get(f"{where}{what}_bytes_per_step") or 0.0 for where in ("", "loopback_")) for one in told]
        return float(sum(each)) / len(each)

    # What training tasks receive, their servers have sent; without servers it was sent by one of them.
    return (of_one("sent") + (of_one("received") if figures["num_ps"] else 0.0)) * float(own) / float(joint)


def _use(
    connection: duckdb.DuckDBPyConnection, table: str, whose: str, names: tuple[str, ...]
) -> dict[str, dict[str, dict[str, float]]]:
    """Node or role -> what -> mean (by time), p95, max (of samples) and variability (deviation over mean). Of a role:
    over the samples of all its tasks, so it is that of one task."""
    # A monitor that was kept waiting takes two samples at once: the rate between them means nothing.
    spaced = f"filter (seconds >= {LEAST_INTERVAL})"
    parts = ", ".join(
        f"sum({name} * seconds) / nullif(sum(seconds) filter ({name} is not null), 0) as {name}_mean, "
        f"quantile_cont({name}, 0.95) {spaced} as {name}_p95, max({name}) {spaced} as {name}_max, "
        f"stddev_samp({name}) {spaced} / nullif(avg({name}) {spaced}, 0) as {name}_variability"
        for name in names
    )
    cursor = connection.execute(
        f"select {whose} as who, {parts} from {table} join span on t between first and last group by who order by who"
    )
    columns = [column[0] for column in cursor.description or ()]
    found = {}
    for row in cursor.fetchall():
        cells = dict(zip(columns, row, strict=True))
        found[str(cells["who"])] = {
            name: {part: cells[f"{name}_{part}"] for part in ("mean", "p95", "max", "variability")}
            for name in names
            if cells[f"{name}_mean"] is not None
        }
    return found
