"""The price of real input: the same training with real data and with made-up data that is there already.

Both alternate in pairs, in random order within a pair; pairs are added until the 95 % bootstrap interval of the median
ratio of training rates is narrower than +/- 2 % (as in benchmarks/overhead.py). One training task with one thread on
one core, which does everything: what reading, decoding and augmenting take is then taken from training. Made-up data
(`synthetic: true`) is noise of the same shape from memory, and is not augmented. Price: 1 - real rate / synthetic rate.

  make bench-input                              every case; half an hour to an hour on two idle cores
  benchmarks/input.py --cases e1-cnn            one; patterns are allowed
  benchmarks/input.py --minutes 20              no new pair is begun later than that
  benchmarks/input.py --resume benchmarks/results/FILE.jsonl      go on after an interruption
  benchmarks/input.py --report benchmarks/results/FILE.jsonl      the table of what was measured; runs nothing

Nothing else may use the machine: a pair during which others used more than --others cores is marked and repeated.
CIFAR-10 is fetched when it is not here (hundreds of megabytes), and converted to shards once. Raw samples go to
benchmarks/results/input-*.jsonl. Exit code 0: every case is at or below its wanted price.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from overhead_figures import MIN_PAIRS, Pair, Sample, SampleFile, bootstrap, counted, is_enough, markdown, pairs_of
from overhead_runs import Machine
from trainings import figures_of

from headway import workloads
from headway.workloads.convert import convert
from headway.workloads.datasets import cifar10
from headway.workloads.shards import INDEX

RESULTS = Path(__file__).parent / "results"
VARIANTS = ("synthetic", "real")
REPEATS = 10  # disturbed pairs of a case before it is given up
AUGMENT = {"shift": 4, "flip": True}


@dataclass(frozen=True)
class Case:
    model: dict[str, Any]
    dataset: Callable[[], dict[str, Any]]
    augment: dict[str, Any]
    batch_size: int
    steps: int
    wanted: float
    """The highest price."""

    def job(self, variant: str, steps: int | None, core: int) -> dict[str, Any]:
        how: dict[str, Any] = {"synthetic": True} if variant == "synthetic" else {"augment": self.augment}
        return {
            "name": "input",
            "workload": {
                "model": self.model,
                "dataset": self.dataset() | how,
                "batch_size": self.batch_size,
                "optimizer": {"name": "momentum", "learning_rate": 0.01},
                "stop": {"steps": steps or self.steps},
            },
            "cluster": {"chief": {"count": 1, "cores": [core], "threads": {"intra_op": 1, "inter_op": 1}}},
            "checkpoint": {"seconds": 86_400},
            "export": False,
            "restart": {"attempts": 0},
            "measure": {"warmup": min(10, (steps or self.steps) // 3)},
        }


def cifar_shards() -> dict[str, Any]:
    folder = workloads.cache_folder().absolute() / "cifar10-shards"
    if not (folder / INDEX).exists():
        convert(cifar10.Settings(), folder, 8, lambda *_: None)
    return {"name": "tfrecords", "files": str(folder)}


RESNET20 = {"name": "resnet", "depth": 20}
CASES = {
    "e1-cnn": Case({"name": "mnist_cnn"}, lambda: {"name": "mnist"}, {}, 100, 120, 0.03),
    "resnet20-arrays": Case(RESNET20, lambda: {"name": "cifar10"}, AUGMENT, 128, 40, 0.10),
    "resnet20-shards": Case(RESNET20, cifar_shards, AUGMENT, 128, 40, 0.10),
}


def chosen(patterns: Sequence[str]) -> list[str]:
    """ValueError where a pattern means no case."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in CASES):
            raise ValueError(f"no case {pattern!r}; there are {', '.join(CASES)}")
    return [name for name in CASES if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


def measure(name: str, variant: str, asked: argparse.Namespace) -> Sample:
    job = CASES[name].job(variant, asked.steps, min(os.sched_getaffinity(0)))  # before the clock runs: it may fetch
    machine = Machine()
    figures = figures_of(job)
    others = machine.others()
    [task] = figures["tasks"]
    return {
        "examples_per_s": figures["examples_per_s"],
        "step_seconds": task["step_seconds"],
        "input_share": task["input_share"],
        "others": others,
        "loaded": others > asked.others,
    }


def pairs(name: str, file: SampleFile, asked: argparse.Namespace, order: random.Random, deadline: float) -> None:
    """Until the interval is narrow, or there are enough, or the time is up."""
    while True:
        every = pairs_of(file.samples, name, VARIANTS)
        good = counted(every, asked.keep_loaded)
        if is_enough(good, asked.min_pairs, asked.max_pairs) or time.monotonic() > deadline:
            return
        if len(every) - len(good) >= REPEATS:
            print(f"{name}: {REPEATS} pairs were disturbed by others: the machine is not idle", flush=True)
            return
        number = 1 + max((sample["pair"] for sample in file.samples), default=0)
        for variant in order.sample(VARIANTS, 2):
            sample = measure(name, variant, asked)
            file.add({"kind": "sample", "case": name, "variant": variant, "pair": number, "t": time.time(), **sample})
        last = pairs_of(file.samples, name, VARIANTS)[-1]
        good = counted(pairs_of(file.samples, name, VARIANTS), asked.keep_loaded)
        so_far = f"{price_of(good).median:.1%}" if good else "-"
        print(
            f"{name}, pair {len(good)}: {last.bare['examples_per_s']:.0f} synthetic, "
            f"{last.headway['examples_per_s']:.0f} real examples/s{', disturbed' if last.is_loaded else ''} "
            f"| price so far {so_far}",
            flush=True,
        )


@dataclass(frozen=True)
class Price:
    """Shares of the synthetic rate."""

    median: float
    low: float
    high: float


def price_of(pairs: Sequence[Pair]) -> Price:
    ratio = bootstrap([pair.ratio("examples_per_s") for pair in pairs])
    return Price(1 - ratio.median, 1 - ratio.high, 1 - ratio.low)


def prices(samples: Sequence[Sample], keep_loaded: bool) -> dict[str, tuple[Price, list[Pair]]]:
    found = {name: counted(pairs_of(samples, name, VARIANTS), keep_loaded) for name in CASES}
    return {name: (price_of(pairs), pairs) for name, pairs in found.items() if pairs}


def tables(samples: Sequence[Sample], keep_loaded: bool = False) -> list[str]:
    rows = []
    for name, (price, good) in prices(samples, keep_loaded).items():
        synthetic, real = (
            statistics.median(sample["examples_per_s"] for sample in side)
            for side in ([pair.bare for pair in good], [pair.headway for pair in good])
        )
        wanted = CASES[name].wanted
        rows.append(
            [
                name,
                f"{synthetic:.0f} / {real:.0f}",
                f"{price.median:.1%}",
                f"{price.low:.1%} to {price.high:.1%}",
                str(len(good)),
                f"< {wanted:.0%}",
                "yes" if price.median < wanted else "no",
            ]
        )
    titles = ["case", "examples/s, synthetic / real", "price", "95 % interval", "pairs", "wanted", "reached"]
    return markdown(titles, rows).splitlines()


def is_reached(samples: Sequence[Sample], keep_loaded: bool, names: Sequence[str]) -> bool:
    """Whether each of these cases has pairs that count, and is not too dear."""
    found = prices(samples, keep_loaded)
    return all(name in found and found[name][0].median < CASES[name].wanted for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cases", nargs="*", default=[], help=f"of {', '.join(CASES)}; patterns are allowed [all]")
    add("--minutes", type=float, default=120, help="after which no new pair is begun [%(default)s]")
    add("--min-pairs", type=int, default=MIN_PAIRS, help="[%(default)s]")
    add("--max-pairs", type=int, default=20, help="[%(default)s]")
    add("--steps", type=int, help="of each training [e1-cnn 120, resnet20 40]")
    add("--others", type=float, default=0.1, help="cores that others may use during a training [%(default)s]")
    add("--keep-loaded", action="store_true", help="count disturbed pairs, too: only while developing")
    add("--seed", type=int, default=None, help="of the order within pairs")
    add("--resume", type=Path, metavar="FILE", help="go on with the samples of this file")
    add("--report", type=Path, metavar="FILE", help="only print the table of this file")
    asked = parser.parse_args()
    try:
        names = chosen(asked.cases)
    except ValueError as error:
        sys.exit(f"input.py: {error}")
    file = SampleFile(asked.report or asked.resume or RESULTS / f"input-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    if not asked.report:
        order, deadline = random.Random(asked.seed), time.monotonic() + 60 * asked.minutes
        for name in names:
            pairs(name, file, asked, order, deadline)
    print("\n" + "\n".join(tables(file.samples, asked.keep_loaded)) + f"\n\nraw samples: {file.path.name}")
    sys.exit(0 if is_reached(file.samples, asked.keep_loaded, names) else 1)


if __name__ == "__main__":
    main()
