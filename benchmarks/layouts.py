"""Who is idle, who is undersized, what crosses the network: E1's three steps of tuning and E4's three layouts, on
emulated hosts, read off Headway's own record.

  benchmarks/layouts.py                 both, 2 rounds, about 15 minutes on two idle cores
  benchmarks/layouts.py --only e1 --rounds 1

E1: a master that trains, a server and two workers of 1 vCPU; a vCPU is 0.25 CPUs here. First the master and the server
have 2 vCPUs, then 1, then the master 2 and the server 1. E4: one or two servers, beside workers or apart from them.
Raw results go to benchmarks/results/layouts-*.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from pathlib import Path
from typing import Any

from trainings import figures_of

HERE = Path(__file__).parent
VCPU = 0.25
LINK = {"memory": "2GiB", "rate": "1Gbit", "latency": "0.5ms"}
NODE = ("node", "tasks", "cpus", "throttled", "received", "sent", "loopback_received", "loopback_sent", "memory_peak")


def e1(master: int, server: int) -> dict[str, Any]:
    vcpus = {"chief": master, "ps": server, "worker": 1}
    return {"layout": "M-PS-W-W", "nodes": {role: {**LINK, "cpus": n * VCPU} for role, n in vcpus.items()}}


def e4(layout: str) -> dict[str, Any]:
    return {"layout": layout, "nodes": {"ps": {**LINK, "cpus": 0.3}, "worker": {**LINK, "cpus": 0.6}}}


CASES = {
    "e1": {
        "1. master 2 vCPUs, server 2": e1(2, 2),
        "2. master 1 vCPU, server 1": e1(1, 1),
        "3. master 2 vCPUs, server 1": e1(2, 1),
    },
    "e4": {layout: e4(layout) for layout in ("PW-W", "PW-PW", "PS-W-W")},
}


def train(case: dict[str, Any], steps: int) -> dict[str, Any]:
    job = {
        "name": "layouts",
        "workload": {
            "model": "mnist_cnn",
            "dataset": "mnist",
            "batch_size": 100,
            "optimizer": {"name": "adagrad", "learning_rate": 0.01},
            "stop": {"steps": steps},
        },
        "strategy": "ps-async",
        "site": {"kind": "emulated", "nodes": case["nodes"]},
        "layout": case["layout"],
        "checkpoint": {"seconds": 86_400},
        "export": False,
        "measure": {"warmup": 3},
    }
    figures = figures_of(job)
    nodes = [
        {**{name: node[name] for name in NODE}, "asked": node["asked"]["cpus"], "full": node["full"]}
        for node in figures["nodes"]
    ]
    traffic = {
        task["task"]: {name: value for name, value in task.items() if name.endswith("_per_step")}
        for task in figures["task_usage"]
    }
    return {"examples_per_s": figures["examples_per_s"], "nodes": nodes, "traffic": traffic}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=120)
    asked = parser.parse_args()
    (HERE / "results").mkdir(exist_ok=True)
    out = HERE / "results" / f"layouts-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    samples: list[dict[str, Any]] = []
    studies = [asked.only] if asked.only else list(CASES)
    for turn, study in itertools.product(range(asked.rounds), studies):
        for name, case in CASES[study].items():
            sample = {"round": turn, "study": study, "case": name, **train(case, asked.steps)}
            samples.append(sample)
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(sample) + "\n")
            print(f"round {turn + 1} of {asked.rounds}, {study}, {name}: {sample['examples_per_s']:.0f} examples/s")
    for study in studies:
        print("\n" + "\n".join(table([sample for sample in samples if sample["study"] == study])))
    print(f"\nraw samples: benchmarks/results/{out.name}")


def table(samples: list[dict[str, Any]]) -> list[str]:
    """Means over the rounds: of each case its rate, of each node what it used of what it had."""
    headings = ("case", "examples/s", "node (tasks)", "CPUs used / asked", "throttled, CPUs", "external in / out, MB/s")
    rows = ["| " + " | ".join((*headings, "loopback, MB/s")) + " |", "|" + "---|" * (len(headings) + 1)]
    for name in dict.fromkeys(sample["case"] for sample in samples):
        rounds = [sample for sample in samples if sample["case"] == name]
        rate = statistics.mean(sample["examples_per_s"] for sample in rounds)
        for place, node in enumerate(rounds[0]["nodes"]):
            same = [sample["nodes"][place] for sample in rounds]
            mean = {key: statistics.mean(one[key] or 0.0 for one in same) for key in NODE[2:]}
            rows.append(
                f"| {name if not place else ''} | {f'{rate:.0f}' if not place else ''} "
                f"| {node['node']} ({', '.join(node['tasks'])}) | {mean['cpus']:.2f} / {node['asked']:g} "
                f"({mean['cpus'] / node['asked']:.0%}) | {mean['throttled']:.2f} "
                f"| {mean['received'] / 1e6:.1f} / {mean['sent'] / 1e6:.1f} | {mean['loopback_sent'] / 1e6:.1f} |"
            )
    return rows


if __name__ == "__main__":
    main()
