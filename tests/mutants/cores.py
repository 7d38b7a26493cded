"""The files whose unit tests are tried with mutants: what decides, and does nothing but decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from mutate import Mutation

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "headway"
UNIT = ROOT / "tests" / "unit"
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")

# A core, and its own unit tests: names in tests/unit, the quick and telling ones first.
CORES: Mapping[str, tuple[str, ...]] = {
    "launch/supervisor.py": ("test_supervisor*.py", "test_standstill*.py"),
    "launch/ending.py": ("test_ending.py", "test_supervisor_program_ends.py", "test_supervisor*.py"),
    "launch/restarts.py": ("test_restarts.py", "test_supervisor_program_ends.py", "test_supervisor*.py"),
    "launch/watch.py": ("test_watch.py", "test_standstill*.py", "test_supervisor*.py"),
    "launch/taskstate.py": ("test_taskstate.py", "test_standstill*.py", "test_supervisor*.py"),
    "launch/groups.py": ("test_groups.py", "test_supervisor_allreduce*.py"),
    "launch/measuring.py": ("test_measuring.py", "test_supervisor_measuring.py"),
    "engines/tensorflow/barrier.py": ("test_barrier.py", "test_barrier_histories.py"),
    "engines/tensorflow/placement.py": ("test_placement.py",),
    "spec/layout.py": ("test_layout.py",),
    "spec/resolve.py": ("test_resolve*.py", "test_spec.py", "test_programs.py", "test_nodes.py"),
    "metrics/estimate.py": ("test_metrics_estimate_exact.py", "test_metrics_estimate.py"),
    "metrics/scaling.py": ("test_metrics_scaling.py",),
    "metrics/cost.py": ("test_metrics_cost_exact.py", "test_metrics_cost.py"),
    "metrics/consistency.py": ("test_metrics_consistency.py", "test_metrics_published.py"),
    "metrics/conclusions.py": ("test_metrics_conclusions_limits.py", "test_metrics_conclusions.py"),
    "record/summary.py": ("test_summary*.py", "test_record_strategies.py", "test_record.py"),
    "bench/search.py": ("test_sweep_search.py",),
    "bench/schedule.py": ("test_sweep_schedule.py",),
    "bench/judge.py": ("test_sweep_judge_limits.py", "test_sweep_judge.py"),
}


def tests_of(core: str) -> list[Path]:
    found = [path for pattern in CORES[core] for path in sorted(UNIT.glob(pattern))]
    return list(dict.fromkeys(found))


def module_of(core: str) -> str:
    return "headway." + core.removesuffix(".py").replace("/", ".")


def equivalents(path: Path = EQUIVALENT) -> dict[str, dict[tuple[str, str, str, int], str]]:
    """Of each core: mutations that change nothing that anybody can see, and why."""
    listed = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return {
        core: {(one["function"], one["before"], one["after"], one.get("occurrence", 0)): one["why"] for one in entries}
        for core, entries in listed.items()
    }


def is_listed(core: str, mutation: Mutation, listed: Mapping[str, Mapping[tuple[str, str, str, int], str]]) -> bool:
    return mutation.key in listed.get(core, {})
