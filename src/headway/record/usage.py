"""What nodes and tasks used while they trained, from the monitors' counters.

The window is that of the rates: from when every task has left its warm-up to the last step, of each launch. In a run
without such a step, as of a program that tells nobody of its steps, it is the time in which its training tasks ran.
Counters are compared between the first and the last sample in it, of one sampler: a gap counts for nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.record import standstills
from headway.record.rates import rates
from headway.record.tables import select_table

if TYPE_CHECKING:
    import duckdb

    from headway.record.run import Run

SPAN = """
with warm as (select launch, task, min(t - seconds) as since from steps where not warmup group by launch, task),
     begun as (select launch, max(since) as first from warm group by launch)
select launch, first, max(t) as last from steps join begun using (launch) group by launch, first
"""
RAN = """
with sampled as (select t, {launch} from task_samples where split_part(task, '/', 1) in ('chief', 'worker'))
select launch, min(t) as first, max(t) as last from sampled
where not exists (from trained) group by launch
"""
NODE_COUNTERS = {
    "cpu_seconds": "cpus",
    "throttled_seconds": "throttled",
    "received_bytes": "received",
    "sent_bytes": "sent",
    "loopback_received_bytes": "loopback_received",
    "loopback_sent_bytes": "loopback_sent",
    "disk_read_bytes": "disk_read",
    "disk_written_bytes": "disk_written",
    "context_switches": "context_switches",
    "cpu_pressure_seconds": "cpu_pressure",
}
FULL = 0.8  # of the CPUs that a node may use, in one sample: they are used up
# Of a link's rate. Traffic comes and goes within a sample: with 0.8 a link that carried 69 % of its rate was full for
# 62 % of the time, with 0.7 for 66 %.
FULL_LINK = 0.7
TASK_TRAFFIC = ("received_bytes", "sent_bytes", "loopback_received_bytes", "loopback_sent_bytes", "retransmitted")


def usage(connection: duckdb.DuckDBPyConnection, run: Run, launch: str) -> dict[str, Any]:
    """`connection`: has the view `steps`, with the launch of each. `launch`: SQL that names the launch of a row."""
    for table in ("node_samples", "task_samples"):
        connection.execute(f"create temp view {table} as {select_table(run.folder, table, connection)}")
    connection.execute(f"create temp table trained as {SPAN}")
    connection.execute(f"create temp table span as from trained union all ({RAN.format(launch=launch)})")
    connection.execute(f"create temp view node_rates as {rates('node_rates', 'from node_samples')}")
    asked = _asked(connection)
    full, nobody = _full(connection, asked)
    nodes = [{**asked.get(node["node"], {}), **node, "full": full.get(node["node"], {})} for node in _nodes(connection)]
    fabric = _fabric_full(connection, run.job["site"])
    return {"nodes": nodes, "nobody_full": nobody, "fabric_full": fabric, "task_usage": _tasks(connection)}


def _nodes(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Means over the window: CPUs, bytes per second, and so on; the most memory; the last credits."""
    parts = ", ".join(f"arg_max({name}, t) - arg_min({name}, t) as {name}" for name in NODE_COUNTERS)
    means = ", ".join(f"sum({name}) / nullif(sum(seconds), 0) as {mean}" for name, mean in NODE_COUNTERS.items())
    return _rows(
        connection,
        f"""
        with pieces as (
            select node, launch, sampler, max(t) as t, max(t) - min(t) as seconds, max(memory) as memory,
                   max(memory_limit) as memory_limit, max(oom_kills) as oom_kills, arg_max(credits, t) as credits,
                   {parts}
            from node_samples join span on t between first and last group by node, launch, sampler)
        select node, sum(seconds) as seconds, max(memory) as memory_peak, max(memory_limit) as memory_limit,
               max(oom_kills) as oom_kills, arg_max(credits, t) as credits, {means}
        from pieces group by node order by node
        """,
    )


