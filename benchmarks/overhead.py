"""What Headway costs: the same training as bare TensorFlow scripts (benchmarks/bare) and through `headway run`.

Bare and Headway alternate in pairs, in random order within a pair. For each case (strategy:model) pairs are added until
the 95 % bootstrap interval of the median ratio of training rates is narrower than +/- 2 %. Each training task has one
thread on a core of its own; servers are not pinned. A rate is the sum over the training tasks, in the time after the
warm-up in which all of them train. Headway records as always; its last evaluation lies behind the window.

  make bench-overhead                                            all eight cases, about an hour on two idle cores
  benchmarks/overhead.py --only ps-async:softmax                 one case; also patterns: 'ps-*:*'
  benchmarks/overhead.py --resume benchmarks/results/FILE.jsonl  go on after an interruption
  benchmarks/overhead.py --scaling --rounds 5                    one and two tasks of every strategy, and the options
  benchmarks/overhead.py --report benchmarks/results/FILE.jsonl  the tables of what was measured; runs nothing

Nothing else may use the machine: a pair during which others used more than --others cores is marked and repeated.
Ctrl-C ends everything and keeps what was measured. Exit code 0: everything wanted was reached.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from overhead_cases import BATCH, CNN_GFLOP, MODELS, Case, Lengths, Setup, chosen_cases, scaling_setups
from overhead_figures import (
    MIN_PAIRS,
    WANTED_FIRST_STEP,
    WANTED_MEMORY,
    SampleFile,
    Verdict,
    bootstrap,
    counted,
    expected_pairs,
    is_enough,
    overhead_table,
    pairs_of,
    scaling_table,
    verdict,
)
from overhead_runs import Laboratory, RunFailed, sgemm

RESULTS = Path(__file__).parent / "results"
REPEATS = 10  # disturbed pairs of one case (runs of one setup) that are repeated before it is given up
GUESSED_PAIR_SECONDS = {"mnist_cnn": 45.0, "softmax": 30.0}  # for the first estimate only
SINGLE_CNN = Setup("single", "mnist_cnn", 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="CASE", help="strategy:model, or a pattern; may be repeated")
    add("--scaling", action="store_true", help="the scaling section instead of the pairs")
    add("--rounds", type=int, default=5, help="rounds of the scaling section [%(default)s]")
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

    # --- the core itself -------------------------------------------------------------------------------------
    def core(self) -> None:
        """What share of a core's matrix product the bare CNN reaches: is it worth comparing with?"""
        rate = sgemm(self.laboratory.cores[0])
        bare = self.measure("bare", SINGLE_CNN, kind="core", sgemm_gflops=rate)
        gflops = CNN_GFLOP * bare["examples_per_s"] / BATCH
        print(
            f"one core: sgemm {rate:.1f} GFLOP/s; bare single mnist_cnn {gflops:.1f} GFLOP/s, "
            f"{gflops / rate:.0%} of it (wanted: at least 40 %)",
            flush=True,
        )

    # --- pairs -----------------------------------------------------------------------------------------------
    def pairs(self, cases: Sequence[Case]) -> None:
        if any(case.model == "mnist_cnn" for case in cases):
            self.core()
        for case in cases:
            try:
                self.case(case, cases)
            except RunFailed as error:
                print(f"{case.name}: {error}", flush=True)
                self.file.add({"kind": "failed", "case": case.name, "reason": str(error)})

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

    # --- scaling ---------------------------------------------------------------------------------------------
    def scaling(self, models: Sequence[str]) -> None:
        failed: set[tuple[str, str, str]] = set()
        taken: list[float] = []
        left = sum(len(trainings(model)) for model in models) * self.asked.rounds
        for model in models:
            for number in range(1, self.asked.rounds + 1):
                every = trainings(model)
                self.order.shuffle(every)
                for variant, setup in every:
                    key, began, left = (model, variant, setup.name), time.monotonic(), left - 1
                    if key in failed or self.has(number, *key):
                        continue
                    try:
                        self.undisturbed(number, variant, setup)
                    except RunFailed as error:
                        print(error, flush=True)
                        self.file.add({"kind": "failed", "case": f"{variant} {setup.name}", "reason": str(error)})
                        failed.add(key)
                        continue
                    taken.append(time.monotonic() - began)
                    print(f"    {minutes(statistics.mean(taken) * left)} left", flush=True)

    def undisturbed(self, number: int, variant: str, setup: Setup) -> None:
        """One training of a round, repeated until nobody else used the machine."""
        for _ in range(REPEATS):
            sample = self.measure(variant, setup, kind="scaling", round=number)
            is_good = self.asked.keep_loaded or not sample["loaded"]
            print(
                f"{setup.model} round {number}: {variant} {setup.name}: {sample['examples_per_s']:.0f} examples/s "
                f"(others {sample['others']:.2f} cores{', disturbed' if sample['loaded'] else ''})",
                flush=True,
            )
            if is_good:
                return
        raise RunFailed(f"{variant} {setup.name}: disturbed by others {REPEATS} times: the machine is not idle")

    def has(self, number: int, model: str, variant: str, setup: str) -> bool:
        """Whether that training was measured in that round, undisturbed."""
        return any(
            sample["kind"] == "scaling"
            and (sample["round"], sample["model"], sample["variant"], sample["setup"])
            == (number, model, variant, setup)
            and (self.asked.keep_loaded or not sample["loaded"])
            for sample in self.file.samples
        )


