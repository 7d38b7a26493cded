"""Tables in the documentation come from raw samples that are here."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import accuracy  # noqa: E402
import accuracy_targets as targets  # noqa: E402
import emulated  # noqa: E402
import input as price  # noqa: E402
import layouts  # noqa: E402
import overhead_report  # noqa: E402

Samples = list[dict[str, Any]]


def of_overhead(samples: Samples) -> list[str]:
    return overhead_report.tables(samples, keep_loaded=False).splitlines()


def of_emulated(samples: Samples) -> list[str]:
    is_slow = any(sample["server_rate"] != "1Gbit" for sample in samples)
    return [*emulated.table(samples), *(emulated.link_table(samples) if is_slow else [])]


def of_layouts(samples: Samples) -> list[str]:
    studies = {sample["study"] for sample in samples}
    return [row for study in studies for row in layouts.table([s for s in samples if s["study"] == study])]


@pytest.mark.parametrize(
    ("page", "kind", "tables", "least"),
    [
        ("performance", "overhead", of_overhead, 2),
        ("performance", "accuracy", accuracy.table, 1),
        ("data", "input", price.tables, 1),
        ("accuracy", "targets", targets.tables, 1),
        ("emulated", "emulated", of_emulated, 3),
        ("emulated", "layouts", of_layouts, 1),
    ],
)
def test_every_table_in_the_documentation_comes_from_the_samples_that_it_names(
    page: str, kind: str, tables: Callable[[Samples], list[str]], least: int
) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named = re.findall(rf"`benchmarks/results/({kind}-[\d-]+\.jsonl)`", text)
    assert len(named) >= least
    for name in named:
        samples = [json.loads(line) for line in (ROOT / "benchmarks" / "results" / name).read_text().splitlines()]
        rows = [row for row in tables(samples) if row.startswith("| ")]
        assert len(rows) >= 2
        assert [row for row in rows if row not in text] == []
