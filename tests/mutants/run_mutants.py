"""Try the unit tests of the pure cores with mutants, and write docs/mutants.md.

  python tests/mutants/run_mutants.py                    40 mutants of each core: minutes on two cores
  python tests/mutants/run_mutants.py launch/watch.py    of one core; more may be named
  python tests/mutants/run_mutants.py --all              every mutant, not a sample (most of an hour)

A mutant is a core with one small change (mutate.py). It is caught if one of the core's own tests (cores.py) fails, or
hangs. Each runs in a child of this process, which has imported what takes long, and none of Headway. Those that
survive and change nothing that anybody can see are listed in equivalent.yaml, with the reason, and are not counted.
Exit code 1: less than 92 % of a core's mutants were caught. The page shows the last sample that was tried of each core.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType

# What tests need and is slow to import; a child then has it at once.
import asyncio  # noqa: F401  isort:skip
import duckdb  # noqa: F401  isort:skip
import numpy as np  # noqa: F401  isort:skip
import psutil  # noqa: F401  isort:skip
import pydantic  # noqa: F401  isort:skip
import pytest  # isort:skip
import rich.console  # noqa: F401  isort:skip
import scipy.stats  # noqa: F401  isort:skip
import typer  # noqa: F401  isort:skip

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cores import CORES, ROOT, SOURCES, equivalents, module_of, tests_of  # noqa: E402
from mutants_page import LEAST, Tally, as_table, page, read, stored  # noqa: E402
from mutate import Mutation, mutated, mutations, sample  # noqa: E402

PAGE = ROOT / "docs" / "mutants.md"
RESULTS = HERE / "results.json"
MOST = 40  # mutants of a core, unless asked otherwise
MEMORY = 6 * 2**30  # bytes: a loop that never ends must not fill the machine
SLOWER = 5  # times as long as the unchanged core's tests took: then it hangs
LEAST_LIMIT = 20.0  # seconds, whatever these took


class _Changed(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(ast.fix_missing_locations(self._tree), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Gives the changed tree to whoever imports the core."""

    def __init__(self, name: str, path: Path, tree: ast.Module) -> None:
        self._name, self._path, self._tree = name, path, tree

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Changed(fullname, str(self._path), self._tree)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


@dataclass
class _Trial:
    core: str
    mutation: Mutation | None
    """None: the core as it is."""
    limit: float
    pid: int = 0
    began: float = 0.0
    seconds: float = 0.0
    scratch: Path = field(default_factory=Path)
    is_caught: bool = False

    def start(self) -> None:
        self.began = time.monotonic()
        self.scratch = Path(tempfile.mkdtemp(prefix="hw-mutant-"))
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._test())

    def _test(self) -> int:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        out = os.open(self.scratch / "output", os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(out, stream)
        try:
            if self.mutation is not None:
                path = SOURCES / self.core
                tree = mutated(path.read_text(encoding="utf-8"), self.mutation)
                sys.meta_path.insert(0, _Finder(module_of(self.core), path, tree))
            options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest"]
            options += [f"--rootdir={ROOT}", f"--basetemp={self.scratch / 'tmp'}"]
            return int(pytest.main([*options, *map(str, tests_of(self.core))]))
        except BaseException:  # whatever a changed module does to pytest itself
            return 1

    def is_over(self) -> bool:
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        self.seconds = time.monotonic() - self.began
        if not ended and self.seconds < self.limit:
            return False
        self.is_caught = not ended or status != 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # the child that hangs, and whatever its tests have started
        if not ended:
            os.waitpid(self.pid, 0)
        return True

    def output(self) -> str:
        return (self.scratch / "output").read_text(encoding="utf-8", errors="replace")


def _run(trials: Sequence[_Trial], jobs: int, done: Callable[[_Trial], None]) -> None:
    """All of them, so many at once."""
    coming, under_way = list(reversed(trials)), list[_Trial]()
    try:
        while coming or under_way:
            while coming and len(under_way) < jobs:
                under_way.append(coming.pop())
                under_way[-1].start()
            for trial in [trial for trial in under_way if trial.is_over()]:
                under_way.remove(trial)
                done(trial)
                shutil.rmtree(trial.scratch, ignore_errors=True)
            time.sleep(0.01)
    finally:
        for trial in under_way:
            os.killpg(trial.pid, signal.SIGKILL)
            shutil.rmtree(trial.scratch, ignore_errors=True)


def _limits(cores: Sequence[str], jobs: int) -> dict[str, float]:
    """How long each core's tests may take. Whose tests fail without a change has nothing to tell."""
    limits: dict[str, float] = {}

    def done(trial: _Trial) -> None:
        if trial.is_caught:
            sys.exit(
                f"{trial.output()}\nThe tests of {trial.core} fail without a change, or take over {trial.limit:g} s."
            )
        limits[trial.core] = max(LEAST_LIMIT, SLOWER * trial.seconds)

    _run([_Trial(core, None, 300.0) for core in cores], jobs, done)
    return limits


def _keep(tallies: dict[str, Tally]) -> None:
    """The page shows the last result of each core."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    kept |= {core: stored(tally) for core, tally in tallies.items()}
    kept = {core: kept[core] for core in CORES if core in kept}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page({core: read(one) for core, one in kept.items()}), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cores", nargs="*", metavar="CORE", help=f"of {', '.join(CORES)}")
    parser.add_argument("--all", action="store_true", help="every mutant, not a sample")
    parser.add_argument("--most", type=int, default=MOST, help="mutants of each core (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at the same time (default: %(default)s)")
    asked = parser.parse_args()
    if unknown := [core for core in asked.cores if core not in CORES]:
        parser.error(f"not a core: {', '.join(unknown)}; they are {', '.join(CORES)}")
    cores = asked.cores or list(CORES)
    listed = equivalents()
    tallies: dict[str, Tally] = {}
    trials: list[_Trial] = []
    limits = _limits(cores, asked.jobs)
    for core in cores:
        source = (SOURCES / core).read_text(encoding="utf-8")
        every = mutations(source)
        known = listed.get(core, {})
        chosen = every if asked.all else sample(source, asked.most)
        gone = known.keys() - {one.key for one in every}
        tallies[core] = Tally(len(every), [(one, known[one.key]) for one in chosen if one.key in known], sorted(gone))
        trials += [_Trial(core, one, limits[core]) for one in chosen if one.key not in known]

    def done(trial: _Trial) -> None:
        assert trial.mutation is not None
        tallies[trial.core].add(trial.mutation, trial.is_caught)
        if not trial.is_caught:
            print(f"survived: {trial.core}, {trial.mutation}", flush=True)

    _run(trials, asked.jobs, done)
    print(as_table(tallies))
    for core, tally in tallies.items():
        for function, before, after, _ in tally.gone:
            print(f"equivalent.yaml: {core} has no `{before}` in {function} that could be `{after}`: remove it")
    if not asked.all and asked.most == MOST:
        _keep(tallies)
    return int(any(tally.share < LEAST for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
