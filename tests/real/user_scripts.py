"""The scripts of tests/scripts, which know nothing of Headway: what each is started as, and how one does that by hand.

By hand means: in a private network that has nothing but loopback, as local tasks of Headway have it (TensorFlow's ports
have no authentication), every process with the flags and the environment that its script reads, and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from parts import need

from headway.errors import SiteError
from headway.launch.environments import python_of
from headway.sites.isolation import choose, why_no_private_network

FOLDER = Path(__file__).parents[1] / "scripts"
FIRST_PORT = 23400  # all ports are free in a new network


@dataclass(frozen=True)
class Script:
    """How a script is started."""

    file: str
    roles: dict[str, int]
    """How many of each, in the order of their ranks."""
    reads: Literal["flags", "TF_CONFIG", "rank"]
    """How it learns of the cluster."""
    arguments: str = ""
    """May have {job_name} {task_index} {ps_hosts} {worker_hosts} of its task, and {folder} for its files."""
    servers: tuple[str, ...] = ()
    """Roles that never end by themselves."""
    requirements: str | None = None
    """File with the packages that it needs; without one it runs where Headway does."""

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def python(self) -> Path:
        if self.requirements is None:
            return Path(sys.executable)
        try:
            return python_of(FOLDER / self.requirements)
        except SiteError as error:
            need(str(error))
            raise


_E2 = "--job_name {job_name} --task_index {task_index} --ps_hosts {ps_hosts} --worker_hosts {worker_hosts}"
BETWEEN_GRAPH = Script(
    "between_graph.py", {"ps": 1, "worker": 2}, "flags", f"{_E2} --checkpoint_dir {{folder}}/checkpoints", ("ps",)
)
MIRRORED = Script("mirrored.py", {"worker": 2}, "TF_CONFIG", "--logdir {folder}/logs")
PARAMETER_SERVER = Script("parameter_server.py", {"chief": 1, "worker": 2, "ps": 2}, "TF_CONFIG", "", ("worker", "ps"))
DDP = Script("ddp.py", {"worker": 2}, "rank", "--save {folder}/model.pt", (), "torch.txt")
ESTIMATOR = Script(
    "estimator.py",
    {"chief": 1, "worker": 1, "ps": 1, "evaluator": 1},
    "TF_CONFIG",
    "--model_dir {folder}/model",
    ("ps",),
    "tensorflow-2.15.txt",
)
KERAS_FIT = Script("keras_fit.py", {"worker": 2}, "TF_CONFIG")
BENCHMARK_LINES = Script("benchmark_lines.py", {"ps": 1, "worker": 2}, "flags", _E2, ("ps",))
ALL = (BETWEEN_GRAPH, MIRRORED, PARAMETER_SERVER, DDP, ESTIMATOR, KERAS_FIT, BENCHMARK_LINES)


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    code: int | None
    """None: it went on, and was ended."""
    output: str

    def numbers(self, pattern: str) -> list[float]:
        """What the group of a pattern matches, line for line."""
        return [float(found) for found in re.findall(pattern, self.output, flags=re.MULTILINE)]


def run_by_hand(script: Script, folder: Path, limit: float = 150.0) -> dict[str, Ended]:
    """Every process of a script by its name (`worker/0`), when all that end by themselves have ended, or one has
    failed."""
    isolation = choose(private_network=True)
    need(None if isolation.private_network else f"a private network ({why_no_private_network()})")
    tasks = [(role, index) for role, count in script.roles.items() for index in range(count)]
    addresses = {task: f"127.0.0.1:{FIRST_PORT + number}" for number, task in enumerate(tasks)}
    hosts = {role: [addresses[task] for task in tasks if task[0] == role] for role in script.roles}
    python = str(script.python())
    processes = []
    for rank, (role, index) in enumerate(tasks):
        arguments = script.arguments.format(
            job_name=role,
            task_index=index,
            ps_hosts=",".join(hosts.get("ps", [])),
            worker_hosts=",".join(hosts.get("worker", [])),
            folder=folder,
        )
        environment = {}
        if script.reads == "TF_CONFIG":
            # An evaluator belongs to no cluster: it only reads what the others write.
            cluster = {name: addresses for name, addresses in hosts.items() if name != "evaluator"}
            environment["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": role, "index": index}})
        elif script.reads == "rank":
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(FIRST_PORT)}
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(len(tasks)), "LOCAL_RANK": str(rank)}
        processes.append(
            {
                "name": f"{role}/{index}",
                "argv": [python, str(script.path), *shlex.split(arguments)],
                "env": environment,
                "is_server": role in script.servers,
                "log": str(folder / f"{role}-{index}.log"),
            }
        )
    done = subprocess.run(
        [*isolation.command, sys.executable, str(Path(__file__).with_name("private_network.py"))],
        input=json.dumps({"folder": str(folder), "limit": limit, "processes": processes}),
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        timeout=limit + 60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    return {
        str(process["name"]): Ended(codes[process["name"]], Path(str(process["log"])).read_text(errors="replace"))
        for process in processes
    }
