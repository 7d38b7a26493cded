"""From raw samples to figures: rates over one window, ratios with bootstrap intervals, verdicts, Markdown. Pure.

A *sample* is one training, as bare scripts or through Headway; a *pair* is one of each, one right after the other. In
the file of samples both are dictionaries, one JSON line each.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from overhead_cases import BATCH, CNN_GFLOP

MIN_PAIRS = 5
NARROW = 0.02  # half the width of the interval at which no more pairs are needed
RESAMPLES = 10_000
WANTED_FIRST_STEP = 1.25
WANTED_MEMORY = 1.1  # of training tasks, and of servers
WANTED_CORE = 0.4  # of sgemm, by the bare CNN: a slow bare script would be easy to keep up with
WANTED_RATE = {"mnist_cnn": (0.97, 0.95), "softmax": (0.90, None)}  # median, lower bound
Sample = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """A training task's steps as they ended: wall time, and examples trained so far. The first point is the beginning
    of its first step that counts, where none are trained."""

    times: Sequence[float]
    examples: Sequence[float]


def progress_of(began: float, ends: Sequence[float], examples: Sequence[int], warmup: int) -> Progress:
    """From when training began and each call ended; the first `warmup` calls are left out."""
    times = [began, *ends][warmup:]
    return Progress(times, [0.0, *np.cumsum(examples[warmup:]).tolist()])


def window_of(tasks: Sequence[Progress]) -> tuple[float, float]:
    """While all tasks train and have left their warm-up. ValueError where there is no such time."""
    first, last = max(task.times[0] for task in tasks), min(task.times[-1] for task in tasks)
    if last <= first:
        raise ValueError("the tasks never trained at the same time: make the runs longer (--scale)")
    return first, last


def rate_of(tasks: Sequence[Progress]) -> float:
    """Examples per second of all tasks together in that window. A step that the window cuts counts in part."""
    first, last = window_of(tasks)
    trained = sum(float(np.diff(np.interp([first, last], task.times, task.examples))[0]) for task in tasks)
    return trained / (last - first)


@dataclass(frozen=True)
class Interval:
    median: float
    low: float
    high: float

    @property
    def is_narrow(self) -> bool:
        return (self.high - self.low) / 2 < NARROW

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def bootstrap(values: Sequence[float], seed: int = 1) -> Interval:
    """The median and its 95 % percentile bootstrap interval."""
    drawn = np.random.default_rng(seed).choice(np.asarray(values), (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Interval(statistics.median(values), float(low), float(high))


# --- pairs ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Pair:
    bare: Sample
    headway: Sample

    def ratio(self, figure: str) -> float:
        return float(self.headway[figure] / self.bare[figure])

    @property
    def is_loaded(self) -> bool:
        return bool(self.bare["loaded"] or self.headway["loaded"])


def pairs_of(samples: Iterable[Sample], case: str, variants: tuple[str, str] = ("bare", "headway")) -> list[Pair]:
    """The whole pairs of a case, in order. What an interruption left of a pair is no pair. `variants` are what is
    compared, the second with the first."""
    first, second = variants
    halves: dict[int, dict[str, Sample]] = {}
    for sample in samples:
        if sample["kind"] == "sample" and sample["case"] == case:
            halves.setdefault(sample["pair"], {})[sample["variant"]] = sample
    return [Pair(both[first], both[second]) for _, both in sorted(halves.items()) if len(both) == 2]


def counted(pairs: Sequence[Pair], keep_loaded: bool) -> list[Pair]:
    """The pairs that count: those taken while nobody else used the machine."""
    return [pair for pair in pairs if keep_loaded or not pair.is_loaded]


def is_enough(pairs: Sequence[Pair], min_pairs: int, max_pairs: int) -> bool:
    if len(pairs) < min_pairs:
        return False
    return len(pairs) >= max_pairs or bootstrap([pair.ratio("examples_per_s") for pair in pairs]).is_narrow


def expected_pairs(pairs: Sequence[Pair], min_pairs: int, max_pairs: int) -> int:
    """How many pairs a case will probably need: an interval narrows with the root of their number."""
    if len(pairs) < min_pairs:
        return max(min_pairs, min(10, max_pairs))
    interval = bootstrap([pair.ratio("examples_per_s") for pair in pairs])
    needed = len(pairs) * ((interval.high - interval.low) / 2 / NARROW) ** 2
    return int(min(max_pairs, max(len(pairs), np.ceil(needed))))


# --- verdicts ------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Core:
    """What one core does in a large matrix product, and in the bare CNN."""

    sgemm_gflops: float
    cnn_gflops: float

    @property
    def is_reached(self) -> bool:
        return self.cnn_gflops >= WANTED_CORE * self.sgemm_gflops

    def __str__(self) -> str:
        return (
            f"One core: sgemm {self.sgemm_gflops:.1f} GFLOP/s; bare single mnist_cnn {self.cnn_gflops:.1f} GFLOP/s, "
            f"{self.cnn_gflops / self.sgemm_gflops:.0%} of it (wanted: at least {WANTED_CORE:.0%}; "
            f"{'reached' if self.is_reached else 'missed'})."
        )


def core_of(samples: Iterable[Sample], keep_loaded: bool) -> Core | None:
    """From the last sample that counts. Both halves must be undisturbed: others slow either of them down."""
    found = None
    for sample in samples:
        if sample["kind"] == "core" and (
            keep_loaded or not (sample["loaded"] or sample.get("sgemm_loaded"))  # older files lack the second
        ):
            found = Core(sample["sgemm_gflops"], CNN_GFLOP * sample["examples_per_s"] / BATCH)
    return found


@dataclass(frozen=True)
class Verdict:
    """What came out of one case."""

    case: str
    model: str
    pairs: int
    rate: Interval
    first_step: float
    memory: float
    """Of the training task that needs most."""
    server_memory: float | None
    """None where there are no servers."""
    bare: Sample
    """Medians of the bare runs' figures."""
    headway: Sample

    @property
    def missed(self) -> list[str]:
        median, low = WANTED_RATE[self.model]
        missed = []
        if self.rate.median < median or (low is not None and self.rate.low < low):
            missed.append("rate")
        if self.first_step > WANTED_FIRST_STEP:
            missed.append("first step")
        if self.memory > WANTED_MEMORY:
            missed.append("memory")
        if self.server_memory is not None and self.server_memory > WANTED_MEMORY:
            missed.append("server memory")
        return missed


