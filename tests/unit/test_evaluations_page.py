"""docs/evaluations.md is made from raw figures that are here, and says honestly what was not measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import evaluations  # noqa: E402
from evaluations_page import page  # noqa: E402


def trial(settings: dict[str, Any], tasks: int, rate: float, **more: Any) -> dict[str, Any]:
    figures = [{"examples_per_s": rate * noise, "steps_per_s": rate / 100} for noise in (0.99, 1.0, 1.01)]
    fixed = {"baseline": False, "data": "real", "state": "done", "reason": None, "marks": [], "name": str(settings)}
    return {**fixed, "settings": settings, "tasks": tasks, "figures": figures, **more}


def line(sweep: str, *trials: dict[str, Any], finished: bool = True) -> dict[str, Any]:
    about = {"day": "2026-11-16", "machine": "a CPU, 2 cores", "commit": None, "finished": finished, "minutes": 20.0}
    return {"sweep": sweep, **about, "trials": list(trials)}


SCALING = line(
    "e1-scaling",
    trial({"strategy": "single"}, 1, 100, baseline=True, name="single"),
    *(trial({"cluster.worker": n}, n + 1, rate) for n, rate in ((1, 140), (2, 209), (3, 285), (4, 323))),
    trial({"cluster.worker": 5}, 6, 0, figures=[], state="failed", reason="no room"),
)


def test_the_page_in_the_documentation_is_that_of_the_results() -> None:
    results = list(evaluations.read_results().values())
    assert (ROOT / "docs" / "evaluations.md").read_text(encoding="utf-8") == page(results)


def test_before_anything_is_measured_the_page_says_so() -> None:
    text = page([])
    assert "None of it was measured yet" in text
    assert "| E1. MNIST CNN on Google Cloud | 0 | 0 | 0 | 7 |" in text
    assert "**contradictory in the source**" in text  # above linear: shown, and none of the 7


def test_verdicts_shapes_and_failures_are_told() -> None:
    text = page([SCALING])
    assert "| E1. MNIST CNN on Google Cloud | 2 | 0 | 0 | 5 |" in text
    assert "agrees at 2, 3, 4, 5" in text  # the made-up rates are E1's shape
    assert "not measured: 6" in text
    assert "failed: no room" in text
    assert "single (baseline)" in text
    assert "broken off" not in text
    assert "It was broken off" in page([{**SCALING, "finished": False}])


def test_beside_a_shape_stands_why_it_may_differ_and_what_stands_for_what() -> None:
    sizes: list[dict[str, Any]] = [{"strategy": "single"}, {"cluster.worker": 2}, {"cluster.worker": 3}]
    trials = [
        trial(settings | {"workload.batch_size": batch}, tasks, tasks * batch)
        for batch in (32, 128)
        for tasks, settings in enumerate(sizes, start=1)
    ]
    text = page([line("e3-alexnet", *trials)])
    assert "As shape: E3's nodes had 40 threads each" in text
    assert "- batch 64 (here 32): relative to 1; agrees at 2, 3" in text
    assert "- batch 256 (here 128): relative to 1" in text
    assert "- batch 128" not in text


def test_e4_is_shown_one_factor_at_a_time() -> None:
    trials = [
        trial({"workload.model.hidden": size, "workload.dataset.size": data, "layout": layout}, 2, rate)
        for size, rate in (("small", 100.0), ("large", 50.0))
        for data in (1, 3)
        for layout in ("PW-W", "PW-PW", "PS-W-W")
    ]
    text = page([line("e4-autoencoder", *trials)])
    assert "| examples_per_s | hidden large against small | 50.0 % less" in text
    assert "| examples_per_s | layout PW-PW against PW-W | no clear difference" in text


def test_every_sweep_is_known_to_the_benchmark() -> None:
    assert len(evaluations.sweeps()) == 16
