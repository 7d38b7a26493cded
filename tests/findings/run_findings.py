"""Provoke every condition on emulated hosts, ask every rule, and write docs/findings.md. Needs root.

  python tests/findings/run_findings.py                  every cell that is not known yet (about an hour in all)
  python tests/findings/run_findings.py --list           the cells, and what is known of them
  python tests/findings/run_findings.py --cell NAME      these cells, anew; a condition's name: all of its cells
  python tests/findings/run_findings.py --anew           forget everything first
  python tests/findings/run_findings.py --again          run nothing: ask the rules again about the kept run folders
  python tests/findings/run_findings.py --report         run nothing, write the page again

Results are JSON lines in benchmarks/results/findings.jsonl, the last one of a cell counts, and only for the job that it
was made with: a broken-off matrix goes on where it was. Run folders are kept in --runs, without checkpoints, so that
rules can be tried on them. Exit code 0: every condition was found, every other finding is explained, and healthy runs
have no trouble.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "real")]

from conditions import CELLS, Cell  # noqa: E402
from findings_page import Result, page, problems_of, read_results, rules_of  # noqa: E402

from headway.findings import Finding, explain_loss, findings  # noqa: E402
from headway.findings.apply import of_trials  # noqa: E402
from headway.findings.sweeps import SweepFacts, TrialFacts, trial_facts  # noqa: E402
from headway.launch.prepare import environment  # noqa: E402
from headway.record.folder import RunFolder, default_root  # noqa: E402
from headway.record.run import Run  # noqa: E402
from headway.record.seal import result  # noqa: E402

RESULTS = HERE.parents[1] / "benchmarks" / "results" / "findings.jsonl"
PAGE = HERE.parents[1] / "docs" / "findings.md"
LIMIT = 240.0  # seconds for one run
NUM_PHOTOS, PHOTO_SIDE = 160, 800


# --- one run -------------------------------------------------------------------------------------------------
def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextlib.contextmanager
def burning(count: int, runs: Path) -> Iterator[None]:
    """Other processes that compute from when training has begun: what starts a run has limits of its own."""
    workers = [multiprocessing.Process(target=burn, args=(LIMIT,), daemon=True) for _ in range(count)]
    is_over = threading.Event()

    def begin() -> None:
        while not is_over.wait(0.5):
            if any(b'"kind": "step"' in path.read_bytes() for path in runs.glob("*/events/*-0.jsonl")):
                for worker in workers:
                    worker.start()
                return

    watcher = threading.Thread(target=begin, daemon=True)
    if workers:
        watcher.start()
    try:
        yield
    finally:
        is_over.set()
        if workers:
            watcher.join()
        for worker in workers:
            if worker.pid is not None:
                worker.kill()


def photographs(folder: Path) -> Path:
    """Noise in colour: it cannot be packed, so its bytes must be read. Not in memory afterwards."""
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        random = np.random.default_rng(1)
        for number in range(NUM_PHOTOS):
            place = folder / "photos" / f"class{number % 2}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}.png").write_bytes(_png(random.integers(0, 256, (PHOTO_SIDE, PHOTO_SIDE, 3), np.uint8)))
        (folder / "done").touch()
    os.sync()
    for path in (folder / "photos").rglob("*.png"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return folder / "photos"


def _png(image: np.ndarray[Any, Any]) -> bytes:
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = image.shape
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def run_cell(cell: Cell, root: Path) -> tuple[Run | None, str | None]:
    """The run, and why it is not what was wanted."""
    place = root / cell.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    text = json.dumps(cell.job).replace("{here}", str(HERE))
    if cell.photos:
        text = text.replace("{photos}", str(photographs(root / "photographs")))
    (place / "job.yaml").write_text(text)
    command = [sys.executable, "-m", "headway", "run", str(place / "job.yaml")]
    env = {**os.environ, "HEADWAY_RUNS": str(place / "runs")}
    with (place / "out").open("w") as out, burning(cell.burners, place / "runs"):
        try:
            ended = subprocess.run(command, env=env, stdout=out, stderr=out, timeout=LIMIT, check=False).returncode
        except subprocess.TimeoutExpired:
            return None, f"not done within {LIMIT:g} s"
    folders = RunFolder.all(place / "runs")
    if not folders:
        return None, (place / "out").read_text()[-300:]
    for name in ("checkpoints", "tensorboard", "model"):
        shutil.rmtree(folders[0].path / name, ignore_errors=True)
    if bool(ended) != cell.fails:
        return Run(folders[0]), f"ended with exit code {ended}: {(place / 'out').read_text()[-300:]}"
    return Run(folders[0]), None


def of_sweep(cell: Cell, known: dict[str, Result]) -> list[Finding] | None:
    """The sweep that these runs would make; None: they are not all known."""
    if any(name not in known or not known[name].trial for name in cell.trials):
        return None
    trials = []
    for number, name in enumerate(cell.trials):
        fields = {**(known[name].trial or {}), "is_baseline": cell.settings != "cluster.ps" and number == 0}
        fields["samples"] = tuple(fields["samples"])
        fields["is_explained"] = explain_loss((one["rule"], one["trouble"]) for one in known[name].found)
        if cell.settings:
            fields["settings"] = {cell.settings: fields["num_ps" if cell.settings == "cluster.ps" else "tasks"]}
        trials.append(TrialFacts(**fields))
    return of_trials(SweepFacts(cell.name, tuple(trials)))


# --- all of them ---------------------------------------------------------------------------------------------
class Matrix:
    def __init__(self, runs: Path) -> None:
        self.runs = runs
        self.made = {key: value for key, value in _machine().items() if key in ("date", "commit")}
        lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
        self.known, self.machine = read_results(lines)

    def add(self, cell: Cell, seen: Result) -> None:
        self._write({"cell": cell.name, "job": cell.job, **dataclasses.asdict(seen)})

    def _write(self, row: dict[str, Any]) -> None:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(row)
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        known, machine = read_results([line])
        self.known |= known
        self.machine = machine or self.machine

    def tidy(self) -> None:
        """The last result of each cell, and nothing else."""
        rows: list[dict[str, Any]] = [{"machine": self.machine}]
        for cell in CELLS:
            if cell.name in self.known:
                rows.append({"cell": cell.name, "job": cell.job, **dataclasses.asdict(self.known[cell.name])})
        RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def run(self, cells: list[Cell]) -> None:
        if _machine() != self.machine:
            self._write({"machine": _machine()})
        for number, cell in enumerate(cells, start=1):
            if cell.trials:
                continue
            load, began = os.getloadavg()[0], time.monotonic()
            print(f"{number}/{len(cells)} {cell.name}: {cell.what} ...", end=" ", flush=True)
            run, broke = run_cell(cell, self.runs)
            self.ask(cell, run, broke, load, time.monotonic() - began)

    def ask(self, cell: Cell, run: Run | None, broke: str | None, load: float, seconds: float) -> None:
        found = [dataclasses.asdict(one) for one in findings(run)] if run is not None else []
        trial = None
        if run is not None and not cell.fails:
            trial = dataclasses.asdict(trial_facts(cell.name, [result(run)]))  # what a sweep would know of it
        seen = Result(found, trial, broke, round(load, 2), round(seconds, 1), **self.made)
        self.add(cell, seen)
        bad = problems_of(cell, seen)
        said = ", ".join(f"{'!' if one['trouble'] else ''}{one['rule']}({one['certainty'][0]})" for one in found)
        print(f"{seconds:.0f} s: {'FAILED' if bad else 'ok'} [{said}]", flush=True)
        for problem in bad:
            print(f"    {problem}", flush=True)

    def ask_sweeps(self, cells: list[Cell]) -> None:
        for cell in cells:
            if cell.trials and (found := of_sweep(cell, self.known)) is not None:
                seen = Result([dataclasses.asdict(one) for one in found], **self.made)
                self.add(cell, seen)
                print(f"{cell.name}: {problems_of(cell, seen) or 'ok'} {rules_of(seen)}", flush=True)

    def ask_again(self, cells: list[Cell]) -> None:
        for cell in cells:
            folders = RunFolder.all(self.runs / cell.name / "runs") if cell.job else []
            before = self.known.get(cell.name)
            if folders and before:
                print(cell.name, end=" ")
                self.made = {"date": before.date, "commit": before.commit}
                self.ask(cell, Run(folders[0]), before.broke, before.load, before.seconds)
        self.ask_sweeps(cells)


def _machine() -> dict[str, Any]:
    """What the page says of where it was run; no names of machines or folders."""
    known = environment()
    commit = known["commit"] or {"hash": "unknown", "has_changes": False}
    changes = " with changes" if commit["has_changes"] else ""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": known["cores"],
        "cpu": known["cpu"],
        "python": known["python"],
        "commit": commit["hash"][:12] + changes,
    }


def rounds(cells: list[Cell]) -> list[Cell]:
    """What is to be run: the first variant of everything, then what was kept out, then the rest, so that a matrix
    that is broken off has seen every condition."""

    def number(cell: Cell) -> int:
        return int(cell.variant) // 4 if cell.variant.isdigit() else "acbdefgs".index(cell.variant[0])

    return sorted((cell for cell in cells if cell.job), key=number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cell", action="append", default=[], metavar="NAME", help="a cell or a condition; repeatable")
    for name in ("list", "anew", "again", "report"):
        add(f"--{name}", action="store_true")
    add("--most", type=int, metavar="N", help="run at most this many cells")
    add("--runs", type=Path, default=default_root() / "findings", help="where run folders go [%(default)s]")
    asked = parser.parse_args()
    matrix = Matrix(asked.runs.absolute())
    cells = [cell for cell in CELLS if not asked.cell or {cell.name, cell.condition} & {*asked.cell}]
    if not cells:
        sys.exit(f"no such cell: {', '.join(asked.cell)}")
    if asked.list:
        for cell in cells:
            seen = matrix.known.get(cell.name)
            state = "not run" if seen is None else "; ".join(problems_of(cell, seen)) or "ok"
            print(f"{cell.name:24}{state}  {cell.what}")
        return 0
    if asked.again:
        matrix.ask_again(cells)
    elif not asked.report:
        if os.geteuid() != 0:
            sys.exit("conditions need limits of CPU and memory: run this as root")
        if asked.anew:
            RESULTS.unlink(missing_ok=True)
            matrix = Matrix(asked.runs.absolute())
        unknown = [cell for cell in cells if asked.cell or cell.name not in matrix.known]
        matrix.run(rounds(unknown)[: asked.most])
        matrix.ask_sweeps([cell for cell in cells if cell.trials])
    matrix.tidy()
    PAGE.write_text(page(matrix.known, matrix.machine), encoding="utf-8")
    bad = [cell.name for cell in cells if cell.name not in matrix.known or problems_of(cell, matrix.known[cell.name])]
    print(f"{len(cells) - len(bad)} of {len(cells)} cells as expected" + (f"; not: {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
