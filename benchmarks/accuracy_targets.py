"""Does training get where it should? Each case is trained for its budget, and what it reaches is held against what is
known of it.

  make bench-accuracy                                     every case; about five hours on two idle cores
  benchmarks/accuracy_targets.py --cases softmax 'spatial-*'      some; patterns are allowed
  benchmarks/accuracy_targets.py --seeds 1 --minutes 20   one seed, and ResNet-20 for 20 minutes instead of 60
  benchmarks/accuracy_targets.py --steps 50               everything for 50 steps only: to try it; nothing is reached
  benchmarks/accuracy_targets.py --resume benchmarks/results/FILE.jsonl    go on after an interruption
  benchmarks/accuracy_targets.py --report benchmarks/results/FILE.jsonl    the tables of what was measured; runs nothing

Times do not count, so the machine need not be idle, but for ResNet-20: it goes as far as its minutes allow. Raw results
go to benchmarks/results/targets-*.jsonl. Exit code 0: everything wanted was reached. (benchmarks/accuracy.py compares
the options of strategies instead, after equal numbers of steps.)
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import distorted
from overhead_figures import Sample, SampleFile, markdown
from trainings import read_of

from headway.record.run import Run

RESULTS = Path(__file__).parent / "results"
EPOCH = 391  # steps of CIFAR-10's 50,000 examples in batches of 128
# ResNet-20 on CIFAR-10, momentum with rate 0.1, batch 128, weight decay 1e-4, pad, crop, flip: the mean training loss
# of each epoch and the test accuracy after it, as one public log of the usual PyTorch implementation has them
# (github.com/JackHuang32/Model-compression, file log_resnet20; of the first epoch it has all but the last 40 steps).
# He et al. (2015) end at 0.9125, after 164 epochs and with the rate cut twice.
KNOWN_LOSS: tuple[float, ...] = (1.647, 1.087, 0.896, 0.772, 0.693, 0.623, 0.575, 0.542, 0.513, 0.484)
KNOWN_LOSS += (0.467, 0.453, 0.435, 0.422, 0.411, 0.402, 0.389, 0.376, 0.373, 0.362)
KNOWN_ACCURACY: tuple[float, ...] = (0.550, 0.629, 0.670, 0.665, 0.727, 0.766, 0.686, 0.781, 0.788, 0.807)
KNOWN_ACCURACY += (0.728, 0.781, 0.812, 0.782, 0.806, 0.820, 0.841, 0.839, 0.809, 0.818)
NEAR_LOSS = 0.1  # of the known loss, from the second epoch on
NEAR_ACCURACY = 0.04  # below the best known accuracy up to there; single ones go up and down by more


@dataclass(frozen=True)
class Case:
    """A training, and what it must reach."""

    workload: dict[str, Any]
    wanted: float | None
    """At least this accuracy; where there is none, at most this loss. None: it is compared with something else."""
    tasks: int = 1
    """More than one: asynchronously, with one server."""

    def job(self, seed: int) -> dict[str, Any]:
        shared = {"strategy": "ps-async", "cluster": {"chief": 1, "worker": self.tasks - 1, "ps": 1}}
        return {
            "name": "targets",
            "workload": self.workload,
            **(shared if self.tasks > 1 else {"strategy": "single"}),
            "seed": seed,
            "export": False,
        }


def workload(model: dict[str, Any], dataset: Any, optimizer: dict[str, Any], steps: int, **more: Any) -> dict[str, Any]:
    return {"model": model, "dataset": dataset, "optimizer": optimizer, "stop": {"steps": steps}, **more}


ADAM = {"name": "adam", "learning_rate": 0.001}
RESNET = {
    "model": {"name": "resnet", "depth": 20},
    "dataset": {"name": "cifar10", "augment": {"shift": 4, "flip": True}},
    "batch_size": 128,
    "optimizer": {"name": "momentum", "learning_rate": 0.1, "weight_decay": 1e-4},
    "evaluate": {"every": 2 * EPOCH},
}


def autoencoder(**settings: Any) -> dict[str, Any]:
    return workload({"name": "autoencoder", **settings}, "mnist", ADAM, 6_000)


def transformer(kind: str | None, **settings: Any) -> dict[str, Any]:
    data: Any = distorted.settings_of(kind) if kind else "mnist"
    return workload({"name": "spatial_transformer", **settings}, data, ADAM, 3_000)


# Made when they are asked for: distorted digits must be there.
CASES: dict[str, Callable[[], Case]] = {
    "e1-cnn": lambda: Case(
        workload({"name": "mnist_cnn"}, "mnist", {"name": "adagrad", "learning_rate": 0.01}, 10_000), 0.990, tasks=2
    ),
    "softmax": lambda: Case(
        workload({"name": "softmax"}, "mnist", {"name": "sgd", "learning_rate": 0.2}, 6_000), 0.91, tasks=2
    ),
    "resnet20": lambda: Case(RESNET, None),
    "autoencoder-small": lambda: Case(autoencoder(), 1.5),
    "autoencoder-large": lambda: Case(autoencoder(hidden="large"), 2.2),
    "autoencoder-variational": lambda: Case(autoencoder(kind="variational"), 22.0),
    "spatial-transformer": lambda: Case(transformer(None), 0.985),
    **{
        f"spatial-{kind}{suffix}": lambda kind=kind, on=on: Case(transformer(kind, transformer=on), None)  # type: ignore[misc]
        for kind in distorted.KINDS
        for suffix, on in (("", True), ("-without", False))
    },
}


def chosen(patterns: Sequence[str]) -> list[str]:
    """ValueError where a pattern means no case."""
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in CASES):
            raise ValueError(f"no case {pattern!r}; there are {', '.join(CASES)}")
    return [name for name in CASES if not patterns or any(fnmatch(name, pattern) for pattern in patterns)]


# --- training ---------------------------------------------------------------------------------------------------------
def train(name: str, seed: int, minutes: float, steps: int | None) -> Sample:
    case = CASES[name]()
    if name == "resnet20":
        case = replace(case, workload={**case.workload, "stop": {"seconds": 60 * minutes}})
    if steps is not None:
        case = replace(case, workload={**case.workload, "stop": {"steps": steps}})
    return {"case": name, "seed": seed, "wanted": case.wanted, **read_of(case.job(seed), outcome)}


def outcome(run: Run) -> Sample:
    figures, rows = run.summary(), sorted(run.rows("steps"), key=lambda row: int(row["step"]))
    epochs = [rows[first : first + EPOCH] for first in range(0, len(rows) - EPOCH + 1, EPOCH)]
    is_resnet = figures["model"] == "resnet"
    return {
        **{key: figures[key] for key in ("accuracy", "loss", "train_loss", "steps", "training_seconds")},
        "evaluations": [[row["step"], row["accuracy"]] for row in run.rows("evaluations")] if is_resnet else [],
        "epoch_losses": [statistics.mean(row["loss"] for row in epoch) for epoch in epochs] if is_resnet else [],
    }


# --- what came out ----------------------------------------------------------------------------------------------------
def tables(samples: Sequence[Sample]) -> list[str]:
    """Markdown: what was wanted and reached, the transformer against its classifier alone, ResNet-20 epoch by epoch."""
    by_case = {name: [sample for sample in samples if sample["case"] == name] for name in CASES}
    lines: list[str] = []
    if rows := [_row(name, mine) for name, mine in by_case.items() if mine and mine[0]["wanted"] is not None]:
        titles = ["case", "seeds", "steps", "mean (least to most)", "wanted", "reached"]
        lines += [markdown(titles, rows), ""]
    if rows := [row for kind in distorted.KINDS if (row := _comparison(kind, by_case))]:
        titles = ["digits", "seeds", "with transformer", "classifier alone", "better in", "reached"]
        lines += [markdown(titles, rows), ""]
    for sample in by_case["resnet20"]:
        lines += [f"ResNet-20, seed {sample['seed']}: {sample['steps']} steps; {_followed(sample)[1]}", ""]
        lines += [_curve(sample), ""]
    return "\n".join(lines).splitlines()


def _row(name: str, samples: Sequence[Sample]) -> list[str]:
    is_accuracy = samples[0]["accuracy"] is not None
    values = [sample["accuracy" if is_accuracy else "loss"] for sample in samples]
    figure = "accuracy" if is_accuracy else "test loss"
    wanted = samples[0]["wanted"]
    return [
        name,
        str(len(samples)),
        f"{samples[0]['steps']:,}",
        f"{figure} {statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})",
        f"{'>=' if is_accuracy else '<='} {wanted:g}",
        "yes" if all(_reaches(sample) for sample in samples) else "no",
    ]


def _reaches(sample: Sample) -> bool:
    if sample["accuracy"] is not None:
        return bool(sample["accuracy"] >= sample["wanted"])
    return bool(sample["loss"] <= sample["wanted"])


def _pairs(kind: str, by_case: dict[str, list[Sample]]) -> list[tuple[float, float]]:
    """Accuracies of each seed that both were trained with: with the transformer, and without."""
    alone = {sample["seed"]: sample["accuracy"] for sample in by_case[f"spatial-{kind}-without"]}
    return [
        (sample["accuracy"], alone[sample["seed"]]) for sample in by_case[f"spatial-{kind}"] if sample["seed"] in alone
    ]


def _comparison(kind: str, by_case: dict[str, list[Sample]]) -> list[str] | None:
    pairs = _pairs(kind, by_case)
    if not pairs:
        return None
    better = sum(one > other for one, other in pairs)
    means = [f"{statistics.mean(side):.4f} ({min(side):.4f} to {max(side):.4f})" for side in zip(*pairs, strict=True)]
    return [kind, str(len(pairs)), *means, f"{better} of {len(pairs)}", "yes" if better == len(pairs) else "no"]


def _followed(sample: Sample) -> tuple[bool, str]:
    """Whether the known curve was followed, and in words how."""
    losses = sample["epoch_losses"][: len(KNOWN_LOSS)]
    if len(losses) < 2 or not sample["evaluations"]:
        return False, "too few for a verdict: two epochs and an evaluation are needed"
    off = [abs(loss / known - 1) for loss, known in zip(losses, KNOWN_LOSS, strict=False)][1:]
    best = max(accuracy for step, accuracy in sample["evaluations"] if step <= EPOCH * len(KNOWN_ACCURACY) + 1)
    known_best = max(KNOWN_ACCURACY[: max(1, len(losses))])
    followed = max(off) <= NEAR_LOSS and best >= known_best - NEAR_ACCURACY
    return followed, (
        f"{'follows' if followed else 'does not follow'} the known curve: training loss off by at most {max(off):.1%} "
        f"(allowed: {NEAR_LOSS:.0%}), best test accuracy {best:.3f} (known: {known_best:.3f}; allowed: {NEAR_ACCURACY} "
        "less)"
    )


def _curve(sample: Sample) -> str:
    seen = {round(step / EPOCH): accuracy for step, accuracy in sample["evaluations"]}
    rows = [
        [str(epoch), f"{loss:.3f}", f"{known:.3f}", f"{seen[epoch]:.3f}" if epoch in seen else "", f"{accuracy:.3f}"]
        for epoch, (loss, known, accuracy) in enumerate(
            zip(sample["epoch_losses"], KNOWN_LOSS, KNOWN_ACCURACY, strict=False), 1
        )
    ]
    return markdown(["epoch", "training loss", "known", "test accuracy", "known"], rows)


def is_reached(samples: Sequence[Sample], names: Sequence[str]) -> bool:
    """Whether each of these cases was trained and reached what is wanted of it."""
    by_case = {name: [sample for sample in samples if sample["case"] == name] for name in CASES}
    return (
        all(by_case[name] for name in names)
        and all(_reaches(sample) for sample in samples if sample["wanted"] is not None)
        and all(one > other for kind in distorted.KINDS for one, other in _pairs(kind, by_case))
        and all(_followed(sample)[0] for sample in by_case["resnet20"])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=[], help=f"of {', '.join(CASES)}; patterns are allowed [all]")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each case; ResNet-20 has one [3]")
    parser.add_argument("--minutes", type=float, default=60, help="that ResNet-20 trains for [60]")
    parser.add_argument("--steps", type=int, help="of every case, instead of its own: to try it")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with the results of this file")
    parser.add_argument("--report", type=Path, metavar="FILE", help="only print the tables of this file")
    asked = parser.parse_args()
    try:
        names = chosen(asked.cases)
    except ValueError as error:
        sys.exit(f"accuracy_targets.py: {error}")
    file = SampleFile(asked.report or asked.resume or RESULTS / f"targets-{time.strftime('%Y%m%d-%H%M%S')}.jsonl")
    if not asked.report:
        for seed in range(1, asked.seeds + 1):
            for name in names:
                done = any((sample["case"], sample["seed"]) == (name, seed) for sample in file.samples)
                if not done and (seed == 1 or name != "resnet20"):
                    sample = train(name, seed, asked.minutes, asked.steps)
                    file.add(sample)
                    accuracy = "" if sample["accuracy"] is None else f"accuracy {sample['accuracy']:.4f}, "
                    print(
                        f"{name}, seed {seed}: {sample['steps']} steps, {accuracy}loss {sample['loss']:.4f}", flush=True
                    )
    print("\n" + "\n".join(tables(file.samples)) + f"\nraw results: {file.path.name}")
    sys.exit(0 if is_reached(file.samples, names) else 1)


if __name__ == "__main__":
    main()
