"""What Headway costs: the same training as bare TensorFlow scripts (benchmarks/bare) and through `headway run`.

Bare and Headway alternate in pairs, in random order within a pair. For each case (strategy:model) pairs are added until
the 95 % bootstrap interval of the median ratio of training rates is narrower than +/- 2 %. Each training task has one
thread on a core of its own; servers are not pinned. A rate is the sum over the training tasks, in the time after the
warm-up in which all of them train. Headway records as always; its last evaluation lies behind the window.

  make bench-overhead                                            all eight cases, about an hour on two idle cores
  benchmarks/overhead.py --only ps-async:softmax                 one case; also patterns: 'ps-*:*'
  benchmarks/overhead.py --resume benchmarks/results/FILE.jsonl  go on after an interruption
  benchmarks/overhead.py --scaling --rounds 5                    one and two tasks of every strategy, and the options
  benchmarks/overhead.py --tuned --rounds 10                     how Headway beats the bare script (single)
  benchmarks/overhead.py --report benchmarks/results/FILE.jsonl  the tables of what was measured; runs nothing

Nothing else may use the machine: a pair during which others used more than --others cores is marked and repeated. So is
the bare CNN's share of what the core can do, of which at least 40 % are wanted: else it is not worth comparing with.
Ctrl-C ends everything and keeps what was measured. Exit code 0: everything wanted was reached.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from overhead_cases import Case, Lengths, Setup, chosen_cases, scaling_trainings, tuned_trainings
from overhead_figures import (
    MIN_PAIRS,
    SampleFile,
    bootstrap,
    core_of,
    counted,
    expected_pairs,
    is_enough,
    pairs_of,
    rounds_of,
)
from overhead_report import is_reached, refusal, tables
from overhead_runs import Laboratory, RunFailed

import headway

RESULTS = Path(__file__).parent / "results"
REPEATS = 10  # disturbed pairs of a case (samples of the core, runs of a setup), repeated before it is given up
GUESSED_PAIR_SECONDS = {"mnist_cnn": 45.0, "softmax": 30.0}  # for the first estimate only
SINGLE_CNN = Setup("single", "mnist_cnn", 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="CASE", help="strategy:model, or a pattern; may be repeated")
    sections = parser.add_mutually_exclusive_group()
    sections.add_argument("--scaling", action="store_true", help="the scaling section instead of the pairs")
    sections.add_argument("--tuned", action="store_true", help="the section on what makes Headway faster instead")
    add("--rounds", type=int, default=5, help="rounds of these sections [%(default)s]")
    add("--min-pairs", type=int, default=MIN_PAIRS, help="[%(default)s]")
    add("--max-pairs", type=int, default=30, help="[%(default)s]")
    add("--scale", type=float, default=1.0, help="make all runs that much longer, 0.5: half as long [%(default)s]")
    add("--steps", type=int, help="steps of each training task, in all cases")
    add("--warmup", type=int, help="first steps of each task that rates leave out [mnist_cnn 10, softmax 200]")
    add("--inter-op", type=int, help="inter-op threads of training tasks [1, the best for the bare scripts]")
    add("--others", type=float, default=0.1, help="cores that others may use during a sample [%(default)s]")
    add("--keep-loaded", action="store_true", help="count disturbed samples, too: only while developing")
    add("--limit", type=float, default=300.0, help="seconds that one training may take [%(default)s]")
    add("--resume", type=Path, metavar="FILE", help="go on with the samples of this file")
    add("--mix-commits", action="store_true", help="go on with samples of another version; the report says so")
    add("--report", type=Path, metavar="FILE", help="only print the tables of this file")
    add("--seed", type=int, default=None, help="of the order within pairs")
    return parser.parse_args()


class Benchmark:
    def __init__(self, asked: argparse.Namespace, file: SampleFile, laboratory: Laboratory) -> None:
        self.asked = asked
        self.file = file
        self.laboratory = laboratory
        self.lengths = Lengths(asked.steps, asked.warmup, asked.inter_op, asked.scale)
        self.order = random.Random(asked.seed)
        self.seconds: dict[str, list[float]] = {}  # of the pairs of each case

    def measure(self, variant: str, setup: Setup, **facts: Any) -> dict[str, Any]:
        """A sample, written down. A training that fails is tried once more: ports and processes have bad days."""
        for attempt in (1, 2):
            try:
                measured = self.laboratory.measure(variant, setup, self.lengths.of(setup))
                break
            except (RunFailed, ValueError) as error:
                if attempt == 2:
                    raise RunFailed(f"{variant} {setup.name} {setup.model}: {error}") from None
                print(f"    {variant} {setup.name} failed and is tried again: {str(error)[-300:]}", flush=True)
        self.file.add({**facts, **measured})
        return measured

    def succeeds(self, name: str, work: Callable[[], None]) -> bool:
        """What fails is written down, and the rest is still measured."""
        try:
            work()
        except RunFailed as error:
            print(f"{name}: {error}", flush=True)
            self.file.add({"kind": "failed", "case": name, "reason": str(error)})
            return False
        return True

    # --- the core itself -------------------------------------------------------------------------------------
    def core(self) -> None:
        """What share of a core's matrix product the bare CNN reaches: is it worth comparing with?"""
        for _ in range(REPEATS):
            if core_of(self.file.samples, self.asked.keep_loaded):
                return
            product = self.laboratory.sgemm()
            sample = self.measure("bare", SINGLE_CNN, kind="core", **product)
            disturbed = ", disturbed" if product["sgemm_loaded"] or sample["loaded"] else ""
            others = max(product["sgemm_others"], sample["others"])
            print(f"{core_of(self.file.samples[-1:], True)} (others {others:.2f} cores{disturbed})", flush=True)
        if not core_of(self.file.samples, self.asked.keep_loaded):
            raise RunFailed(f"disturbed by others {REPEATS} times: the machine is not idle")

    # --- pairs -----------------------------------------------------------------------------------------------
    def pairs(self, cases: Sequence[Case]) -> None:
        if any(case.model == "mnist_cnn" for case in cases):
            self.succeeds("one core", self.core)
        for case in cases:
            self.succeeds(case.name, partial(self.case, case, cases))

    def case(self, case: Case, cases: Sequence[Case]) -> None:
        asked = self.asked
        while True:
            every = pairs_of(self.file.samples, case.name)
            good = counted(every, asked.keep_loaded)
            if is_enough(good, asked.min_pairs, asked.max_pairs):
                return
            if len(every) - len(good) >= REPEATS:
                raise RunFailed(f"{len(every) - len(good)} pairs were disturbed by others: the machine is not idle")
            number = 1 + max((sample.get("pair", 0) for sample in self.file.samples), default=0)
            began = time.monotonic()
            pair = {
                variant: self.measure(variant, case.setup, kind="sample", case=case.name, pair=number)
                for variant in self.order.sample(["bare", "headway"], 2)
            }
            self.seconds.setdefault(case.name, []).append(time.monotonic() - began)
            self.tell(case, cases, pair)

    def tell(self, case: Case, cases: Sequence[Case], pair: dict[str, dict[str, Any]]) -> None:
        bare, headway = pair["bare"], pair["headway"]
        good = counted(pairs_of(self.file.samples, case.name), self.asked.keep_loaded)
        ratios = [one.ratio("examples_per_s") for one in good]
        so_far = str(bootstrap(ratios)) if len(ratios) > 1 else "-"
        disturbed = ", disturbed" if bare["loaded"] or headway["loaded"] else ""
        others = max(bare["others"], headway["others"])
        print(
            f"{case.name:<20} pair {len(good):>2}: {bare['examples_per_s']:.0f} / {headway['examples_per_s']:.0f} "
            f"examples/s = {headway['examples_per_s'] / bare['examples_per_s']:.3f}, first step "
            f"{bare['first_step_seconds']:.1f} / {headway['first_step_seconds']:.1f} s (others {others:.2f} cores"
            f"{disturbed}) | so far {so_far} | {minutes(self.left(cases))} left",
            flush=True,
        )

    def left(self, cases: Sequence[Case]) -> float:
        """Seconds that the rest will probably take."""
        total = 0.0
        for case in cases:
            good = counted(pairs_of(self.file.samples, case.name), self.asked.keep_loaded)
            known = self.seconds.get(case.name)
            each = statistics.mean(known) if known else GUESSED_PAIR_SECONDS[case.model] * self.asked.scale
            if not is_enough(good, self.asked.min_pairs, self.asked.max_pairs):
                wanted = expected_pairs(good, self.asked.min_pairs, self.asked.max_pairs)
                total += each * max(1, wanted - len(good))
        return total

    # --- rounds ----------------------------------------------------------------------------------------------
    def rounds(self, kind: str, sections: Sequence[Sequence[tuple[str, Setup]]]) -> None:
        """The trainings of each section, all of them in each round, in random order."""
        failed: set[tuple[str, Setup]] = set()
        taken: list[float] = []
        left = sum(map(len, sections)) * self.asked.rounds
        for section in sections:
            for number in range(1, self.asked.rounds + 1):
                for variant, setup in self.order.sample(section, len(section)):
                    began, left = time.monotonic(), left - 1
                    if (variant, setup) in failed or self.has(kind, number, variant, setup):
                        continue
                    work = partial(self.undisturbed, kind, number, variant, setup)
                    if self.succeeds(f"{variant} {setup.name} {setup.model}", work):
                        taken.append(time.monotonic() - began)
                        print(f"    {minutes(statistics.mean(taken) * left)} left", flush=True)
                    else:
                        failed.add((variant, setup))

    def undisturbed(self, kind: str, number: int, variant: str, setup: Setup) -> None:
        """One training of a round, repeated until nobody else used the machine."""
        for _ in range(REPEATS):
            sample = self.measure(variant, setup, kind=kind, round=number)
            is_good = self.asked.keep_loaded or not sample["loaded"]
            print(
                f"{setup.model} round {number}: {variant} {setup.name}: {sample['examples_per_s']:.0f} examples/s "
                f"(others {sample['others']:.2f} cores{', disturbed' if sample['loaded'] else ''})",
                flush=True,
            )
            if is_good:
                return
        raise RunFailed(f"disturbed by others {REPEATS} times: the machine is not idle")

    def has(self, kind: str, number: int, variant: str, setup: Setup) -> bool:
        """Whether that training was measured in that round, undisturbed."""
        rounds = rounds_of(self.file.samples, kind, self.asked.keep_loaded)
        return (variant, setup.name) in rounds.get((setup.model, number), {})


def minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds > 90 else f"about {seconds:.0f} s"


def version() -> str:
    """The commit; where files differ from it, also a mark of how, since two such states are not the same version."""

    def git(*arguments: str) -> bytes:
        command = ["git", "-C", str(RESULTS.parent), *arguments]
        return subprocess.run(command, check=False, capture_output=True).stdout

    commit, changes = git("describe", "--always", "--dirty").decode().strip(), git("diff", "HEAD")
    return f"{commit}-{hashlib.sha256(changes).hexdigest()[:8]}" if changes else commit or "unknown"


def facts_of_machine(asked: argparse.Namespace) -> dict[str, Any]:
    """What must be the same when a benchmark is resumed, and what one wants to know of it later."""
    settings = {name: getattr(asked, name) for name in ("scale", "steps", "warmup", "inter_op")}
    settings["onednn"] = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1")  # both sides switch it on unless told otherwise
    return {
        "kind": "begin",
        "t": time.time(),
        "settings": settings,
        "cores": sorted(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": version(),
    }


def main() -> NoReturn:
    asked = arguments()
    try:
        cases = chosen_cases(asked.only)
    except ValueError as error:
        sys.exit(f"overhead.py: {error}")
    tuned = [tuned_trainings(case.model) for case in cases if case.strategy == "single"]
    if asked.tuned and not tuned:
        sys.exit("overhead.py: --tuned has only single:mnist_cnn and single:softmax")
    if asked.report:
        print(tables(SampleFile(asked.report).samples, asked.keep_loaded), end="")
        sys.exit(0)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("overhead.py: two training tasks need two cores")
    file = SampleFile(asked.resume or RESULTS / f"overhead-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    facts = facts_of_machine(asked)
    if why := refusal(file.samples, facts, asked.mix_commits):
        sys.exit(f"overhead.py: {file.path}: {why}")
    file.add(facts)
    subprocess.run([sys.executable, "-m", "headway", "data", "fetch", "mnist"], check=True, stdout=subprocess.DEVNULL)
    # As pip does it for an installed package; where the environment forbids compiled files, every process would else
    # compile all of Headway when it starts.
    compileall.compile_dir(str(Path(headway.__file__).parent), quiet=2)

    RESULTS.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".running-", dir=RESULTS))  # on the same disk as run folders usually are
    laboratory = Laboratory(cores, place, asked.limit, asked.others)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell had us ignore them
        signal.signal(number, signal.default_int_handler)
    benchmark = Benchmark(asked, file, laboratory)
    interrupted = False
    try:
        if asked.scaling:
            models = list(dict.fromkeys(case.model for case in cases)) if asked.only else ["mnist_cnn"]
            benchmark.rounds("scaling", [scaling_trainings(model) for model in models])
        elif asked.tuned:
            benchmark.rounds("tuned", tuned)
        else:
            benchmark.pairs(cases)
    except KeyboardInterrupt:
        interrupted = True
        print(f"\ninterrupted; go on with --resume {file.path}", flush=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not keep us from ending what we started
        laboratory.close()
        shutil.rmtree(place, ignore_errors=True)
    text = tables(file.samples, asked.keep_loaded)
    file.path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nsamples: {file.path}\ntable:   {file.path.with_suffix('.md')}")
    if interrupted:
        sys.exit(130)
    sys.exit(0 if is_reached(file.samples, asked.keep_loaded) else 1)


if __name__ == "__main__":
    main()
