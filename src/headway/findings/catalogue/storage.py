"""Storage is, or is not, why training waits for input."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from headway.findings.advice import Advice
from headway.findings.base import Evidence, Finding, Rule
from headway.findings.catalogue.input_bound import worst
from headway.findings.facts import Facts, Node
from headway.findings.words import percent
from headway.units import format_bytes

BUSY = 0.6  # of what the disk can read, on average: sshfs and small reads leave a part of any rate unused
WAITING = 0.3  # of the time some process waits for the disk (the kernel's own measure)


def per_second(rate: float | None) -> str:
    return f"{format_bytes(rate)}/s"


def look(facts: Facts) -> Iterator[Finding]:
    found = worst(facts)
    node = facts.node_of(found[0]) if found else None
    if found is None or node is None:
        return
    task, share, _ = found
    read, waits = node.mean("disk_read"), node.mean("io_pressure")
    evidence = [Evidence("time waiting for input", share, "share", task.name)]
    evidence += [Evidence("read from disk", read, "B/s", node.name)] if not isnan(read) else []
    evidence += [Evidence("disk can read", node.disk_read, "B/s", node.name)] if node.disk_read else []
    if _is_busy(node, read, waits):
        if isnan(read):  # the kernel says that somebody waits for the disk, and nobody counts its bytes
            did = f"somebody waited for the disk of {node.name} {percent(min(1.0, waits))} of the time"
        else:
            of = f" of the {per_second(node.disk_read)} that it can" if node.disk_read else ""
            did = f"the disk of {node.name} read {per_second(read)}{of}"
        yield RULE.finding(
            facts.job,
            f"disk of {node.name}",
            f"Storage is why {task.name} waits for input: {did}, and training waited {percent(share)} of the time.",
            "certain" if node.disk_read else "likely",
            *evidence,
        )
    elif not isnan(read) and (node.disk_read or not isnan(waits)):
        of = f" of {per_second(node.disk_read)}" if node.disk_read else ""
        cpu = f"; its CPU was full {percent(node.cpu_full)} of the time" if node.cpus else ""
        yield RULE.finding(
            facts.job,
            f"disk of {node.name}",
            f"Storage is not why {task.name} waits for input: the disk of {node.name} read only {per_second(read)}{of}"
            f"{cpu}.",
            "likely",
            *evidence,
            trouble=False,
            title="Storage is not why training waits for input",
            advice=FASTER_INPUT,
        )


def _is_busy(node: Node, read: float, waits: float) -> bool:
    if node.disk_read:
        return read >= BUSY * node.disk_read
    return waits >= WAITING


FASTER_INPUT = (
    Advice("convert the data to smaller records (headway data convert)", "workload.dataset"),
    Advice("give the task more CPUs (site.nodes)", "site.nodes"),
    Advice("decode and augment less: a faster disk would not help"),
)
RULE = Rule(
    name="storage",
    title="Storage is why training waits for input",
    means="Where training waits for input, either the disk cannot read faster, or what comes after it (decoding) "
    "cannot keep up. E5 had to rule its file system out by hand.",
    threshold=f"Only where training waits for input. The disk reads {percent(BUSY)} of what it can, or more, on "
    f"average; where that is not known, some process waits for it in {percent(WAITING)} of the time. Else it is said "
    "that storage is not the cause.",
    advice=(
        Advice("use a faster disk, or one for each node (site.nodes.ROLE.disk)", "site.nodes"),
        Advice("convert the data to smaller records (headway data convert)", "workload.dataset"),
        Advice("keep the data in memory where they fit: they are then read once"),
    ),
    needs="A wait for input; how fast the node's disk is (site.nodes.ROLE.disk), or the kernel's pressure figures.",
    look=look,
)
