"""What the record of a run says about a fault. Reads a run folder; judges nothing (verdict.py does)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from matrix import Setup

from headway.record.folder import LAUNCHER, RunFolder
from headway.record.reader import read_events
from headway.record.tables import who_wrote

Event = dict[str, Any]

# Notes that say: this task is the trouble.
NAMING = ("restarting", "given_up", "stopped", "silent", "stalled", "blocked", "unresponsive")
BLAMING = tuple(kind for kind in NAMING if kind != "silent")  # silence alone may be a busy machine's
ECHO = 1.0  # seconds in which what was under way at the fault still ends
UNWRITTEN = 2.0  # seconds: rows of a killed task's last moments may be missing (half a second, on an idle machine)


@dataclass(frozen=True)
class Seen:
    """A run with a fault, in numbers. All times are seconds after the fault."""

    state: str
    reason: str | None
    exit_code: int | None
    step: int | None = None
    """The global step of the final model; None: there is none."""
    accuracy: float | None = None
    loss: float | None = None
    fault_step: int | None = None
    """The step when the fault came."""
    named: float | None = None
    """When the launcher first named the task."""
    named_by: str | None = None
    """... and by which kind of note."""
    reasons: list[str] = field(default_factory=list)
    """Of the task's restarts, or of its giving up."""
    killed: float | None = None
    """When the task was gone."""
    back: float | None = None
    """When every training task had made a step in the state that lasted to the end."""
    blamed: list[str] = field(default_factory=list)
    """Other tasks that were called the trouble."""
    restarted: dict[str, int] = field(default_factory=dict)
    """How often each task was started again."""
    initialized: list[str] = field(default_factory=list)
    """How a chief made sure of the variables, after the fault."""
    restored: int | None = None
    """The step that was restored."""
    checkpoint: int | None = None
    """The newest checkpoint that had been recorded before that."""
    highest: int | None = None
    """The highest step that was recorded before that."""
    rollbacks: list[tuple[int, int, int]] = field(default_factory=list)
    """What the launcher recorded: step before, step, steps lost."""
    meanwhile: int = 0
    """Steps (ps-sync: updates) that others made before it was back."""
    longest_pause: float = 0.0
    """The longest time without one of these."""
    miscounted: list[str] = field(default_factory=list)
    """Steps of the last state that are not recorded exactly once."""
    bad_updates: list[str] = field(default_factory=list)
    """Updates of ps-sync that have not one gradient each of as many tasks as asked."""
    left: list[str] = field(default_factory=list)
    """Processes and namespaces that outlived the run."""
    broke: str | None = None
    """Why the cell could not be run to its end."""
    seconds: float = 0.0
    """The whole run, from command to end."""
    load: float = 0.0
    """Of the machine when the cell began, before it did anything."""


