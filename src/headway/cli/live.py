"""What a user sees while a run goes on: a display in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.output import Format, is_terminal
from headway.cli.top import REFRESH, evaluation_text, left_text, progress_text, render
from headway.cli.visible import beneath, visible
from headway.plural import counted
from headway.record import standstills
from headway.record.usage import jump_in_words
from headway.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.record.folder import RunFolder
    from headway.spec.cluster import Task
    from headway.spec.job import Job

LINE_EVERY = 10.0  # seconds between progress lines without a terminal


def watcher_for(folder: RunFolder, output: Format) -> Lines:
    """With -o json the progress goes to standard error, so that standard output is JSON alone."""
    if output is Format.json or not is_terminal():
        return Lines(folder, sys.stderr if output is Format.json else sys.stdout)
    return Display(folder, sys.stdout)


class Lines:
    """One line for each thing that happens, without escape codes."""

    def __init__(self, folder: RunFolder, stream: Any) -> None:
        self.folder = folder
        self.stream = stream
        self.began = time.monotonic()
        self.evaluation: dict[str, Any] | None = None
        self._next_line = 0.0
        self._fetched = 0.0

    def begin(self, job: Job, choices: Sequence[dict[str, Any]]) -> None:
        self.job = job
        self.line(f"{self.folder.name}: {describe(job)}")
        for choice in choices:
            self.line(f"  chosen {choice['path']}: {choice['value']} ({choice['reason']})")

    def finish(self) -> None:
        pass

    def line(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            print(text, file=self.stream, flush=True)
        except OSError:  # nobody reads any more (`| head`, a closed terminal): the run goes on
            self.stream = None

    # --- what the launcher tells -----------------------------------------------------------------------------
    def fetching(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self._fetched > 2 or (total and done >= total):
            self._fetched = now
            of = f" of {format_bytes(total)}" if total else ""
            self.line(f"{self._clock()} data: {what}: {format_bytes(done)}{of}")

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "state":
            reason = f" ({fields['reason']})" if fields.get("reason") else ""
            self.line(f"{self._clock()} {fields['state']}{reason}")
        elif (text := note_text(kind, fields)) is not None:
            self.line(f"{self._clock()} {text}")

    def said(self, task: Task, event: dict[str, Any]) -> None:
        if event["kind"] == "evaluation":
            self.evaluation = event
            self.line(f"{self._clock()} {evaluation_text(event)}")
        elif event["kind"] == "disconnected":
            self.line(f"{self._clock()} {task} lost the others: {event['error'][:100]}")

    def looked(self, status: Callable[[], dict[str, Any]]) -> None:
        now = time.monotonic()
        if now >= self._next_line and (seen := status())["training_seconds"] is not None:
            self._next_line = now + LINE_EVERY
            self.line(f"{self._clock()} {progress_text(seen)}{left_text(seen)}")

    def _clock(self) -> str:
        return f"[{time.monotonic() - self.began:7.1f} s]"


class Display(Lines):
    """The same, in place: the picture that `headway top` draws, and what happened last."""

    def __init__(self, folder: RunFolder, stream: Any) -> None:
        super().__init__(folder, stream)
        self.happened: deque[str] = deque(maxlen=6)
        self.status: dict[str, Any] | None = None
        self.doing = "preparing"
        self._next_look = 0.0

    def begin(self, job: Job, choices: Sequence[dict[str, Any]]) -> None:
        from rich.console import Console
        from rich.live import Live

        super().begin(job, choices)
        out = Console(file=beneath())
        self._live = Live(console=out, get_renderable=self._render, refresh_per_second=REFRESH, transient=True)
        self._live.start()

    def finish(self) -> None:
        self._live.stop()
        for text in self.happened:
            print(text)

    def line(self, text: str) -> None:
        if hasattr(self, "_live"):
            self.happened.append(visible(text))
        else:
            print(text)

    def fetching(self, what: str, done: int, total: int | None) -> None:
        self.doing = f"fetching {visible(what)}: {format_bytes(done)}" + (f" of {format_bytes(total)}" if total else "")

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "state":
            self.doing = fields["state"]
        super().noted(kind, fields)

    def looked(self, status: Callable[[], dict[str, Any]]) -> None:
        if time.monotonic() >= self._next_look:
            self.status = status()  # a value: it is drawn by another thread
            self._next_look = time.monotonic() + 1 / REFRESH

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        happened = [Text(text, style="dim") for text in self.happened]
        if self.status is None:
            return Group(
                Text(f"{self.doing}, {format_seconds(time.monotonic() - self.began)}", style="bold"), *happened
            )
        return Group(render(self.status, spare=len(happened) + 1), *happened)


# --- words ---------------------------------------------------------------------------------------------------
def describe(job: Job) -> str:
    counts = ", ".join(
        f"{count} {role}" for role in ("chief", "worker", "ps", "evaluator") if (count := job.cluster.role(role).count)
    )
    return f"{job.workload.title}, {job.strategy.kind} ({counts}), site {job.site.kind}"


def note_text(kind: str, fields: dict[str, Any]) -> str | None:
    """A note of the supervisor in plain words; None where it is of no interest while one watches."""
    match kind:
        case "task_exited" if not fields["expected"]:
            return f"{fields['task']} ended: {fields['reason']}"
        case "restarting":
            return f"{fields['task']} is started again (restart {fields['restart']} of {fields['allowed']})"
        case "rollback":
            where = f"the checkpoint of step {fields['step']}" if fields["step"] else "step 0 (there was no checkpoint)"
            return f"back to {where}: {counted(fields['steps_lost'], 'step')} lost (was at {fields['step_before']})"
        case "stopped" | "silent" | "stalled" | "blocked":
            return standstills.words(kind, fields)
        case "going_on":
            return f"{fields['task']} goes on"
        case "unresponsive":
            return f"{fields['task']} gives no sign of life for {format_seconds(fields['seconds'])}"
        case "given_up":
            return f"{fields['task']} is given up ({fields['reason']}); the others go on"
        case "failure_ignored":
            return f"warning: {fields['task']} failed: {fields['reason']}; {fields['why']}"
        case "agent_lost" | "regrouping":
            return f"{kind.replace('_', ' ')}: {fields['reason']}"
        case "clock_jumped":
            return jump_in_words(fields)
        case "stop_asked":
            return f"stop asked ({fields['reason']}): " + (
                "at once" if fields["at_once"] else "in order; once more: at once"
            )
        case "kill_overdue":
            return "killed tasks do not end; their node is ended"
        case "hosts_up":
            return f"{counted(fields['count'], 'emulated host')} up ({format_seconds(fields['seconds'])})"
        case "network_measured" if not fields["ok"]:
            between = " to ".join(fields[end] for end in ("node", "to") if end in fields) or "all nodes at once"
            text = format_seconds if fields["what"] == "round_trip" else format_rate
            what = fields["what"].replace("_", " ")
            return f"{between}: {what} {text(fields['got'])}, but {text(fields['asked'])} was asked"
        case "not_limited":
            return f"node {fields['node']}: {'; '.join(fields['problems'])}"
        case "no_outbound":
            return f"no outbound network: {fields['why']}"
        case "leftover_removed":
            return f"removed what a killed run had left: {fields['what']}"
        case "metrics_served":
            return f"metrics for Prometheus: {fields['address']}"
        case _:
            return None
