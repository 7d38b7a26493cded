"""The E1 CNN on emulated hosts: through Headway, and as a bare script on the same hosts, interleaved.

For 1 to 4 training tasks: a server (0.3 CPUs) and workers (0.4 CPUs each), 1 Gbit/s, 0.5 ms; asynchronous, SGD, batch
100. The bare script (benchmarks/bare/ps_async.py) is started on hosts of the same kind, by the same agents, which do
nothing else for it. Wanted: Headway's rate within 5 % of the bare one.

  benchmarks/emulated.py                      1-4 tasks, 3 rounds, about 40 minutes on two idle cores
  benchmarks/emulated.py --tasks 2 --rounds 1
  benchmarks/emulated.py --server-rate 100Mbit --server-cpus 0.5 --cpus 0.55 --tasks 1 2 3 --variants bare headway
      in_turn ahead                  a server with a slow interface, and what the options make of it

Raw samples go to benchmarks/results/emulated-*.jsonl. Ctrl-C ends everything and keeps what was measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from overhead_figures import bootstrap, progress_of, rate_of

from headway.launch.prepare import create_run, plan_run
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.record.run import Run
from headway.sites import Node, site
from headway.spec.load import parse_job
from headway.units import bytes_per_second
from headway.workloads import cache_folder

HERE = Path(__file__).parent
BATCH = 100
WARMUP = 5
PORT = 2222
WANTED = 0.95
# Ways to train: the bare script, Headway's default, and its options for slow networks.
VARIANTS: dict[str, dict[str, Any] | None] = {
    "bare": None,
    "headway": {"kind": "ps-async"},
    "in_turn": {"kind": "ps-async", "exchange": "in_turn"},
    "ahead": {"kind": "ps-async", "pull_ahead": 1},
    "both": {"kind": "ps-async", "exchange": "in_turn", "pull_ahead": 1},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tasks", type=int, nargs="+", default=[1, 2, 3, 4], help="numbers of training tasks [1 2 3 4]"
    )
    parser.add_argument("--rounds", type=int, default=3, help="each with both variants of each number [3]")
    parser.add_argument("--steps", type=int, default=40, help="of each training task [40]")
    parser.add_argument("--server-rate", default="1Gbit", help="of the server's interface [1Gbit]")
    parser.add_argument("--server-cpus", type=float, default=0.3)
    parser.add_argument("--cpus", type=float, default=0.4, help="of each worker's node [0.4]")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["bare", "headway"])
    parser.add_argument("--hertz", type=float, default=5.0, help="of Headway's monitors [5]")
    parser.add_argument("--keep", type=Path, help="keep Headway's run folders here")
    return parser.parse_args()


def job_of(asked: argparse.Namespace, tasks: int, variant: str) -> dict[str, Any]:
    machine = {"memory": "2GiB", "rate": "1Gbit", "latency": "0.5ms"}
    return {
        "name": f"e1-{tasks}-{variant}".replace("_", "-"),
        "workload": {
            "model": "mnist_cnn",
            "dataset": "mnist",
            "batch_size": BATCH,
            "optimizer": {"name": "sgd", "learning_rate": 0.01},
            "stop": {"steps_per_task": asked.steps},
        },
        "strategy": VARIANTS[variant] or "ps-async",
        "monitor": {"hertz": asked.hertz},
        "site": {
            "kind": "emulated",
            "nodes": {
                "ps": {**machine, "cpus": asked.server_cpus, "rate": asked.server_rate},
                "worker": {**machine, "cpus": asked.cpus},
            },
        },
        "layout": f"PS-W*{tasks}",
        "checkpoint": {"seconds": 86_400},
        "export": False,
        "restart": {"attempts": 0},
        "measure": {"warmup": WARMUP},
    }


def headway(job: dict[str, Any], place: Path) -> dict[str, Any]:
    file = place / "job.yaml"
    file.write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-m", "headway", "run", str(file), "--runs", str(place)]
    began = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    [folder] = [one for one in RunFolder.all(place) if one.created() >= began - 1]
    tasks = []
    firsts = []
    for path in sorted(folder.events_folder.glob("worker-*.jsonl")):
        steps = [event for event in read_events(path) if event["kind"] == "step"]
        firsts.append(steps[0]["t"] - began)
        ends, examples = [step["t"] for step in steps], [step["examples"] for step in steps]
        tasks.append(progress_of(steps[0]["t"] - steps[0]["seconds"], ends, examples, WARMUP))
    figures = Run(folder).summary()
    used = {
        node["node"]: {name: node[name] for name in ("cpus", "throttled", "received", "sent", "full")}
        for node in figures["nodes"]
    }
    return {
        "examples_per_s": rate_of(tasks),
        "first_step": min(firsts),
        "staleness": (figures["staleness"] or {}).get("mean"),
        "nodes": used,
        "nobody_full": figures["nobody_full"],
    }


def bare(job: dict[str, Any], place: Path) -> dict[str, Any]:
    return asyncio.run(_bare(job, place))


async def _bare(job: dict[str, Any], place: Path) -> dict[str, Any]:
    parsed = parse_job(job)
    _, plan = plan_run(parsed)
    folder = create_run(parsed, place)
    emulated = site("emulated")
    began = time.time()
    nodes = await emulated.acquire(plan, folder, lambda *_: None)
    keeping = asyncio.get_running_loop().create_task(_keep(nodes))
    try:
        servers = [node for node in nodes if node.name.startswith("ps")]
        workers = [node for node in nodes if node not in servers]
        command = [
            sys.executable,
            str(HERE / "bare" / "ps_async.py"),
            "--data",
            str(cache_folder().absolute() / "mnist"),
        ]
        command += ["--batch", str(BATCH), "--steps", str(job["workload"]["stop"]["steps_per_task"])]
        command += ["--warmup", str(WARMUP)]
        for option, members in (("--ps", servers), ("--workers", workers)):
            command += [option, ",".join(f"{node.planned.address}:{PORT}" for node in members)]
        for role, members in (("ps", servers), ("worker", workers)):
            for index, node in enumerate(members):
                inter_op = "2" if role == "ps" else "1"
                argv = [*command, "--role", role, "--index", str(index), "--inter-op", inter_op]
                files = {key: str(folder.path / "logs" / f"{role}-{index}.{key}") for key in ("log", "events", "alive")}
                node.send("start", task=f"{role}/{index}", attempt=0, argv=argv, env={}, cores=None, files=files)
        await asyncio.gather(*(_ended(node) for node in workers))
        logs = [folder.path / "logs" / f"worker-{index}.log" for index in range(len(workers))]
        reports = [json.loads(log.read_text().strip().splitlines()[-1]) for log in logs]
    finally:
        keeping.cancel()
        await emulated.release()
    tasks = [
        progress_of(report["training_began"], report["ends"], [BATCH] * report["steps"], WARMUP) for report in reports
    ]
    return {"examples_per_s": rate_of(tasks), "first_step": min(report["ends"][0] for report in reports) - began}


async def _ended(node: Node) -> None:
    while (message := await node.receive()) is not None:
        if message["say"] == "exited":
            if message["code"] != 0:
                raise RuntimeError(f"{message['task']} ended with {message['code']}: see its log")
            return
    raise RuntimeError(f"node {node.name} ended")


async def _keep(nodes: list[Node]) -> None:
    while True:
        for node in nodes:
            node.send("renew")
        await asyncio.sleep(0.5)


def main() -> None:
    asked = arguments()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    out = results / f"emulated-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    samples: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt), tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        place = asked.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        for turn, tasks in itertools.product(range(asked.rounds), asked.tasks):
            for variant in random.sample(asked.variants, len(asked.variants)):
                began = time.monotonic()
                figures = (bare if variant == "bare" else headway)(job_of(asked, tasks, variant), place)
                sample = {"round": turn, "tasks": tasks, "variant": variant, **figures}
                sample |= {"server_rate": asked.server_rate, "t": time.time()}
                samples.append(sample)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(sample) + "\n")
                print(
                    f"round {turn + 1} of {asked.rounds}, {tasks} tasks, {variant:11}: "
                    f"{figures['examples_per_s'] / BATCH:.2f} steps/s, first step after "
                    f"{figures['first_step']:.1f} s ({time.monotonic() - began:.0f} s)",
                    flush=True,
                )
    print("\n" + "\n".join([*table(samples), "", *link_table(samples), ""]))
    print(f"raw samples: {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")


def table(samples: list[dict[str, Any]]) -> list[str]:
    """Medians of every variant; where there is a bare script, Headway's ratio to it in the same round. Of the server's
    interface, means of what the record says of Headway's runs."""
    variants = [name for name in VARIANTS if any(sample["variant"] == name for sample in samples)]
    is_compared = {"bare", "headway"} <= set(variants)
    headings = ["training tasks", *(f"{variant}, steps/s" for variant in variants)]
    headings += ["Headway / bare (pairs of one round)", "wanted"] if is_compared else []
    rows = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for tasks in sorted({sample["tasks"] for sample in samples}):
        rates = {variant: _by_round(samples, tasks, variant) for variant in variants}
        medians = [statistics.median(found.values()) / BATCH if found else None for found in rates.values()]
        cells = [str(tasks), *("-" if median is None else f"{median:.2f}" for median in medians)]
        if is_compared:
            pairs = [rates["headway"][turn] / rate for turn, rate in rates["bare"].items() if turn in rates["headway"]]
            interval = bootstrap(pairs) if pairs else None
            reached = interval and ("reached" if interval.median >= WANTED else "missed")
            cells += [str(interval), f">= {WANTED} ({reached})"] if interval else ["-", "-"]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _by_round(samples: list[dict[str, Any]], tasks: int, variant: str) -> dict[int, float]:
    return {s["round"]: s["examples_per_s"] for s in samples if (s["tasks"], s["variant"]) == (tasks, variant)}