def trainings(model: str) -> list[tuple[str, Setup]]:
    """Everything that one round of the scaling section runs."""
    both, options = scaling_setups(model)
    return [(variant, setup) for variant in ("bare", "headway") for setup in both] + [
        ("headway", setup) for setup in options
    ]


def minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds > 90 else f"about {seconds:.0f} s"


def facts_of_machine(asked: argparse.Namespace) -> dict[str, Any]:
    """What must be the same when a benchmark is resumed, and what one wants to know of it later."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], check=False, capture_output=True, text=True, cwd=RESULTS.parent
    )
    settings = {name: getattr(asked, name) for name in ("scale", "steps", "warmup", "inter_op")}
    return {
        "kind": "begin",
        "t": time.time(),
        "settings": settings,
        "cores": sorted(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": described.stdout.strip(),
    }


def verdicts_of(file: SampleFile, keep_loaded: bool) -> list[Verdict]:
    found = []
    for case in chosen_cases([]):
        if good := counted(pairs_of(file.samples, case.name), keep_loaded):
            found.append(verdict(case.name, case.model, good))
    return found


def failures(file: SampleFile) -> list[str]:
    """What went wrong since the benchmark was last started."""
    found: list[str] = []
    for sample in file.samples:
        if sample["kind"] == "begin":
            found = []
        elif sample["kind"] == "failed":
            found.append(f"{sample['case']} failed: {sample['reason']}")
    return found


def tables(file: SampleFile, keep_loaded: bool) -> str:
    parts = []
    if cores := [sample for sample in file.samples if sample["kind"] == "core"]:
        rate, gflops = cores[-1]["sgemm_gflops"], CNN_GFLOP * cores[-1]["examples_per_s"] / BATCH
        parts.append(
            f"One core: sgemm {rate:.1f} GFLOP/s; bare single mnist_cnn {gflops:.1f} GFLOP/s ({gflops / rate:.0%})."
        )
    if verdicts := verdicts_of(file, keep_loaded):
        parts.append(overhead_table(verdicts))
        parts.append(
            f"Wanted besides: first step at most {WANTED_FIRST_STEP} and peak memory at most {WANTED_MEMORY} of the "
            "bare one."
        )
    parts += failures(file)
    if any(sample["kind"] == "scaling" for sample in file.samples):
        both, options = scaling_setups(MODELS[0])
        parts.append(scaling_table(file.samples, [setup.name for setup in both + options], keep_loaded))
    if keep_loaded:
        parts.append("Disturbed samples are counted.")
    return "\n\n".join(parts) + "\n"


def main() -> NoReturn:
    asked = arguments()
    try:
        cases = chosen_cases(asked.only)
    except ValueError as error:
        sys.exit(f"overhead.py: {error}")
    if asked.report:
        print(tables(SampleFile(asked.report), asked.keep_loaded), end="")
        sys.exit(0)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("overhead.py: two training tasks need two cores")
    file = SampleFile(asked.resume or RESULTS / f"overhead-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    facts = facts_of_machine(asked)
    before = [sample["settings"] for sample in file.samples if sample["kind"] == "begin"]
    if before and before[-1] != facts["settings"]:
        sys.exit(f"overhead.py: {file.path} was measured with {before[-1]}; go on with the same settings")
    file.add(facts)
    subprocess.run([sys.executable, "-m", "headway", "data", "fetch", "mnist"], check=True, stdout=subprocess.DEVNULL)

    RESULTS.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".running-", dir=RESULTS))  # on the same disk as run folders usually are
    laboratory = Laboratory(cores, place, asked.limit, asked.others)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell had us ignore them
        signal.signal(number, signal.default_int_handler)
    benchmark = Benchmark(asked, file, laboratory)
    interrupted = False
    try:
        if asked.scaling:
            benchmark.scaling(list(dict.fromkeys(case.model for case in cases)) if asked.only else ["mnist_cnn"])
        else:
            benchmark.pairs(cases)
    except KeyboardInterrupt:
        interrupted = True
        print(f"\ninterrupted; go on with --resume {file.path}", flush=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not keep us from ending what we started
        laboratory.close()
        shutil.rmtree(place, ignore_errors=True)
    text = tables(file, asked.keep_loaded)
    file.path.with_suffix(".md").write_text(text, encoding="utf-8")
    print(f"\n{text}\nsamples: {file.path}\ntable:   {file.path.with_suffix('.md')}")
    if interrupted:
        sys.exit(130)
    reached = [not one.missed for one in verdicts_of(file, asked.keep_loaded)]
    sys.exit(0 if all(reached) and not failures(file) else 1)


if __name__ == "__main__":
    main()
