"""What was published, beside what a page has measured: every table once, judged with all sweeps of the page."""

from __future__ import annotations

from typing import Any

import pytest

from headway.report.beside import published
from headway.report.files import tables
from headway.report.groups import Collection, Group

Digests = dict[str, Any]
NOISE = (0.99, 1.0, 1.01)


class Page:
    """Sweeps that nobody ran."""

    def __init__(self) -> None:
        self.digests: Digests = {}
        self.sweeps: list[Collection] = []

    def group(self, settings: dict[str, Any], tasks: int = 2, data: str = "real", **figures: Any) -> Group:
        """A trial of three runs, one per cent apart."""
        label = ", ".join(f"{name} {value}" for name, value in settings.items())
        runs = tuple(f"/{len(self.digests) + number}-{label}" for number in range(len(NOISE)))
        for path, noise in zip(runs, NOISE, strict=True):
            self.digests[path] = {"figures": {name: value * noise for name, value in figures.items()}}
        is_baseline = settings.get("strategy") == "single"
        return Group(label, settings, tasks, runs, is_baseline=is_baseline, data=data, key=runs[0])

    def add(self, name: str, published: str | tuple[str, ...], *groups: Group) -> Collection:
        names = (published,) if isinstance(published, str) else published
        folder = f"{name}-{len(self.sweeps)}"
        sweep = Collection(f"Sweep {name}", groups, sweep=folder, asked_name=name, published=names)
        self.sweeps.append(sweep)
        return sweep

    def tables(self) -> dict[str, dict[str, Any]]:
        found = published(self.sweeps, self.digests)
        assert len({one["id"] for one in found}) == len(found)
        return {one["id"]: one for one in found}


@pytest.fixture
def softmax() -> Page:
    """E3's softmax regression: three sweeps, one published table."""
    page = Page()
    modes = [
        page.group({"strategy": strategy, "cluster.worker": workers}, workers, steps_per_s=rate, examples_per_s=1.0)
        for strategy, workers, rate in (
            ("ps-async", 2, 100.0),
            ("ps-async", 3, 127.0),
            ("ps-sync", 2, 50.0),
            ("ps-sync", 3, 30.0),
        )
    ]
    page.add("e3-softmax", "e3-softmax", *modes)
    batches = [page.group({"workload.batch_size": size}, steps_per_s=1e4 / size) for size in (100, 800)]
    page.add("e3-batch", "e3-softmax", *batches)
    page.add("e3-accuracy", "e3-softmax", page.group({"strategy": "ps-async"}, steps_per_s=1.0))
    return page


def test_a_table_that_several_sweeps_name_stands_there_once(softmax: Page) -> None:
    found = softmax.tables()
    assert [name for name in found if name.startswith("published")] == ["published-e3-softmax"]
    page = {"ids": {}, "collections": [], "runs": [], "findings": [], "published": list(found.values())}
    names = [name for name, _ in tables(page)]  # of CSV and Parquet files, and of the notebook's tables
    assert len(set(names)) == len(names)


def test_a_conclusion_is_judged_with_the_trials_of_its_own_sweep(softmax: Page) -> None:
    rows = [row["cells"] for row in softmax.tables()["conclusions-e3-softmax"]["rows"]]
    verdicts = {cells["conclusion"]: cells["verdict"] for cells in rows}
    assert len(verdicts) == len(rows)
    assert verdicts["Synchronous training needs far longer for the same number of global steps."] == "re-found"
    assert verdicts["A larger batch lengthens the training."] == "re-found"
    (sooner,) = [cells for cells in rows if "90 % accuracy" in cells["conclusion"]]
    assert sooner["verdict"] == "not measured yet"
    assert "headway bench" not in sooner["why"]  # the sweep is there, a trial is missing


def test_a_sweep_that_was_run_twice_is_judged_twice_and_each_row_says_which(softmax: Page) -> None:
    batches = [softmax.group({"workload.batch_size": size}, steps_per_s=float(size)) for size in (100, 800)]
    softmax.add("e3-batch", "e3-softmax", *batches)
    rows = softmax.tables()["conclusions-e3-softmax"]["rows"]
    found = {
        row["note"]: row["cells"]["verdict"] for row in rows if "lengthens the training" in row["cells"]["conclusion"]
    }
    assert found == {"sweep e3-batch-1": "re-found", "sweep e3-batch-3": "not re-found"}


def test_a_table_that_nobody_knows_is_said_once_and_hides_no_other() -> None:
    page = Page()
    page.add("mine", ("e9-nothing", "e1-servers"))
    page.add("other", "e9-nothing")
    found = page.tables()
    assert list(found) == ["published-e9-nothing", "published-e1-servers", "conclusions-e1-servers"]
    assert "no published table" in found["published-e9-nothing"]["note"]
