"""How long a report takes, and how long a sealed run takes to open; and how both grow.

Runs are made up (made_runs.py): 10 nodes sampled five times a second, 10,000 steps, of different strategies, with
whatever a monitor can count. Each report is made by the command itself, in a process of its own; its peak memory is
that of all its processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from made_runs import Made, clone, make_run

from headway.launch.prepare import environment
from headway.record.folder import RunFolder

RESULTS = Path(__file__).parent / "results"

WANTED_SECONDS, WANTED_BYTES, WANTED_SIZE, WANTED_OPENING = 20.0, 2 * 2**30, 10e6, 0.2
UPDATES_PER_S = 20  # at most: with 10,000 of them the nodes are watched for more than eight minutes
OPEN = """
import sys, time
import headway, duckdb, numpy  # what is loaded once is not what opening costs
from headway.record.seal import result
began = time.perf_counter()
run = headway.load(sys.argv[1])
figures = result(run)
assert figures["steps"], run.state
run.rows("evaluations")
print(time.perf_counter() - began)
"""


def make_runs(root: Path, count: int, steps: int, nodes: int) -> list[RunFolder]:
    """As many sealed runs of so many steps and nodes. Those of different kinds are really made; the others are copies
    of them under other names. Where every task makes a step for each update, a run has that many times as many rows."""
    servers = max(1, nodes // 5)
    workers = nodes - servers
    kinds = [
        Made("joint", "ps-sync", workers, servers, rate=UPDATES_PER_S),
        Made("reduced", "allreduce", nodes, 0, rate=UPDATES_PER_S),
        Made("apart", "ps-async", workers, servers, rate=UPDATES_PER_S / workers),
        Made("slower", "ps-async", workers, servers, rate=UPDATES_PER_S / workers, slows_down=True, restarts=True),
    ]
    folders = [
        make_run(root, replace(made, steps=steps, seed=seed, has_all_series=True))
        for seed, made in enumerate(kinds[:count])
    ]
    for number in range(len(folders), count):
        folders.append(clone(folders[number % len(kinds)], f"copy-{number}"))
    return folders


def measure_report(folders: list[RunFolder], output: Path) -> tuple[float, float, int]:
    """(seconds, CPU seconds, bytes of memory at the peak)."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "headway", "report", *(str(one.path) for one in folders), "-o", str(output)]
    peak, used = 0, {}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        whole = psutil.Process(process.pid)
        while process.poll() is None:
            now = 0
            for one in [whole, *_children(whole)]:
                try:
                    with one.oneshot():
                        now += one.memory_full_info().pss
                        used[one.pid] = sum(one.cpu_times()[:2])
                except psutil.Error:
                    continue
            peak = max(peak, now)
            time.sleep(0.1)
    assert process.returncode == 0
    return time.perf_counter() - began, sum(used.values()), peak


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def measure_opening(folder: RunFolder, repeats: int = 5) -> list[float]:
    command = [sys.executable, "-c", OPEN, str(folder.path)]
    return [
        round(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout), 4)
        for _ in range(repeats)
    ]


def measure_reports(folders: list[RunFolder], counts: list[int], repeats: int, root: Path) -> list[dict[str, Any]]:
    """A row for each report, in turns."""
    rows = []
    for repeat in range(repeats):
        for count in counts:
            output = root / "report.html"
            seconds, used, peak = measure_report(folders[:count], output)
            rows.append(
                {
                    "what": "report",
                    "repeat": repeat,
                    "runs": count,
                    "seconds": round(seconds, 2),
                    "cpu_seconds": round(used, 2),
                    "memory": peak,
                    "file": output.stat().st_size,
                    "load": round(os.getloadavg()[0], 2),
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="*", default=[1, 10, 30, 100])
    parser.add_argument("--steps", type=int, nargs="*", default=[1_000, 10_000, 40_000])
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3, help="reports of each size, in turns; medians are shown")
    parser.add_argument("--keep", type=Path, help="keep the largest report here")
    arguments = parser.parse_args()
    here = environment()
    commit = here["commit"] or {"hash": "unknown", "has_changes": False}
    rows: list[dict[str, Any]] = [
        {"what": "machine", "cpu": here["cpu"], "cores": here["cores"], "python": here["python"], "commit": commit}
    ]
    missed = []
    with tempfile.TemporaryDirectory(prefix="hw-report-") as scratch:
        root = Path(scratch)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
        folders = make_runs(root / "runs", max(arguments.runs), 10_000, arguments.nodes)
        rows += measure_reports(folders, arguments.runs, arguments.repeats, root)
        print(f"Runs of 10,000 steps, {arguments.nodes} nodes at 5 Hz; medians of {arguments.repeats}")
        print(f"{'runs':>6} {'seconds':>8} {'CPU s':>7} {'memory':>9} {'file':>8}")
        for count in arguments.runs:
            mine = [row for row in rows if row.get("runs") == count]
            seconds, used, peak, size = (
                statistics.median(row[name] for row in mine) for name in ("seconds", "cpu_seconds", "memory", "file")
            )
            print(f"{count:>6} {seconds:>8.1f} {used:>7.1f} {peak / 2**20:>5.0f} MiB {size / 1e6:>5.1f} MB", flush=True)
            if seconds > WANTED_SECONDS or peak > WANTED_BYTES or size > WANTED_SIZE:
                missed.append(f"{count} runs")
        if arguments.keep:
            shutil.copy(root / "report.html", arguments.keep)
        shutil.rmtree(root / "runs")
        print(f"{'steps':>6} {'opening':>8}")
        for steps in arguments.steps:
            (folder,) = make_runs(root / f"runs-{steps}", 1, steps, arguments.nodes)
            taken = measure_opening(folder)
            rows.append({"what": "opening", "steps": steps, "seconds": taken})
            print(f"{steps:>6} {statistics.median(taken):>6.3f} s", flush=True)
            if statistics.median(taken) > WANTED_OPENING:
                missed.append(f"opening a run of {steps} steps")
    path = RESULTS / f"report-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(f"wrote {path.relative_to(RESULTS.parents[1])}")
    print("missed: " + ", ".join(missed) if missed else "as wanted")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
