"""The price of real input: the same training with real data and with made-up data that is there already.

Both trainings live in one process on one core, with one thread each for operations, and take turns of some steps each,
in random order within a pair of turns: so whatever makes the machine slower for a while slows down both. One core does
everything, so what reading, decoding and augmenting take is taken from training. The first steps of a turn do not
count: in them the other training's input still fills its buffer, and this one's own is full. Pairs are added until the
95 % bootstrap interval of the median ratio of training rates is narrower than +/- 2 % (as in benchmarks/overhead.py).
Made-up data (`synthetic: true`) is noise of the same shape from memory, and is not augmented.
Price: 1 - real rate / synthetic rate.

  make bench-input                              every case; about half an hour on two idle cores
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
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from overhead_figures import Pair, Sample, SampleFile, bootstrap, counted, is_enough, markdown, pairs_of
from overhead_runs import Machine

from headway import workloads
from headway.engines.assignment import Assignment
from headway.engines.tensorflow.__main__ import prepare_environment
from headway.record.files import to_json
from headway.record.folder import RunFolder
from headway.spec.load import parse_job
from headway.spec.resolve import resolve
from headway.workloads.convert import convert
from headway.workloads.datasets import cifar10
from headway.workloads.shards import INDEX

RESULTS = Path(__file__).parent / "results"
VARIANTS = ("synthetic", "real")
LEAD = 6  # steps at the beginning of a turn that do not count: more than an input has batches ready
WARMUP = 15  # steps before the first turn
AUGMENT = {"shift": 4, "flip": True}


@dataclass(frozen=True)
class Case:
    model: dict[str, Any]
    dataset: Callable[[], dict[str, Any]]
    augment: dict[str, Any]
    batch_size: int
    steps: int
    """Of one turn, that count."""
    wanted: float
    """The highest price."""

    def job(self, variant: str) -> dict[str, Any]:
        how: dict[str, Any] = {"synthetic": True} if variant == "synthetic" else {"augment": self.augment}
        return {
            "name": "input",
            "workload": {
                "model": self.model,
                "dataset": self.dataset() | how,
                "batch_size": self.batch_size,
                "optimizer": {"name": "momentum", "learning_rate": 0.01},
            },
            "strategy": "single",
            "cluster": {"chief": {"count": 1, "threads": {"intra_op": 1, "inter_op": 1}}},
        }


def cifar_shards() -> dict[str, Any]:
    folder = workloads.cache_folder().absolute() / "cifar10-shards"
    if not (folder / INDEX).exists():
        convert(cifar10.Settings(), folder, 8, lambda *_: None)
    return {"name": "tfrecords", "files": str(folder)}


RESNET20 = {"name": "resnet", "depth": 20}
CASES = {
    "e1-cnn": Case({"name": "mnist_cnn"}, lambda: {"name": "mnist"}, {}, 100, 20, 0.03),
    "resnet20-arrays": Case(RESNET20, lambda: {"name": "cifar10"}, AUGMENT, 128, 12, 0.10),
    "resnet20-shards": Case(RESNET20, cifar_shards, AUGMENT, 128, 12, 0.10),
}


def chosen(patterns: Sequence[str]) -> list[str]:
    """ValueError where a pattern means no case."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in CASES):
            raise ValueError(f"no case {pattern!r}; there are {', '.join(CASES)}")
    return [name for name in CASES if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


# --- training ---------------------------------------------------------------------------------------------------------
def trainer_of(job: dict[str, Any], scratch: Path) -> Any:
    """What a task of this job trains with, warmed up."""
    from headway.engines.tensorflow import strategies

    folder = RunFolder.create(scratch, job["name"])
    resolved = resolve(parse_job(job), num_cores=1).job
    folder.job_file.write_text(to_json({"format": 1, "resolved": resolved.model_dump(mode="json")}), encoding="utf-8")
    trainer = strategies.trainer(Assignment({"HEADWAY_RUN": str(folder.path), "HEADWAY_TASK": "chief/0"}))
    trainer.start(0)
    for _ in range(WARMUP):
        trainer.step(1)
    return trainer


def turn(trainer: Any, batch_size: int, steps: int, allowed: float) -> Sample:
    for _ in range(LEAD):
        trainer.step(1)
    machine, began = Machine(), time.perf_counter()
    waited = sum(trainer.step(1).input_seconds for _ in range(steps))
    seconds = time.perf_counter() - began
    others = machine.others()
    return {
        "examples_per_s": batch_size * steps / seconds,
        "seconds": seconds,
        "input_share": waited / seconds,
        "others": others,
        "loaded": others > allowed,
    }


def measure(name: str, file: SampleFile, asked: argparse.Namespace, order: random.Random, deadline: float) -> None:
    """Until the interval is narrow, or there are enough pairs, or the time is up."""
    case = CASES[name]

    def good() -> list[Pair]:
        return counted(pairs_of(file.samples, name, VARIANTS), asked.keep_loaded)

    if is_enough(good(), asked.min_pairs, asked.max_pairs):
        return
    with tempfile.TemporaryDirectory(prefix="hw-") as scratch:
        trainers = {variant: trainer_of(case.job(variant), Path(scratch)) for variant in VARIANTS}
        disturbed = 0
        while not is_enough(good(), asked.min_pairs, asked.max_pairs) and time.monotonic() < deadline:
            number = 1 + max((sample["pair"] for sample in file.samples), default=0)
            for variant in order.sample(VARIANTS, 2):
                sample = turn(trainers[variant], case.batch_size, asked.steps or case.steps, asked.others)
                file.add(
                    {"kind": "sample", "case": name, "variant": variant, "pair": number, "t": time.time(), **sample}
                )
            last = pairs_of(file.samples, name, VARIANTS)[-1]
            disturbed += last.is_loaded
            if (found := good()) and len(found) % 5 == 0:
                print(f"{name}, pair {len(found)}: {_rates([last])} examples/s | price {price_of(found)}", flush=True)
        if disturbed:
            print(f"{name}: {disturbed} pairs were disturbed by others, and repeated", flush=True)


@dataclass(frozen=True)
class Price:
    """Shares of the synthetic rate."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.1%} ({self.low:.1%} to {self.high:.1%})"


def _rates(pairs: Sequence[Pair]) -> str:
    """Median examples per second, synthetic / real."""
    sides = ([pair.bare for pair in pairs], [pair.headway for pair in pairs])
    return " / ".join(f"{statistics.median(sample['examples_per_s'] for sample in side):.0f}" for side in sides)


def price_of(pairs: Sequence[Pair]) -> Price:
    ratio = bootstrap([pair.ratio("examples_per_s") for pair in pairs])
    return Price(1 - ratio.median, 1 - ratio.high, 1 - ratio.low)


def prices(samples: Sequence[Sample], keep_loaded: bool) -> dict[str, tuple[Price, list[Pair]]]:
    found = {name: counted(pairs_of(samples, name, VARIANTS), keep_loaded) for name in CASES}
    return {name: (price_of(pairs), pairs) for name, pairs in found.items() if pairs}


def tables(samples: Sequence[Sample], keep_loaded: bool = False) -> list[str]:
    rows = []
    for name, (price, good) in prices(samples, keep_loaded).items():
        wanted = CASES[name].wanted
        rows.append(
            [
                name,
                _rates(good),
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
    add("--min-pairs", type=int, default=20, help="[%(default)s]")
    add("--max-pairs", type=int, default=100, help="[%(default)s]")
    add("--steps", type=int, help="of each turn, that count [e1-cnn 20, resnet20 12]")
    add("--others", type=float, default=0.1, help="cores that others may use during a turn [%(default)s]")
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
        prepare_environment()
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before TensorFlow counts cores
        for name in names:
            measure(name, file, asked, order, deadline)
    print("\n" + "\n".join(tables(file.samples, asked.keep_loaded)) + f"\n\nraw samples: {file.path.name}")
    sys.exit(0 if is_reached(file.samples, asked.keep_loaded, names) else 1)


if __name__ == "__main__":
    main()
