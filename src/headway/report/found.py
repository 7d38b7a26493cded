"""Findings of several runs put together: what is true of several of them stands once, with a case for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headway.findings import Finding, explain_loss, of_sweep
from headway.findings.advice import JobKind
from headway.findings.catalogue import unexplained
from headway.report.digest import in_words
from headway.report.tables import speedups

if TYPE_CHECKING:
    from headway.bench.folder import SweepFolder
    from headway.report.groups import Collection, Digests

CERTAINTY = ("certain", "likely", "possible")
Case = dict[str, Any]
"""A finding as plain data, with the `path` of its run, or None where it is of a `sweep`."""


def together(each: Iterable[Case]) -> list[list[Case]]:
    """Cases that say the same, the surest first; trouble first, of that the surest, of these the commonest."""
    found: dict[tuple[str, str, bool], list[Case]] = {}
    for case in each:
        found.setdefault((case["rule"], case["title"], case["trouble"]), []).append(case)
    for cases in found.values():
        cases.sort(key=_certainty)
    return sorted(found.values(), key=lambda cases: (not cases[0]["trouble"], _certainty(cases[0]), -num_of(cases)))


def _certainty(case: Case) -> int:
    return CERTAINTY.index(case["certainty"])


def num_of(cases: Sequence[Case], what: str = "path") -> int:
    """How many different runs (or sweeps) they are of: one may have several cases."""
    return len({case[what] for case in cases if case.get(what) is not None})


def of_page(digests: Digests, sweeps: Sequence[SweepFolder], collections: Sequence[Collection] = ()) -> dict[str, Any]:
    """`findings`, and what no rule could read: `runs_not_read` (paths) and `sweeps_not_read` (names)."""
    each = [{**one, "path": path, "sweep": None} for path, run in digests.items() for one in run.get("findings", ())]
    unread: dict[str, str] = {}
    for sweep in sweeps:
        try:
            found = of_sweep(sweep, lambda folder: _is_explained(digests.get(str(folder.path))))
            each += [{**asdict(one), "path": None, "sweep": sweep.name} for one in found]
        except Exception as error:  # a damaged run of it must not hide the others
            unread[sweep.name] = in_words(error)
    for collection in collections:
        if collection.sweep is None:
            each += [{**asdict(one), "path": path, "sweep": None} for path, one in _losses(collection, digests)]
    return {
        "findings": [_finding(cases) for cases in together(each)],
        "runs_not_read": [path for path, run in digests.items() if run["problem"] or run["findings_problem"]],
        "sweeps_not_read": unread,
    }


def _is_explained(run: Mapping[str, Any] | None) -> bool:
    """Whether a rule found in a run what can cost speed. What could not be read may have a reason, too."""
    if run is None or run["problem"] or run["findings_problem"]:
        return True
    return explain_loss((one["rule"], one["trouble"]) for one in run["findings"])


def _losses(collection: Collection, digests: Digests) -> Iterator[tuple[str, Finding]]:
    """Of runs that were given one by one: the speed-ups that fall short of ideal for no known reason."""
    for group in collection.groups:
        faster = speedups(collection, digests).get(group.key)
        if faster is None or not faster.is_short or any(_is_explained(digests[path]) for path in group.runs):
            continue
        one = group.figures(digests)[0]
        job = JobKind(one["strategy"], one["site"], one["command"] is not None, one["num_ps"] > 0)
        yield group.runs[0], unexplained.of_speedup(job, faster)


def _finding(cases: list[Case]) -> dict[str, Any]:
    """`advice` is None where that of its cases differs."""
    kept = ("path", "sweep", "resource", "text", "certainty", "advice", "evidence")
    return {
        **{key: cases[0][key] for key in ("rule", "title", "trouble", "certainty")},
        "advice": cases[0]["advice"] if len({case["advice"] for case in cases}) == 1 else None,
        "runs": num_of(cases),
        "sweeps": num_of(cases, "sweep"),
        "cases": [{key: case[key] for key in kept} for case in cases],
    }


def no_trouble(page: dict[str, Any]) -> str | None:
    """What to say where there is no trouble. None: there is, or no record could be read at all."""
    unread = len(page["runs_not_read"])
    if any(one["trouble"] for one in page["findings"]) or (unread and unread == len(page["runs"])):
        return None
    if unread or page["sweeps_not_read"]:
        return "No trouble was found in what the rules could read."
    return "No trouble was found: no rule saw a resource or a task that held these runs back."