def _tasks(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """CPUs and memory of each task, and its traffic for each step of its own (servers: in all).

    A sample falls anywhere into a step, so bytes of a step are the slope of bytes over steps made: the first and the
    last sample alone would be off by a part of a step each.
    """
    moved = ", ".join(f"arg_max({name}, t) - arg_min({name}, t) as {name}" for name in TASK_TRAFFIC)
    total = ", ".join(f"sum({name}) as {name}" for name in TASK_TRAFFIC)
    slopes = ", ".join(f"regr_slope({name}, done) as {name}_slope" for name in TASK_TRAFFIC[:-1])
    each = ", ".join(
        f"sum({name}_slope * steps) / nullif(sum(steps), 0) as {name}_per_step" for name in TASK_TRAFFIC[:-1]
    )
    return _rows(
        connection,
        f"""
        with inside as (from task_samples join span on t between first and last),
             worked as (
                select task, sum(cpu) / nullif(sum(seconds), 0) as cpus, max(rss) as rss_peak,
                       max(memory) as memory_peak from (
                    select task, max(rss) as rss, max(memory) as memory, max(t) - min(t) as seconds,
                           arg_max(cpu_seconds, t) - arg_min(cpu_seconds, t) as cpu
                    from inside group by task, attempt, sampler, launch) group by task),
             made as (
                select task, attempt, launch, t, sum(num_steps) over whole as done
                from steps window whole as (partition by task, attempt, launch order by t)),
             counted as (
                select inside.*, coalesce(made.done, 0) as done
                from inside asof left join made
                  on inside.task = made.task and inside.attempt = made.attempt and inside.launch = made.launch
                  and inside.t >= made.t
                where sent_bytes is not null),
             pieces as (
                select task, max(done) - min(done) as steps, {moved}, {slopes}
                from counted group by task, attempt, sampler, launch),
             traffic as (select task, sum(steps) as steps, {total}, {each} from pieces group by task)
        select worked.*, traffic.* exclude (task) from worked left join traffic using (task) order by task
        """,
    )


def _full(
    connection: duckdb.DuckDBPyConnection, asked: dict[str, dict[str, Any]]
) -> tuple[dict[str, dict[str, float]], float | None]:
    """For each node the shares of time in which what it had was used up: its CPUs (of a burstable one: what it was
    allowed at that moment), its interface inwards, outwards and both ways at once; and the share in which that was so
    of no node. Why not is not known: they may wait for each other, for latency, for input."""
    limits = [
        (node, (each := facts["limits"]).get("cpus"), each.get("rate"))
        for node, facts in asked.items()
        if facts["limits"].get("cpus") or facts["limits"].get("rate")
    ]
    if not limits:
        return {}, None
    connection.execute("create temp table limits (node varchar, most_cpus double, most_rate double)")
    connection.executemany("insert into limits values (?, ?, ?)", limits)
    connection.execute(
        f"""
        create temp table use as
        select node, round(t / step) as bin, seconds, cpus >= {FULL} * coalesce(allowed, most_cpus) as cpu,
               received >= {FULL_LINK} * most_rate as inwards, sent >= {FULL_LINK} * most_rate as outwards,
               inwards and outwards as both_ways
        from node_rates join limits using (node) join span on t between first and last
             left join (select node, sampler, t, cpus as allowed from node_samples) using (node, sampler, t),
             (select median(seconds) as step from node_rates)
        """
    )
    share = "coalesce(sum(seconds) filter ({name}), 0) / nullif(sum(seconds) filter ({name} is not null), 0)"
    columns = ", ".join(f"{share.format(name=name)} as {name}" for name in ("cpu", "inwards", "outwards", "both_ways"))
    rows = _rows(connection, f"select node, {columns} from use group by node")
    found = {row.pop("node"): {name: value for name, value in row.items() if value is not None} for row in rows}
    (nobody,) = connection.execute(
        "select avg(if(any_full, 0, 1)) from (select bin, bool_or(coalesce(cpu, false) or coalesce(inwards, false)"
        " or coalesce(outwards, false)) as any_full from use group by bin)"
    ).fetchall()[0]
    return found, nobody


def fabric_rate(site: Mapping[str, Any]) -> float | None:
    """Bytes per second of the fabric between the nodes, in seconds here; None where it has no limit."""
    return float(site["fabric"]) / (site.get("dilation") or 1.0) if site.get("fabric") else None


def _fabric_full(connection: duckdb.DuckDBPyConnection, site: Mapping[str, Any]) -> float | None:
    """The share of time in which all nodes together used up the fabric between them; None where it has no limit, or
    there are no two nodes. Nodes are sampled at different moments: each counts with its mean in two samples' time,
    and a rest at the end, in which not all of them were sampled, does not count."""
    fabric = fabric_rate(site)
    if fabric is None:
        return None
    (share,) = connection.execute(
        f"""
        with inside as (from node_rates join span on t > first and t <= last where sent is not null),
             parts as (
                select node, launch, ceil((t - first) / step) as bin, sum(sent * seconds) / sum(seconds) as sent
                from inside, (select 2 * median(seconds) as step from inside)
                where bin <= floor((last - first) / step) group by node, launch, bin),
             crossing as (select sum(sent) as sent from parts group by launch, bin)
        select avg(if(sent >= {FULL_LINK} * $fabric, 1, 0)) from crossing
        where (select count(distinct node) from parts) > 1
        """,
        {"fabric": fabric},
    ).fetchall()[0]
    return None if share is None else float(share)


def _asked(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, Any]]:
    """Node -> its tasks, what it was asked to be, and what of that it was."""
    found = {}
    for (data,) in connection.execute("select data from events where kind = 'node_ready' order by t").fetchall():
        event = json.loads(data)
        asked = {"asked": event.get("asked", {}), "limits": limits_of(event)}
        found[event["node"]] = {"tasks": event.get("tasks", []), **asked}
    return found