def verdict(case: str, model: str, pairs: Sequence[Pair]) -> Verdict:
    def medians(samples: Sequence[Sample]) -> Sample:
        return {
            figure: statistics.median(values)
            for figure in ("examples_per_s", "first_step_seconds", "peak_rss", "server_peak_rss")
            if (values := [float(sample[figure]) for sample in samples if sample.get(figure)])
        }

    with_servers = [pair for pair in pairs if pair.bare.get("server_peak_rss") and pair.headway.get("server_peak_rss")]
    return Verdict(
        case=case,
        model=model,
        pairs=len(pairs),
        rate=bootstrap([pair.ratio("examples_per_s") for pair in pairs]),
        first_step=statistics.median(pair.ratio("first_step_seconds") for pair in pairs),
        memory=statistics.median(pair.ratio("peak_rss") for pair in pairs),
        server_memory=statistics.median(pair.ratio("server_peak_rss") for pair in with_servers)
        if with_servers
        else None,
        bare=medians([pair.bare for pair in pairs]),
        headway=medians([pair.headway for pair in pairs]),
    )


def _megabytes(ratio: float | None, one: Verdict, figure: str) -> str:
    return "-" if ratio is None else f"{ratio:.2f} ({one.bare[figure] / 1e6:.0f} / {one.headway[figure] / 1e6:.0f} MB)"


