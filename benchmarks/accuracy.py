"""What the options cost in accuracy: the same training with and without `transfer: bfloat16` and `pull_ahead: 1`.

  benchmarks/accuracy.py             three seeds of every variant, E1's CNN on MNIST, 400 updates (about 20 minutes)
  benchmarks/accuracy.py --seeds 5 --steps 1000

Two training tasks, Adagrad 0.01, batch 100. Times do not count here, so the machine need not be idle. Raw results go to
benchmarks/results/accuracy-*.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from trainings import figures_of

VARIANTS: dict[str, dict[str, Any]] = {
    "ps-async": {"kind": "ps-async"},
    "ps-async, pull_ahead: 1": {"kind": "ps-async", "pull_ahead": 1},
    "ps-async, transfer: bfloat16": {"kind": "ps-async", "transfer": "bfloat16"},
    "ps-async, both": {"kind": "ps-async", "pull_ahead": 1, "transfer": "bfloat16"},
    "allreduce": {"kind": "allreduce"},
    "allreduce, transfer: bfloat16": {"kind": "allreduce", "transfer": "bfloat16"},
}


def train(strategy: dict[str, Any], seed: int, steps: int) -> dict[str, Any]:
    is_shared = strategy["kind"] == "allreduce"  # an update of it has the examples of two
    job = {
        "name": "accuracy",
        "workload": {
            "model": "mnist_cnn",
            "dataset": "mnist",
            "optimizer": {"name": "adagrad", "learning_rate": 0.01},
            "stop": {"steps": steps // 2 if is_shared else steps},
        },
        "strategy": strategy,
        "cluster": {"chief": 1, "worker": 1, **({} if is_shared else {"ps": 1})},
        "seed": seed,
        "export": False,
    }
    figures = figures_of(job)
    staleness = (figures["staleness"] or {}).get("mean")
    return {key: figures[key] for key in ("accuracy", "loss", "train_loss", "steps")} | {"staleness": staleness}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400, help="gradients of all tasks together [400]")
    asked = parser.parse_args()
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    out = results / f"accuracy-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    samples: list[dict[str, Any]] = []
    for seed in range(1, asked.seeds + 1):
        for name, strategy in VARIANTS.items():
            samples.append({"variant": name, "seed": seed, **train(strategy, seed, asked.steps)})
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(samples[-1]) + "\n")
            print(f"seed {seed}, {name}: accuracy {samples[-1]['accuracy']:.4f}", flush=True)
    print("\n" + "\n".join(table(samples)))


def table(samples: list[dict[str, Any]]) -> list[str]:
    rows = ["| variant | accuracy: mean (least to most) | test loss, mean | staleness, mean |", "|---|---|---|---|"]
    for name in VARIANTS:
        mine = [sample for sample in samples if sample["variant"] == name]
        accuracies = [sample["accuracy"] for sample in mine]
        stale = [sample["staleness"] for sample in mine if sample["staleness"] is not None]
        rows.append(
            f"| {name} | {statistics.mean(accuracies):.4f} ({min(accuracies):.4f} to {max(accuracies):.4f}) "
            f"| {statistics.mean(sample['loss'] for sample in mine):.4f} "
            f"| {f'{statistics.mean(stale):.2f}' if stale else '-'} |"
        )
    return rows


if __name__ == "__main__":
    main()
