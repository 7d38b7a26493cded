"""Runs the evaluations' experiments (examples/e1-*.yaml ... e5-*.yaml) and writes what came out: the raw figures of
every run to benchmarks/results/evaluations.jsonl, and docs/evaluations.md from them.

    benchmarks/evaluations.py                      every sweep, one after the other (hours; as root, for emulated hosts)
    benchmarks/evaluations.py e3-softmax e3-batch  these
    benchmarks/evaluations.py --collect            run nothing: take what sweeps have left in runs/sweeps
    benchmarks/evaluations.py --page               only write the page anew

A sweep that was broken off goes on where it was (headway bench --resume), unless its example was changed since.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from evaluations_page import page

from headway.bench.facts import NOT_KNOWN, commits_of
from headway.bench.folder import SweepFolder, Trial
from headway.errors import HeadwayError
from headway.record.folder import default_root
from headway.record.run import Run
from headway.spec.sweep import load_sweep

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "evaluations.jsonl"
PAGE = ROOT / "docs" / "evaluations.md"
JOBS = {"e1-emulated", "e4-layouts"}  # examples that are a job, not a sweep
# What a verdict, a table or somebody who reckons anew may need; a run's paths and texts are nobody's business.
LEFT_OUT = {"path", "staleness", "servers", "warnings", "reported", "command", "created", "reason"}


def sweeps() -> list[str]:
    return sorted(path.stem for path in (ROOT / "examples").glob("e[1-5]-*.yaml") if path.stem not in JOBS)


def example_of(name: str) -> Path:
    return ROOT / "examples" / f"{name}.yaml"


def asked(sweep: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """What an experiment is, in its local form: neither what `--full` would change, nor what stands beside it."""
    local = {key: value for key, value in sweep.items() if key not in ("name", "full", "published")}
    return {"sweep": local, "job": job}


def asked_by(example: Path) -> dict[str, Any]:
    now = load_sweep(example)
    found = asked(now.sweep.model_dump(mode="json", exclude_unset=True), now.job)
    return dict(json.loads(json.dumps(found)))  # as it is in a file


def newest(example: Path, root: Path | None = None) -> SweepFolder | None:
    """Of the sweeps of an example as it is now the one that was begun last. One that cannot be read is nobody's."""
    found, wanted = None, asked_by(example)
    for folder in SweepFolder.all(root or default_root()):  # oldest first
        try:
            is_it = folder.spec.name == example.stem and not folder.facts["full"] and folder.parallel == 1
            if is_it and asked(folder.facts["sweep"], folder.facts["job"]) == wanted and folder.trials():
                found = folder
        except (HeadwayError, KeyError) as error:
            print(f"left aside: {folder.name}: {error}", file=sys.stderr)
    return found


def run(name: str) -> int:
    """Begun anew, or gone on with."""
    folder = newest(example_of(name))
    goes_on = folder is not None and not folder.is_finished
    what = ["--resume", folder.name] if folder is not None and goes_on else [f"examples/{name}.yaml"]
    print(f"\n== {name}", flush=True)
    return subprocess.run([sys.executable, "-m", "headway", "bench", *what], cwd=ROOT, check=False).returncode


def line_of(trial: Trial) -> dict[str, Any]:
    counted = [each for each in trial.runs if each.counts and each.figures]
    return {
        "name": trial.name,
        "settings": trial.settings,
        "tasks": trial.tasks,
        "baseline": trial.is_baseline,
        "data": trial.data,
        "state": trial.state,
        "reason": trial.reason,
        "marks": sorted({mark for each in counted for mark in each.marks}),
        "figures": [
            {key: value for key, value in (each.figures or {}).items() if key not in LEFT_OUT} for each in counted
        ],
    }


def collected(folder: SweepFolder) -> dict[str, Any]:
    trials = folder.trials()
    runs = [each for trial in trials for each in trial.runs]
    environment = next((Run(each.folder).environment for each in runs if each.figures), {})
    day = time.strftime("%Y-%m-%d", time.gmtime(folder.created))
    commits = commits_of(Run(each.folder) for each in runs if each.counts and each.figures)
    return {
        "sweep": folder.spec.name,
        "asked": asked(folder.facts["sweep"], folder.facts["job"]),
        "day": day,
        "machine": f"{environment.get('cpu', '?')}, {environment.get('cores', '?')} cores",
        "commit": ", ".join(each for each in commits if each != NOT_KNOWN) or None,
        "finished": folder.is_finished,
        "minutes": round(sum(each.seconds or 0.0 for each in runs) / 60, 1),
        "trials": [line_of(trial) for trial in trials],
    }


def read_results() -> dict[str, dict[str, Any]]:
    """Those of examples as they are now."""
    if not RESULTS.exists():
        return {}
    lines = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    return {line["sweep"]: line for line in lines if line.get("asked") == asked_by(example_of(line["sweep"]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="*", help="names of examples; all of them where none is given")
    parser.add_argument("--collect", action="store_true", help="run nothing, take what is there")
    parser.add_argument("--page", action="store_true", help="only write the page anew")
    options = parser.parse_args()
    known = sweeps()
    if wrong := sorted(set(options.sweeps) - set(known)):
        sys.exit(f"no such sweep: {', '.join(wrong)}. Known: {', '.join(known)}")
    results = read_results()
    failed = []
    for name in [] if options.page else options.sweeps or known:
        if not options.collect and run(name) != 0:
            failed.append(name)  # what it measured counts, and the others go on
        folder = newest(example_of(name))
        line = collected(folder) if folder is not None else None
        if line and any(trial["figures"] for trial in line["trials"]):
            results[name] = line
            text = "".join(json.dumps(results[each], default=str) + "\n" for each in sorted(results))
            RESULTS.parent.mkdir(exist_ok=True)
            temporary = RESULTS.with_suffix(".tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(RESULTS)
    PAGE.write_text(page(list(results.values())), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}: {len(results)} of {len(known)} sweeps measured")
    if failed:
        sys.exit(f"not ended in order: {', '.join(failed)}")


if __name__ == "__main__":
    main()