def overhead_table(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for one in verdicts:
        median, low = WANTED_RATE[one.model]
        rows.append(
            [
                one.case,
                f"{one.rate.median:.3f}",
                f"{one.rate.low:.3f} - {one.rate.high:.3f}",
                str(one.pairs),
                f"{one.bare['examples_per_s']:.0f} / {one.headway['examples_per_s']:.0f}",
                f"{one.first_step:.2f} ({one.bare['first_step_seconds']:.1f} / "
                f"{one.headway['first_step_seconds']:.1f} s)",
                _megabytes(one.memory, one, "peak_rss"),
                _megabytes(one.server_memory, one, "server_peak_rss"),
                f">= {median:.2f}" + (f", low >= {low:.2f}" if low is not None else ""),
                "yes" if not one.missed else f"no: {', '.join(one.missed)}",
            ]
        )
    titles = ["case", "median ratio", "95 % interval", "pairs", "examples/s, bare / Headway"]
    titles += ["first step, ratio", "training task's peak memory, ratio", "server's peak memory, ratio"]
    titles += ["wanted", "reached"]
    return markdown(titles, rows)


# --- rounds --------------------------------------------------------------------------------------------------
Round = dict[tuple[str, str], Sample]
"""By variant and setup."""


def rounds_of(samples: Iterable[Sample], kind: str, keep_loaded: bool) -> dict[tuple[str, int], Round]:
    """The samples of a section (scaling, tuned) that count, by model and number of the round."""
    rounds: dict[tuple[str, int], Round] = {}
    for sample in samples:
        if sample["kind"] == kind and (keep_loaded or not sample["loaded"]):
            one = rounds.setdefault((sample["model"], sample["round"]), {})
            one[sample["variant"], sample["setup"]] = sample
    return rounds


def scaling_table(samples: Iterable[Sample], setups: Sequence[str], keep_loaded: bool) -> str:
    """Each training's rate against that of `single` of the same kind in the same round, times its training tasks."""
    shares: dict[tuple[str, str, str], list[float]] = {}
    rates: dict[tuple[str, str, str], list[float]] = {}
    for (model, _), one in rounds_of(samples, "scaling", keep_loaded).items():
        for (variant, setup), sample in one.items():
            key = (model, setup, variant)
            rates.setdefault(key, []).append(sample["examples_per_s"])
            if single := one.get((variant, "single")):
                ideal = single["examples_per_s"] * sample["training_tasks"]
                shares.setdefault(key, []).append(sample["examples_per_s"] / ideal)
    rows = []
    for key in sorted(shares, key=lambda key: (key[0], key[2], setups.index(key[1]))):
        share = bootstrap(shares[key])
        rate, within = statistics.median(rates[key]), f"{share.low:.3f} - {share.high:.3f}"
        rows.append([*key, f"{rate:.0f}", f"{share.median:.3f}", within, str(len(shares[key]))])
    return markdown(["model", "training", "as", "examples/s", "of single x tasks", "95 % interval", "rounds"], rows)


TUNED = {
    "bare": "bare script, as TensorFlow's guides have it",
    "tuned": "bare --tuned: one thread does everything",
    "tuned-malloc": "bare --tuned, Headway's malloc settings",
    "headway": "Headway",
}


def tuned_table(samples: Iterable[Sample], keep_loaded: bool) -> str:
    """Each variant's rate against the bare script's of the same round."""
    found: dict[tuple[str, str], list[tuple[Sample, float]]] = {}
    for (model, _), one in rounds_of(samples, "tuned", keep_loaded).items():
        if bare := one.get(("bare", "single")):
            for (variant, _), sample in one.items():
                ratio = sample["examples_per_s"] / bare["examples_per_s"]
                found.setdefault((model, variant), []).append((sample, ratio))
    rows = []
    for model, variant in sorted(found, key=lambda key: (key[0], list(TUNED).index(key[1]))):
        each = found[model, variant]
        ratio = bootstrap([ratio for _, ratio in each])
        rate, peak = (
            statistics.median(sample[figure] for sample, _ in each) for figure in ("examples_per_s", "peak_rss")
        )
        within = f"{ratio.low:.3f} - {ratio.high:.3f}"
        rows.append(
            [
                model,
                TUNED[variant],
                f"{rate:.0f}",
                f"{ratio.median:.3f}",
                within,
                f"{peak / 1e6:.0f} MB",
                str(len(each)),
            ]
        )
    return markdown(["model", "as", "examples/s", "of bare", "95 % interval", "peak memory", "rounds"], rows)


# --- versions ------------------------------------------------------------------------------------------------
def commits_of(samples: Iterable[Sample]) -> dict[str, int]:
    """The versions that were measured, with the number of their samples. A start that measured nothing is none."""
    counts: dict[str, int] = {}
    commit = "unknown"
    for sample in samples:
        if sample["kind"] == "begin":
            commit = sample.get("commit") or "unknown"
        elif sample["kind"] != "failed":
            counts[commit] = counts.get(commit, 0) + 1
    return counts


# --- files and text ------------------------------------------------------------------------------------------
def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(titles), line(["-" * width for width in widths]), *(line(row) for row in rows)])


class SampleFile:
    """JSON lines that are only ever appended to, so that whatever ends the benchmark leaves what was measured."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # what killed the writer may have torn its last line
        if whole != content:
            path.write_bytes(whole)
        self.samples: list[Sample] = [json.loads(line) for line in whole.splitlines()]

    def add(self, sample: Sample) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(sample) + "\n")
        self.samples.append(sample)