def limits_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """The limits that a node had (an event `node_ready`, or one of a summary's `nodes`). Not all that is asked can be
    had everywhere; records from before this was told: what was asked."""
    return node.get("limits", node.get("asked")) or {}


def warnings(connection: duckdb.DuckDBPyConnection, choices: list[dict[str, Any]]) -> list[str]:
    """What was asked of the site and not got, who failed in a run that did not, and who stood still."""
    from headway.units import format_rate, format_seconds

    found = [f"{each['path']}: {reason}" for each in choices if (reason := _warned(str(each["reason"])))]
    for (data,) in connection.execute(
        "select data from events where kind in ('network_measured', 'not_limited', 'failure_ignored') order by t"
    ).fetchall():
        event = json.loads(data)
        if event["kind"] == "not_limited":
            found += [f"node {event['node']}: {problem}" for problem in event["problems"]]
        elif event["kind"] == "failure_ignored":
            found.append(f"{event['task']} failed: {event['reason']}; {event['why']}")
        elif not event["ok"]:
            say = format_seconds if event["what"] == "round_trip" else format_rate
            where = " to ".join(event[key] for key in ("node", "to") if key in event)
            what = event["what"].replace("_", " ")
            found.append(f"{what} {where}".rstrip() + f": asked {say(event['asked'])}, got {say(event['got'])}")
    for (data,) in connection.execute("select data from events where kind = 'clock_jumped' order by t").fetchall():
        found.append(jump_in_words(json.loads(data)))
    for (task,) in connection.execute(
        "select distinct task from events where kind = 'ready' and data->>'$.native_precision' = 'false' order by task"
    ).fetchall():
        found.append(f"{task} has no arithmetic for workload.precision: it is slower than float32 there")
    return found + standstills.warnings(connection)


def jump_in_words(event: Mapping[str, Any]) -> str:
    """Of an event `clock_jumped`."""
    from headway.units import format_seconds

    seconds = float(event["seconds"])
    size = format_seconds(abs(seconds))
    if event["between_launches"]:
        return f"the machine's clock is {size} behind the end of the last launch: times in the record go on from there"
    way = "forward" if seconds > 0 else "back"
    return f"the machine's clock was set {way} by {size}: times in the record do not follow it"


def _warned(reason: str) -> str | None:
    return reason.removeprefix("WARNING: ") if reason.startswith("WARNING: ") else None


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, Any]]:
    cursor = connection.execute(sql)
    columns = [column[0] for column in cursor.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