class Record:
    """All events of a run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.events: list[Event] = []
        for path in folder.events_folder.glob("*.jsonl"):
            self.events += ({"task": (who := who_wrote(path)), **event, "by": who} for event in read_events(path))
        self.events.sort(key=lambda event: float(event["t"]))

    def kind(self, *kinds: str, by: str | None = None, since: float = 0.0) -> list[Event]:
        return [
            event
            for event in self.events
            if event["kind"] in kinds and by in (None, event["by"]) and event["t"] >= since
        ]


def end_of(record: Record) -> dict[str, Any]:
    """Step, accuracy and loss of the final model."""
    finished = record.kind("finished")
    return {key: finished[-1][key] for key in ("step", "accuracy", "loss")} if finished else {}


def count(record: Record, setup: Setup, at: float) -> dict[str, Any]:
    """What must be right whatever happened: fields of Seen."""
    again = [note for note in record.kind("task_started", by=LAUNCHER) if note["attempt"] > 0]
    return {
        "restarted": dict(Counter(note["task"] for note in again)),
        "miscounted": _miscounted(record, setup, at),
        "bad_updates": _bad_updates(record, setup),
    }


def observe(record: Record, setup: Setup, task: str, at: float) -> dict[str, Any]:
    """What came after the fault that hit `task` at time `at`: fields of Seen."""
    notes = record.kind(*NAMING, by=LAUNCHER, since=at)
    failed = [note for note in record.kind("state", by=LAUNCHER, since=at) if task in note.get("reason", "")]
    named = next((note for note in notes if note["task"] == task), next(iter(failed), None))
    ended = record.kind("task_exited", by=LAUNCHER, since=at)
    rows = record.kind("step")
    joined = record.kind("joined", by=task, since=at)
    rejoined = next((row["t"] for row in joined if row["attempt"] > 0), None)
    initialized = record.kind("initialized", since=at)
    restoring = next((event for event in initialized if event["how"] == "restored"), None)
    generation = _last_generation(record)
    counts = count(record, setup, at)
    first = [
        next(
            (
                row["t"]
                for row in rows
                if row["by"] == name
                and row["t"] > at
                and row["generation"] == generation
                and row["attempt"] == counts["restarted"].get(name, 0)
            ),
            None,
        )
        for name in setup.training
    ]
    return {
        "named": named and named["t"] - at,
        "named_by": named and named["kind"],
        "reasons": [note["reason"] for note in notes if note["task"] == task and "reason" in note],
        "killed": next((note["t"] - at for note in ended if note["task"] == task), None),
        "back": None if None in first else max(t for t in first if t is not None) - at,
        "blamed": [
            f"{note['task']} ({note['kind']})" for note in notes if note["task"] != task and note["kind"] in BLAMING
        ],
        "initialized": [event["how"] for event in initialized],
        **_rollback(record, restoring, at),
        **_meanwhile(record, setup, task, at, rejoined if restoring is None else restoring["t"]),
        **counts,
    }


def _meanwhile(record: Record, setup: Setup, task: str, at: float, until: float | None) -> dict[str, Any]:
    """Steps of others (ps-sync: updates) between the fault and its end, in the state that it met; what was under way
    at the fault is left out."""
    made = record.kind("initialized")
    met = max((event["generation"] for event in made if event["t"] < at), default=made[0]["generation"] if made else 0)
    if until is None:
        return {}
    progress = (
        record.kind("update") if setup.kind == "ps-sync" else [row for row in record.kind("step") if row["by"] != task]
    )
    steps = [row["t"] for row in progress if at + ECHO < row["t"] < until and row["generation"] == met]
    pauses = [later - earlier for earlier, later in pairwise([at + ECHO, *steps, until])]
    return {"meanwhile": len(steps), "longest_pause": max(pauses)}


def _rollback(record: Record, restoring: Event | None, at: float) -> dict[str, Any]:
    """What was restored, and what the rows of steps and checkpoints say about it."""
    notes = record.kind("rollback", by=LAUNCHER, since=at)
    recorded = [(note["step_before"], note["step"], note["steps_lost"]) for note in notes]
    if restoring is None:
        return {"rollbacks": recorded}
    earlier = [event for event in record.kind("step", "update") if event["generation"] == restoring["generation"] - 1]
    saved = [event["step"] for event in record.kind("checkpoint") if event["t"] < restoring["t"]]
    return {
        "rollbacks": recorded,
        "restored": restoring["step"],
        "highest": max((event["step"] for event in earlier), default=None),
        "checkpoint": max(saved, default=None),
    }


def _last_generation(record: Record) -> int:
    return max((event["generation"] for event in record.kind("initialized")), default=0)


def _miscounted(record: Record, setup: Setup, at: float) -> list[str]:
    """In the state that lasted to the end, every step must have been made exactly once.

    Rows that a killed task had not written yet are missing in ps-async (elsewhere another task's row, or ps/0's, or the
    repeated step stands for it): such gaps may lie around the fault only.
    """
    generation = _last_generation(record)
    made = next(
        (
            event
            for event in record.kind("initialized")
            if event["generation"] == generation and event["how"] != "adopted"
        ),
        None,
    )
    end = end_of(record).get("step")
    if made is None or end is None:
        return []
    rows = [row for row in record.kind("step") if row["generation"] == generation]
    if setup.kind == "ps-sync":
        counts = {"updates": [event for event in record.kind("update") if event["generation"] == generation]}
    elif setup.kind == "allreduce":
        counts = {name: [row for row in rows if row["by"] == name] for name in setup.training}
    else:
        counts = {"all": rows}
    deaths = [note["t"] for note in record.kind("task_exited", by=LAUNCHER) if not note.get("expected", False)]
    may_miss: set[int] = set()
    for death in (at, *deaths) if setup.kind == "ps-async" else ():
        around = [row["step"] for row in rows if death - UNWRITTEN < row["t"] < death + UNWRITTEN]
        may_miss |= {*range(min(around), max(around) + 1)} if around else set()
    problems = []
    for who, events in counts.items():
        times = Counter(event["step"] for event in events)
        missing = [step for step in range(made["step"] + 1, end + 1) if not times[step] and step not in may_miss]
        double = [step for step, count in times.items() if count > 1]
        beyond = [step for step in times if not made["step"] < step <= end]
        for what, steps in (("missing", missing), ("double", double), ("beyond the end", beyond)):
            if steps:
                problems.append(f"{who}: {len(steps)} steps {what}, the first is {min(steps)}")
    return problems


def _bad_updates(record: Record, setup: Setup) -> list[str]:
    wanted = int(setup.strategy.get("aggregate") or len(setup.training))
    bad = [
        event
        for event in record.kind("update")
        if len(event["tasks"]) != wanted
        or len(set(event["tasks"])) != wanted
        or not {*event["tasks"]} <= {*setup.training}
    ]
    return [f"{len(bad)} updates, the first is step {bad[0]['step']} with {bad[0]['tasks']}"] if bad else []
