"""What a user sees while a run goes on: a display in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.cli.output import Format, is_terminal, number
from headway.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headway.launch.supervisor import Supervisor
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

    def looked(self, supervisor: Supervisor) -> None:
        now = time.monotonic()
        if now >= self._next_line and supervisor.training_since:
            self._next_line = now + LINE_EVERY
            self.line(f"{self._clock()} {progress_text(supervisor)}")

    def _clock(self) -> str:
        return f"[{time.monotonic() - self.began:7.1f} s]"


class Display(Lines):
    """The same, in place: a progress bar, a table of tasks, and what happened last."""

    def __init__(self, folder: RunFolder, stream: Any) -> None:
        super().__init__(folder, stream)
        self.happened: deque[str] = deque(maxlen=6)
        self.supervisor: Supervisor | None = None
        self.doing = "preparing"

    def begin(self, job: Job, choices: Sequence[dict[str, Any]]) -> None:
        from rich.live import Live

        super().begin(job, choices)
        self._live = Live(get_renderable=self._render, refresh_per_second=5, transient=True)
        self._live.start()

    def finish(self) -> None:
        self._live.stop()
        for text in self.happened:
            print(text)

    def line(self, text: str) -> None:
        if hasattr(self, "_live"):
            self.happened.append(text)
        else:
            print(text)

    def fetching(self, what: str, done: int, total: int | None) -> None:
        self.doing = f"fetching {what}: {format_bytes(done)}" + (f" of {format_bytes(total)}" if total else "")

    def noted(self, kind: str, fields: dict[str, Any]) -> None:
        if kind == "state":
            self.doing = fields["state"]
        super().noted(kind, fields)

    def looked(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        supervisor = self.supervisor
        parts: list[Any] = [Text(f"{self.doing}, {format_seconds(time.monotonic() - self.began)}", style="bold")]
        if supervisor:
            parts[0].append(f"   {progress_text(supervisor)}", style="not bold")
            if target := self.job.workload.stop.steps:
                bar = Table.grid(padding=(0, 2, 0, 0))  # a bare bar does not end its line
                share = min(1.0, supervisor.max_step / target)
                bar.add_row(ProgressBar(total=1.0, completed=share, width=72), f"{share:.0%}")
                parts.append(bar)
            table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
            for column in ("task", "phase", "own steps", "steps/s", "loss", "restarts"):
                table.add_column(column, justify="left" if column in ("task", "phase") else "right")
            for task, state in supervisor.tasks.items():
                trains = task.role in ("chief", "worker")
                table.add_row(
                    str(task),
                    Text(phase_text(state), style="red" if state.stalled else ""),
                    f"{state.own_steps:,}" if trains else "",
                    number(supervisor.steps_per_s(task)) if trains else "",
                    number(state.loss) if trains else "",
                    str(state.restarts or ""),
                )
            parts.append(table)
        parts += [Text(text, style="dim") for text in self.happened]
        return Group(*parts)


# --- words ---------------------------------------------------------------------------------------------------
def describe(job: Job) -> str:
    counts = ", ".join(
        f"{count} {role}" for role in ("chief", "worker", "ps", "evaluator") if (count := job.cluster.role(role).count)
    )
    workload = job.workload
    return f"{workload.model.name} on {workload.dataset.name}, {job.strategy.kind} ({counts}), site {job.site.kind}"


def progress_text(supervisor: Supervisor) -> str:
    job = supervisor.job
    training = job.cluster.training_tasks()
    rates = {task: rate for task in training if (rate := supervisor.steps_per_s(task))}
    target = job.workload.stop.steps
    losses = [loss for task in training if isinstance(loss := supervisor.tasks[task].loss, float)]
    text = f"step {supervisor.max_step:,}" + (f" of {target:,}" if target else "")
    if rates:
        total = sum(rates.values())
        if job.strategy.is_synchronous:
            total /= len(rates)  # their steps are one and the same
        examples = sum(rate * job.batch_size_of(task) for task, rate in rates.items())
        text += f", {number(total)} steps/s, {number(examples, 4)} examples/s"
        if target and supervisor.max_step < target and supervisor.state == "running":
            text += f", about {format_seconds((target - supervisor.max_step) / total)} left"
    if losses:
        text += f", loss {number(sum(losses) / len(losses))}"
    return text


def phase_text(state: Any) -> str:
    return "stalled" if state.stalled else (state.busy or state.phase)


def evaluation_text(event: dict[str, Any]) -> str:
    quality = f"accuracy {event['accuracy']:.4f}, " if isinstance(event.get("accuracy"), float) else ""
    loss = event["loss"] if isinstance(event["loss"], float) else None
    return f"step {event['step']:,}: {quality}loss {number(loss)} on {event['num_examples']:,} test examples"


def note_text(kind: str, fields: dict[str, Any]) -> str | None:
    """A note of the supervisor in plain words; None where it is of no interest while one watches."""
    match kind:
        case "task_exited" if not fields["expected"]:
            return f"{fields['task']} ended: {fields['reason']}"
        case "restarting":
            return f"{fields['task']} is started again (restart {fields['restart']} of {fields['allowed']})"
        case "rollback":
            return (
                f"rolled back to the checkpoint at step {fields['step']}: {fields['steps_lost']} steps are lost "
                f"(was at {fields['step_before']})"
            )
        case "stalled":
            return f"{fields['task']} has made no step for {format_seconds(fields['seconds'])}"
        case "blocked":
            kept = ", ".join(fields["waiting"]) or "the others"
            return f"{fields['task']} keeps {kept} waiting: no update for {format_seconds(fields['seconds'])}"
        case "silent":
            return f"{fields['task']} is silent: no heartbeat for {format_seconds(fields['seconds'])}"
        case "going_on":
            return f"{fields['task']} goes on"
        case "unresponsive":
            return f"{fields['task']} gives no sign of life for {format_seconds(fields['seconds'])}"
        case "given_up":
            return f"{fields['task']} is given up ({fields['reason']}); the others go on"
        case "agent_lost" | "regrouping":
            return f"{kind.replace('_', ' ')}: {fields['reason']}"
        case "stop_asked":
            return f"stop asked ({fields['reason']}): " + (
                "at once" if fields["at_once"] else "in order; once more: at once"
            )
        case "kill_overdue":
            return "killed tasks do not end; their node is ended"
        case _:
            return None
