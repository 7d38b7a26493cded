"""What was published, beside what a page has measured: every table once, judged with all sweeps of the page."""

from __future__ import annotations

from typing import Any

import pytest

from headway.metrics.published import table
from headway.report.beside import published, shapes
from headway.report.files import tables
from headway.report.groups import Collection, Group

Digests = dict[str, Any]
NOISE = (0.99, 1.0, 1.01)
SIZES: tuple[tuple[int, dict[str, Any]], ...] = (
    (1, {"strategy": "single"}),
    (2, {"cluster.worker": 2}),
    (3, {"cluster.worker": 3}),
)


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
    page: dict[str, Any] = {"ids": {}, "collections": [], "runs": [], "findings": [], "published": list(found.values())}
    names = [table.name for table in tables(page)]  # of CSV and Parquet files, and of the notebook's tables
    assert len(set(names)) == len(names)


def test_a_conclusion_is_judged_with_the_trials_of_its_own_sweep(softmax: Page) -> None:
    rows = [row["cells"] for row in softmax.tables()["conclusions-e3-softmax"]["rows"]]
    verdicts = {cells["conclusion"]: cells["verdict"] for cells in rows}
    assert len(verdicts) == len(rows)
    assert verdicts["Synchronous training needs far longer for the same number of global steps."] == "re-found"
    assert verdicts["A larger batch lengthens the training."] == "re-found"
    to_accuracy = [cells for cells in rows if "90 % accuracy" in cells["conclusion"]]
    assert [cells["verdict"] for cells in to_accuracy] == ["not measured yet"] * 2
    assert not any("headway bench" in cells["why"] for cells in to_accuracy)  # the sweep is there, a trial is missing


def test_a_conclusion_names_the_runs_that_it_rests_on(softmax: Page) -> None:
    rows = {row["cells"]["conclusion"]: row for row in softmax.tables()["conclusions-e3-softmax"]["rows"]}
    modes, batches, _ = softmax.sweeps
    slower = rows["Synchronous training needs far longer for the same number of global steps."]["runs"]
    assert sorted(slower) == sorted(path for group in modes.groups for path in group.runs)
    longer = rows["A larger batch lengthens the training."]["runs"]
    assert sorted(longer) == sorted(path for group in batches.groups for path in group.runs)
    assert not rows["Synchronous training uses more memory on the server's node."]["runs"]  # not measured


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


# --- shapes --------------------------------------------------------------------------------------------------------
def shape_rows(page: Page, name: str) -> dict[str, dict[str, Any]]:
    found = page.tables()[f"shape-{name}"]["rows"]
    assert len({row["cells"]["curve"] for row in found}) == len(found)
    return {row["cells"]["curve"]: row for row in found}


def alexnet(*sizes: int) -> Page:
    """E3's AlexNet here: of each batch a curve of its own, the smallest one straight."""
    page = Page()
    groups = [
        page.group(settings | {"workload.batch_size": size}, tasks, examples_per_s=tasks * size - (tasks - 1) * place)
        for place, size in enumerate(sizes)
        for tasks, settings in SIZES
    ]
    page.add("e3-alexnet", "e3-alexnet", *groups)
    return page


def test_curves_are_paired_with_those_that_are_like_them_and_no_pair_is_left_out() -> None:
    rows = shape_rows(alexnet(32, 128), "e3-alexnet")
    assert {name: row["cells"].get("batch") for name, row in rows.items()} == {
        "E3, batch 64": 32,
        "E3, batch 128": None,
        "E3, batch 256": 128,
    }
    assert "2: 2.00 measured, 2.05 published" in rows["E3, batch 64"]["cells"]["words"]
    assert rows["E3, batch 128"]["cells"]["words"] == "nothing here stands beside it"
    assert len(rows["E3, batch 64"]["runs"]) == 9
    assert not set(rows["E3, batch 64"]["runs"]) & set(rows["E3, batch 256"]["runs"])


def test_where_the_same_batches_were_measured_each_stands_beside_its_own() -> None:
    rows = shape_rows(alexnet(64, 128, 256), "e3-alexnet")
    assert [row["cells"]["batch"] for row in rows.values()] == [64, 128, 256]


