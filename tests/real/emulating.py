"""Emulated hosts for tests: acquired as the launcher does it, and a way to run commands on them."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from parts import need

from headway.launch.prepare import create_run, plan_run
from headway.record.folder import RunFolder
from headway.sites import Node, SitePlan
from headway.sites.emulated import EmulatedSite
from headway.sites.emulated.probe import Abilities, abilities
from headway.spec.load import parse_job

NOBODY = 65534
# Where Python lies in a folder that is closed to others (root's home), it is shown to the command without that folder.
_OPENED = """
set -e
if [ -n "$3" ]; then
    mkdir -p "$1/python"
    mount --bind "$2" "$1/python"
    mount -t tmpfs -o mode=755 none "$3"
    mkdir -p "$2"
    mount --bind "$1/python" "$2"
fi
shift 3
exec "$@"
"""


def become_nobody(folder: Path) -> list[str]:
    """What to write before a command so that a user without any rights runs it. `folder`: one of that user's."""
    closed = [parent for parent in Path(sys.base_prefix).parents if not parent.stat().st_mode & stat.S_IXOTH]
    shown = [str(folder), sys.base_prefix, str(closed[-1]) if closed else ""]
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return ["unshare", "--mount", "sh", "-c", _OPENED, "sh", *shown, *drop]


def need_emulation(*limits: str) -> None:
    able = abilities()
    need(able.problem)
    for name in limits:
        need(able.limits.get(name))


class Hosts:
    """Acquired nodes by name, what the site told, and their folder."""

    def __init__(self, emulated: EmulatedSite, plan: SitePlan, folder: RunFolder) -> None:
        self.site, self.plan, self.folder = emulated, plan, folder
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.nodes: dict[str, Node] = {}

    def measured(self, what: str) -> list[dict[str, Any]]:
        return [fields for kind, fields in self.told if kind == "network_measured" and fields["what"] == what]

    async def run(self, host: str, command: str, limit: float = 30.0) -> str:
        """What a shell command on a host prints."""
        node = self.nodes[host]
        number = len(list(self.folder.path.glob("logs/sh-*")))
        files = {key: str(self.folder.path / "logs" / f"sh-{number}.{key}") for key in ("log", "events", "alive")}
        argv = ["/bin/sh", "-c", command]
        node.send("start", task=f"worker/{number}", attempt=0, argv=argv, env={}, cores=None, files=files)
        async with asyncio.timeout(limit):
            while (message := await node.receive()) is not None:
                if message["say"] == "exited" and message["task"] == f"worker/{number}":
                    self.exited = message
                    return Path(files["log"]).read_text()
        raise AssertionError(f"{host} ended while it ran {command!r}")


@contextlib.asynccontextmanager
async def hosts(root: Path, measure: bool = True, able: Abilities | None = None, **job: Any) -> AsyncIterator[Hosts]:
    """`able`: what this machine is taken for; by default what it is."""
    asked = {"workload": {"model": "softmax", "dataset": "synthetic"}, "strategy": "ps-async", **job}
    parsed = parse_job(asked)
    emulated = EmulatedSite(able)
    plan = emulated.plan(plan_run(parsed)[0].job)
    found = Hosts(emulated, plan, create_run(parsed, root))
    if not measure:
        emulated._measure = _nothing  # type: ignore[method-assign, assignment]
    nodes = await emulated.acquire(plan, found.folder, lambda kind, fields: found.told.append((kind, fields)))
    found.nodes = {node.name: node for node in nodes}
    keeping = asyncio.get_running_loop().create_task(_keep(nodes))
    try:
        yield found
    finally:
        keeping.cancel()
        await emulated.release()


async def _nothing(_: Any) -> None:
    pass


async def _keep(nodes: list[Node]) -> None:
    while True:
        for node in nodes:
            node.send("renew")
        await asyncio.sleep(0.5)
