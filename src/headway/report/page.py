"""`page` gathers what a report says, as plain data (dictionaries, lists, numbers, texts). Rendering is for others:
html.py, markdown.py, files.py and notebook.py show the same page."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway import __version__
from headway.errors import FormatError, HeadwayError
from headway.record.run import Run
from headway.report import groups as grouping
from headway.report.beside import one_at_a_time, published, shapes
from headway.report.charts import charts
from headway.report.costs import costs
from headway.report.digest import damaged, digest, finite, in_words
from headway.report.found import of_page
from headway.report.groups import Collection, Digests
from headway.report.run_entries import run_entry
from headway.report.tables import details, every_run, io_overhead, resources, results
from headway.report.timeline import num_buckets

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder

FORMAT = 1
Page = dict[str, Any]
FEW = 6  # runs that are read sooner than further processes are started


def page(
    runs: Sequence[Run],
    sweeps: Sequence[SweepFolder] = (),
    title: str | None = None,
    processes: int = 1,
    prices: Mapping[str, float] | None = None,
) -> Page:
    """Everything about these runs and sweeps. `processes`: how many may read run folders at the same time; `prices`:
    dollars an hour by node or kind of node, where the job's machine types have none (metrics.cost)."""
    of_sweeps = [_of_sweep(sweep) for sweep in sweeps]
    paths = list(
        dict.fromkeys(
            [
                *(path for one in of_sweeps for group in one.groups for path in (*group.runs, *group.others)),
                *(str(run.path) for run in runs),
            ]
        )
    )
    read = _digests(paths, processes, dict(prices or {}))
    digests = {path: _that_can_be_shown(path, one) for path, one in zip(paths, read, strict=True)}
    in_sweeps = {path for one in of_sweeps for group in one.groups for path in (*group.runs, *group.others)}
    alone = [str(run.path) for run in runs if str(run.path) not in in_sweeps]
    collections = [*of_sweeps, *([grouping.of_runs(digests, alone)] if alone else [])]
    numbers = {path: f"run-{number}" for number, path in enumerate(paths)}
    made: Page = finite(
        {
            "format": FORMAT,
            "headway": __version__,
            "made": time.time(),
            "title": title or _title(collections, digests),
            **of_page(digests, sweeps, collections),
            "collections": [_collection(one, digests) for one in collections],
            "published": published(collections, digests),
            "every_run": every_run(digests),
            "environments": _environments(digests),
            "ids": numbers,
            "names": {numbers[path]: digests[path]["name"] for path in paths},
        }
    )
    return {**made, "runs": [{"id": numbers[path], **digests[path]} for path in paths]}


def _of_sweep(sweep: SweepFolder) -> Collection:
    """A sweep that was asked for and cannot be read is an error that names it; a folder's were looked at before."""
    try:
        return grouping.of_sweep(sweep)
    except HeadwayError:
        raise
    except Exception as error:  # it may be damaged in any way
        raise FormatError(f"{sweep.path}: its record is damaged ({in_words(error)})") from error


def _digests(paths: Sequence[str], processes: int, prices: dict[str, float]) -> list[dict[str, Any]]:
    num = num_buckets(sum(max(1, len(list((Path(path) / "metrics").glob("*.jsonl")))) for path in paths))
    folders = [Path(path) for path in paths]
    if processes < 2 or len(paths) <= FEW:
        return [digest(folder, num, prices) for folder in folders]
    # Not forked: this process may have threads of its own.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("forkserver")) as pool:
        return list(pool.map(digest, folders, [num] * len(folders), [prices] * len(folders), chunksize=2))


def _that_can_be_shown(path: str, one: dict[str, Any]) -> dict[str, Any]:
    """The same, or a damaged run: one that cannot be shown alone must not hide the others."""
    alone = {path: one}
    try:
        every_run(alone)
        _environments(alone)
        _collection(grouping.of_runs(alone, [path]), alone)
        run_entry({"id": "run-0", **one}, {"findings": []})
    except Exception as error:  # what somebody else wrote can be wrong in any way
        return damaged(one["name"], path, error)
    return one


def _title(collections: Sequence[Collection], digests: Digests) -> str:
    sweeps = [one.title for one in collections if one.sweep]
    if sweeps:
        return ", ".join(sweeps)
    names = list(dict.fromkeys(one["figures"]["name"] for one in digests.values() if one.get("figures")))
    return (names[0] if len(names) == 1 else f"{len(digests)} runs") if names else "Nothing to report"


def _collection(one: Collection, digests: Digests) -> dict[str, Any]:
    tables = [make(one, digests) for make in (results, one_at_a_time, details, resources, io_overhead, costs)]
    return {
        "id": one.slug,
        "title": one.title,
        "sweep": one.sweep,
        "path": one.path,
        "state": one.state,
        "notes": list(one.notes),
        "tables": [table for table in tables if table is not None],
        "charts": charts(one, digests),
        "shapes": shapes(one, digests),
        "groups": [
            {"label": group.label, "runs": list(group.runs), "others": list(group.others)} for group in one.groups
        ],
    }


def _environments(digests: Digests) -> list[dict[str, Any]]:
    """Each machine and set of versions once, with the runs that ran there."""
    found: list[dict[str, Any]] = []
    for path, one in digests.items():
        if "environment" not in one:
            continue
        facts = {**one["environment"], "commit": one["commit"]}
        same = next((known for known in found if known["facts"] == facts), None)
        if same is None:
            found.append({"facts": facts, "runs": [path]})
        else:
            same["runs"].append(path)
    return found
