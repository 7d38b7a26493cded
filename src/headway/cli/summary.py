"""The last words of a run: what came out, where it is, what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.output import number
from headway.record.folder import RunFolder, default_root
from headway.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from headway.record.run import Run


def shown_path(path: str) -> str:
    """Relative where it lies below the present folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def staleness_line(staleness: dict[str, Any] | None) -> str | None:
    if not staleness:
        return None
    return f"mean {staleness['mean']:.2f}, p95 {staleness['p95']}, max {staleness['max']} updates behind"


def summary_lines(figures: dict[str, Any], run: Run) -> list[tuple[str, str]]:
    """(what, figure) for everything that is known."""
    asked = figures["asked_steps"]
    steps = f"{figures['steps']:,}" + (f" of {asked:,} asked" if asked else "")
    lines = []
    if figures["accuracy"] is not None:
        lines.append(("accuracy on the test set", f"{figures['accuracy']:.4f}   (loss {number(figures['loss'])})"))
    elif figures["loss"] is not None:
        lines.append(("loss on the test set", number(figures["loss"], 4)))
    lines.append(("global steps", f"{steps} in {format_seconds(figures['training_seconds'])} of training"))
    if figures["steps_per_s"] is not None:
        rate = f"{number(figures['steps_per_s'])} steps/s, {number(figures['examples_per_s'], 4)} examples/s"
        lines.append(("rate after warm-up", rate))
    for task in figures["tasks"]:
        step = format_seconds(task["step_seconds"])
        again = f", {task['attempts'] - 1} restarts" if task["attempts"] > 1 else ""
        lines.append((f"  {task['task']}", f"{task['updates']:,} updates ({task['share']:.0%}), {step} a step{again}"))
    if line := staleness_line(figures["staleness"]):
        lines.append(("staleness", line))
    for server in figures["servers"] if figures["num_ps"] else ():
        lines.append((f"  {server['task']}", f"{format_bytes(server['bytes'])} of variables"))
    if figures["rollbacks"]:
        lines.append(("rollbacks", f"{figures['rollbacks']}, {figures['steps_lost']} steps lost"))
    if run.folder.model.is_dir():
        lines.append(("model", shown_path(str(run.folder.model))))
    lines.append(("run folder", shown_path(figures["path"])))
    return lines


def headline(figures: dict[str, Any]) -> str:
    wall = f" after {format_seconds(figures['seconds'])}" if figures["seconds"] else ""
    reason = f" ({figures['reason']})" if figures["reason"] else ""
    return f"{figures['run']}: {figures['state']}{reason}{wall}"


def print_summary(figures: dict[str, Any], run: Run) -> None:
    print(f"\n{headline(figures)}\n")
    lines = summary_lines(figures, run)
    width = max(len(what) for what, _ in lines)
    for what, figure in lines:
        print(f"  {what:<{width}}   {figure}")
    name = _shortest_name(run)
    print("\nnext")
    if figures["state"] != "finished":
        print(f"  headway resume {name}        go on from the last checkpoint")
    print(f"  headway show {name}          everything about it, and why each value was chosen")
    print(f"  headway tensorboard {name}   loss, accuracy, steps/s and the graph")
    print('  headway query "select task, count(*), median(seconds) from steps group by task"')


def _shortest_name(run: Run) -> str:
    """How a user may call this run now."""
    known = RunFolder.all(default_root())
    if run.path not in [folder.path for folder in known]:
        return shown_path(str(run.path))
    return "last" if known[-1].path == run.path else run.name