def test_a_batch_that_the_sweep_does_not_vary_is_known_from_its_runs() -> None:
    page = Page()
    groups = [page.group({"cluster.worker": tasks}, tasks, examples_per_s=tasks) for tasks in (1, 2, 3)]
    for digest in page.digests.values():
        digest["figures"]["batch_size"] = 128
    page.add("mine", "e3-alexnet", *groups)
    rows = shape_rows(page, "e3-alexnet")
    assert [row["cells"].get("batch") for row in rows.values()] == [None, 128, None]


def test_real_data_is_never_paired_with_made_up_data() -> None:
    page = Page()
    kinds = (("synthetic", 1.0), ("real", 0.5))
    groups = [
        page.group({"cluster.worker": tasks}, tasks, data, examples_per_s=tasks**power)
        for data, power in kinds
        for tasks in (1, 8)
    ]
    page.add("e2-scaling", ("e2-daint", "e2-p2"), *groups)
    for name in ("e2-daint", "e2-p2"):
        rows = shape_rows(page, name)
        assert "8: 8.00 measured" in rows["E2, synthetic data"]["cells"]["words"]
        assert "8: 2.83 measured" in rows["E2, real data"]["cells"]["words"]


def test_of_several_configurations_of_one_size_the_best_stands_beside_what_was_published() -> None:
    page = Page()
    groups = [
        page.group({"cluster.worker": workers, "cluster.ps": servers}, workers, examples_per_s=rate)
        for (workers, servers), rate in {(1, 1): 100.0, (1, 2): 90.0, (2, 1): 150.0, (2, 2): 190.0}.items()
    ]
    sweep = page.add("mine", "e1-scaling", *groups)
    assert "2: 1.90 measured" in shape_rows(page, "e1-scaling")["E1, workers of 1 vCPU"]["cells"]["words"]
    (chart,) = shapes(sweep, page.digests)
    theirs, ours = chart["series"]
    assert (theirs["name"], theirs["y"][0]) == ("E1, workers of 1 vCPU", 1.0)
    assert (ours["x"], ours["y"], ours["runs"][1]) == ([1, 2], [1.0, pytest.approx(1.9)], list(groups[3].runs))


def test_modes_are_paired_by_their_strategy_and_both_curves_are_relative_to_a_common_size(softmax: Page) -> None:
    rows = shape_rows(softmax, "e3-softmax")
    assert "agrees at 3 (3: 1.27 measured, 1.27 published)" in rows["E3, asynchronous"]["cells"]["words"]
    assert "one rises where the other falls" in rows["E3, synchronous"]["cells"]["words"]
    single = softmax.group({"strategy": "single"}, 1, steps_per_s=1000.0)
    sweep = softmax.add("again", "e3-softmax", single, *softmax.sweeps[0].groups)
    (chart,) = shapes(sweep, softmax.digests)
    assert [(one["x"][0], one["y"][0]) for one in chart["series"]] == [(2, 1.0)] * 4
    assert shapes(softmax.sweeps[1], softmax.digests) == []  # batches make no curve over tasks


def test_e5s_curve_is_that_of_the_small_server() -> None:
    page = Page()
    small, large = (
        {"cpus": cpus, "memory": "2GiB", "rate": rate} for cpus, rate in ((0.15, "100Mbit"), (0.4, "200Mbit"))
    )
    trials = ((2, small, 10.0), (2, large, 99.0), (3, small, 13.0))
    groups = [
        page.group({"cluster.training": tasks, "site.nodes.ps": server}, tasks, steps_per_s=rate)
        for tasks, server, rate in trials
    ]
    page.add("e5-cluster", "e5-cluster", page.group({"strategy": "single"}, 1, steps_per_s=5.0), *groups)
    (row,) = shape_rows(page, "e5-cluster").values()
    assert row["cells"]["words"] == "relative to 2; agrees at 3 (3: 1.30 measured, 1.31 published)"


def test_why_a_shape_may_be_another_is_said_beside_it(softmax: Page) -> None:
    why = table("e3-softmax").why
    assert why
    assert why in softmax.tables()["shape-e3-softmax"]["note"]
    assert all(
        table(name).why for name in ("e1-scaling", "e1-servers", "e2-daint", "e2-p2", "e3-alexnet", "e5-cluster")
    )


def test_every_contradiction_of_a_row_is_told() -> None:
    page = Page()
    page.add("e5-cluster", "e5-cluster")
    note = page.tables()["published-e5-cluster"]["rows"][0]["note"]
    assert "42,394, but steps is 60,000; " in note
    assert "983, but examples/s are 1,259" in note
