"""Others used the machine meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.facts import Array, Facts, median, weighted_mean
from headway.findings.words import cpus, percent
from headway.plural import counted

OTHERS = 0.25  # of the machine's cores
EMULATION = 0.15  # of the cores: agents, queues and the kernel's own work for emulated networks
FULL_TIME = 0.3  # of the time the machine has nothing left
IDLE = 0.1  # of the cores: less is nothing
STEAL = 0.05  # of the cores


def taken(facts: Facts) -> tuple[Array, Array, Array] | None:
    """(seconds, CPUs of all processes, CPUs of other processes than the run's), for each sample; None: not recorded."""
    whole = "cpus" if facts.site == "local" else "machine_cpus"  # a local node is the machine, in old records, too
    nodes = [node for node in facts.nodes if len(node.t) > 1 and np.any(~np.isnan(node.get(whole)))]
    if not nodes:
        return None
    first = max(nodes, key=lambda node: len(node.t))
    ours = np.zeros(len(first.t))
    if facts.site == "local":  # the node is the machine: what its tasks use is ours
        for task in facts.tasks:
            if len(task.used("t")) > 1:
                ours += np.interp(first.t, task.used("t"), np.nan_to_num(task.used("cpus")))
    else:
        for node in nodes:
            ours += np.interp(first.t, node.t, np.nan_to_num(node.get("cpus")))
    machine = first.get(whole)
    return first.get("seconds"), machine, np.maximum(machine - ours, 0)


def look(facts: Facts) -> Iterator[Finding]:
    found = taken(facts)
    if found is None or not facts.cores:
        return
    seconds, machine, others = found
    if median(machine) > 1.1 * facts.cores:
        return  # more cores than this run may use: what others do there takes nothing from it
    allowed = OTHERS + (EMULATION if facts.site == "emulated" else 0.0)
    mean = weighted_mean(others, seconds)
    full = float(np.sum(seconds[machine >= (1 - IDLE) * facts.cores]) / np.sum(seconds))
    steal = max((node.mean("steal") for node in facts.nodes if np.any(node.get("steal") > 0)), default=0.0)
    if mean >= allowed * facts.cores and full >= FULL_TIME:
        yield RULE.finding(
            facts.job,
            "the machine",
            f"Other processes used {cpus(mean)} of the machine's {counted(facts.cores, 'core')}, "
            f"and for {percent(full)} of the "
            "time none was idle: rates are too low, and other findings about speed less sure.",
            "certain" if mean >= 2 * allowed * facts.cores else "likely",
            Evidence("CPUs of other processes", mean, "CPUs"),
            Evidence("time without an idle core", full, "share"),
        )
    if steal >= STEAL * facts.cores:
        yield RULE.finding(
            facts.job,
            "the machine",
            f"Other virtual machines took {cpus(steal)} of this machine's {counted(facts.cores, 'core')} (steal).",
            "certain",
            Evidence("steal", steal, "CPUs"),
        )


RULE = Rule(
    name="noisy_machine",
    title="Others used the machine meanwhile",
    means="What was measured beside other work is not what the cluster can do. Nothing is then certain, and other "
    "findings about speed are at best possible.",
    threshold=f"Other processes use {percent(OTHERS)} of the cores or more on average ({percent(EMULATION)} more are "
    f"allowed to the emulation of hosts) and the machine has no idle core in {percent(FULL_TIME)} of the time or more; "
    f"or another virtual machine takes {percent(STEAL)} of them.",
    advice=(
        Advice("measure again when the machine is idle (headway doctor shows its load)"),
        Advice("measure on machines of your own"),
    ),
    needs="Samples of the whole machine's CPU time (runs from before these were recorded: local sites only).",
    look=look,
    steps=0,
    is_of_speed=False,
)