def link_table(samples: list[dict[str, Any]]) -> list[str]:
    """What the record says of the server's interface: the share of its rate that was used in each direction, and of the
    time in which it was full; and the share of time in which nothing was."""
    rows = [
        "| training tasks | variant | in: used, full | out: used, full | nobody at a limit | staleness, mean |",
        "|---|---|---|---|---|---|",
    ]
    for tasks, variant in sorted({(s["tasks"], s["variant"]) for s in samples if "nodes" in s}):
        mine = [s for s in samples if (s["tasks"], s["variant"]) == (tasks, variant)]
        rate = bytes_per_second(mine[0]["server_rate"])
        used = {way: statistics.mean(s["nodes"]["ps0"][way] / rate for s in mine) for way in ("received", "sent")}
        full = {way: statistics.mean(s["nodes"]["ps0"]["full"][way] for s in mine) for way in ("inwards", "outwards")}
        rows.append(
            f"| {tasks} | {variant} | {used['received']:.0%}, {full['inwards']:.0%} "
            f"| {used['sent']:.0%}, {full['outwards']:.0%} "
            f"| {statistics.mean(s['nobody_full'] for s in mine):.0%} "
            f"| {statistics.mean(s['staleness'] for s in mine):.2f} |"
        )
    return rows


if __name__ == "__main__":
    main()
