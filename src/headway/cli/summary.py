"""The last words of a run: what came out, where it is, what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.output import number
from headway.plural import counted
from headway.record.folder import RunFolder, default_root
from headway.record.usage import limits_of
from headway.spec.secrets import redacted
from headway.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from headway.record.run import Run


FULL = {"cpu": "CPU", "inwards": "network in", "outwards": "network out", "both_ways": "both ways at once"}
ONE_WAY = 0.8  # of the time a link is full, and hardly ever both ways: its tasks march in step


def shown_path(path: str) -> str:
    """Relative where it lies below the present folder."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path


def staleness_line(staleness: dict[str, Any] | None) -> str | None:
    if not staleness:
        return None
    return f"mean {staleness['mean']:.2f}, p95 {staleness['p95']}, max {staleness['max']}, in updates"


def strategy_line(figures: dict[str, Any]) -> str:
    """Such as `ps-sync, 2 of 3 gradients per update, partitioned over 2 servers`."""
    parts = [figures["strategy"]]
    if figures["aggregate"]:
        parts.append(f"{figures['aggregate']} of {counted(figures['num_training_tasks'], 'gradient')} per update")
    if figures["replication"] == "in_graph":
        parts.append("one client (in-graph)")
    if figures["pull_ahead"]:
        parts.append(f"pulls {figures['pull_ahead']} step ahead")
    if figures["exchange"] == "in_turn":
        parts.append("pulls and pushes in turn")
    if figures["placement"] and figures["num_ps"] > 1:
        parts.append(f"{figures['placement'].replace('_', ' ')} over {counted(figures['num_ps'], 'server')}")
    if figures["transfer"] not in (None, "float32"):
        parts.append(f"{figures['transfer']} on the wire")
    return ", ".join(parts)


def summary_lines(figures: dict[str, Any], run: Run) -> list[tuple[str, str]]:
    """(what, figure) for everything that is known."""
    lines = []
    if figures["accuracy"] is not None:
        lines.append(("accuracy on the test set", f"{figures['accuracy']:.4f}   (loss {number(figures['loss'])})"))
    elif figures["loss"] is not None:
        lines.append(("loss on the test set", number(figures["loss"], 4)))
    if figures["train_loss"] is not None:
        decay = f" of the data, {number(figures['penalty'])} of weight decay" if figures["penalty"] is not None else ""
        if figures["command"] is not None:
            lines.append(("training loss", f"{number(figures['train_loss'])}, as last reported"))
        else:
            text = f"{number(figures['train_loss'])}{decay} (mean of the last 50 gradients)"
            lines.append(("training loss at the end", text))
    lines += _training_lines(figures) if figures["command"] is None else _program_lines(figures)
    if line := staleness_line(figures["staleness"]):
        lines.append(("staleness", line))
    if spread := figures["spread"]:
        between = f"median {format_seconds(spread['median'])}, p95 {format_seconds(spread['p95'])}"
        lines.append(("spread of arrivals", f"{between} from an update's first gradient to its last"))
    if figures["strategy"] == "allreduce" and (size := figures["variable_bytes"]) is not None:
        lines.append(("variables", f"every training task holds all variables, {format_bytes(size)}"))
    for server in figures["servers"]:
        lines.append((f"  {server['task']}", f"{format_bytes(server['bytes'])} of variables ({server['share']:.0%})"))
    lines += node_lines(figures)
    if figures["rollbacks"]:
        lines.append(("rollbacks", f"{figures['rollbacks']}, {counted(figures['steps_lost'], 'step')} lost"))
    elif figures["steps_lost"]:
        lines.append(("steps lost", f"{figures['steps_lost']:,}: they were made again after a restart"))
    if figures["bad_records"]:
        lines.append(("bad records", f"{figures['bad_records']:,} skipped (headway query: events of kind bad_record)"))
    if run.folder.model.is_dir():
        lines.append(("model", shown_path(str(run.folder.model))))
    lines.append(("run folder", shown_path(figures["path"])))
    return lines


def _training_lines(figures: dict[str, Any]) -> list[tuple[str, str]]:
    asked = figures["asked_steps"]
    steps = f"{figures['steps']:,}" + (f" of {asked:,} asked" if asked else "")
    lines = [
        ("workload", f"{figures['model']} on {figures['dataset']}"),
        ("strategy", strategy_line(figures)),
        *_global_batch(figures),
        ("global steps", f"{steps} in {format_seconds(figures['training_seconds'])} of training"),
    ]
    if figures["steps_per_s"] is not None:
        own = figures["task_steps_per_s"]
        together = f" ({number(own)} of all tasks together)" if own != figures["steps_per_s"] else ""
        rate = f"{number(figures['steps_per_s'])} steps/s{together}, {number(figures['examples_per_s'], 4)} examples/s"
        lines.append(("rate after warm-up", f"{rate}{_window(figures)}"))
    asked_batches = (figures["batch_size"], figures["global_batch_size"])
    if figures["effective_batch"] not in (None, *asked_batches) or figures["dropped"]:
        lines.append(("effective batch", batch_line(figures)))
    for task in figures["tasks"]:
        late = f", {task['dropped']:,} dropped" if task["dropped"] else ""
        given = f"{counted(task['gradients'], 'gradient')} ({task['share']:.0%})"
        lines.append((f"  {task['task']}", f"{given}{late}, {_pace(task)}"))
    return lines


def _global_batch(figures: dict[str, Any]) -> list[tuple[str, str]]:
    size, tasks = figures["global_batch_size"], figures["num_training_tasks"]
    return (
        []
        if size is None
        else [("global batch size", f"{counted(size, 'example')}, shared out over {counted(tasks, 'training task')}")]
    )


def _program_lines(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """Of a user's own program: what it told of itself, and by what means."""
    lines = [("command", redacted(figures["command"]))]
    if not figures["tasks"]:
        lines.append(("steps", "none were counted; docs/own-code.md says how a program tells of them"))
    else:
        between = f"{format_seconds(figures['training_seconds'])} from its first report to its last"
        lines.append(("steps", f"{figures['steps']:,} reached, as it counts; {between}"))
    if figures["steps_per_s"] is not None:
        rate = f"{number(figures['steps_per_s'])} steps/s"
        if figures["examples_per_s"] is not None:
            rate += f", {number(figures['examples_per_s'], 4)} examples/s"
        lines.append(("rate after warm-up", f"{rate}{_window(figures)}"))
    lines += [(f"  {task['task']}", _pace(task)) for task in figures["tasks"]]
    for told in figures["reported"]:
        values = ", ".join(f"{name} {number(value, 4)}" for name, value in told.items() if name != "task")
        lines.append((f"  {told['task']} says", values))
    return lines


def _window(figures: dict[str, Any]) -> str:
    """What time a rate is of: the first steps are not in it."""
    window = figures["window_seconds"]
    return f" (measured over {format_seconds(window)})" if window else ""


def _pace(task: dict[str, Any]) -> str:
    again = f", {counted(task['attempts'] - 1, 'restart')}" if task["attempts"] > 1 else ""
    return f"{format_seconds(task['step_seconds'])} a step{again}"


def node_lines(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """What each node used while it trained, against what it has; and what its tasks sent for a step."""
    lines = []
    for node in figures["nodes"]:
        limits = limits_of(node)
        parts = [] if node["cpus"] is None else [_of(number(node["cpus"]), limits.get("cpus"), node["cpus"], "CPUs")]
        if (node["throttled"] or 0.0) >= 0.005:
            parts.append(f"throttled {node['throttled']:.0%}")
        if node["memory_peak"] is not None:
            parts.append(f"{format_bytes(node['memory_peak'])} at most")
        for name, what in (("received", "in"), ("sent", "out")):
            if node[name]:
                parts.append(_of(f"{what} {format_rate(node[name])}", limits.get("rate"), node[name]))
        if node["loopback_sent"]:
            parts.append(f"loopback {format_rate(node['loopback_sent'])}")
        used_up = [
            f"{words} {share:.0%}" for name, words in FULL.items() if (share := node["full"].get(name, 0)) >= 0.05
        ]
        if used_up:
            parts.append(f"used up: {', '.join(used_up)} of the time")
        if node["credits"] is not None:
            parts.append(f"{node['credits']:.1f} credits left")
        lines.append((f"  {node['node']}", ", ".join(parts)))
    if figures["exchange"] == "at_will" and any(map(_is_one_way, figures["nodes"])):
        advice = "the server's link is full in one direction at a time: the tasks pull together, then push together"
        lines.append(("  to try", f"strategy.exchange=in_turn ({advice})"))
    if figures["nobody_full"]:
        lines.append(("  nobody at a limit", f"{figures['nobody_full']:.0%} of the time (no CPU or link was used up)"))
    for task in figures["task_usage"]:
        if not figures["tasks"] or (not task["steps"] and figures["command"] is not None):
            lines.append((f"  {task['task']}", _used(task)))
        elif task["steps"]:
            sent = sum(task[f"{where}sent_bytes_per_step"] for where in ("", "loopback_"))
            received = sum(task[f"{where}received_bytes_per_step"] for where in ("", "loopback_"))
            if sent + received > 0:
                text = f"{format_bytes(received)} received, {format_bytes(sent)} sent for each own step"
                lines.append((f"  {task['task']}", text))
    if lines:
        title = "nodes while they trained" if figures["tasks"] else "nodes while the tasks ran"
        lines.insert(0, (title, "means, and their share of what they had"))
    if (dilation := figures["dilation"]) > 1 and figures["steps_per_s"]:
        there = f"{number(figures['steps_per_s'] * dilation)} steps/s, "
        if figures["examples_per_s"] is not None:  # a user's own program need not say so
            there += f"{number(figures['examples_per_s'] * dilation, 4)} examples/s, "
        there += f"{format_seconds(figures['training_seconds'] / dilation)} of training"
        lines.append(("on the machines meant", f"{there} ({dilation:g} seconds here are one there)"))
    return lines + [("warning", text) for text in figures["warnings"]]


def _used(task: dict[str, Any]) -> str:
    """Of a task that tells of no steps."""
    parts = [] if task["cpus"] is None else [f"{number(task['cpus'])} CPUs"]
    parts += [] if task["memory_peak"] is None else [f"{format_bytes(task['memory_peak'])} at most"]
    for what in ("received", "sent"):
        moved = [task[f"{where}{what}_bytes"] for where in ("", "loopback_")]
        if any(moved):
            parts.append(f"{format_bytes(sum(each or 0 for each in moved))} {what}")
    return ", ".join(parts)


def _is_one_way(node: dict[str, Any]) -> bool:
    """Nearly always full in some direction, and less often in both than by chance."""
    into, out, both = (node["full"].get(name, 0.0) for name in ("inwards", "outwards", "both_ways"))
    return bool(min(into, out) >= 0.3 and into + out - both >= ONE_WAY and both <= into * out)


def _of(text: str, asked: float | None, got: float | None, unit: str = "") -> str:
    text = f"{text} {unit}".rstrip()
    return text if not asked or got is None else f"{text} ({got / asked:.0%})"


def batch_line(figures: dict[str, Any]) -> str:
    least, most = figures["effective_batch_min"], figures["effective_batch_max"]
    between = f" ({least:,} to {most:,})" if least != most else ""
    dropped = f"; {counted(figures['dropped'], 'gradient')} dropped" if figures["dropped"] else ""
    return f"{number(figures['effective_batch'], 4)} examples an update{between}{dropped}"


def server_rows(servers: list[dict[str, Any]]) -> list[list[Any]]:
    """For each server: its name, bytes, share, number of variables (or parts of them), and the largest of these."""

    def text(variable: dict[str, Any]) -> str:
        part = f"[{variable['part']}]" if variable["part"] else ""
        return f"{variable['name']}{part} {format_bytes(variable['bytes'])}"

    return [
        [
            f"  {server['task']}",
            format_bytes(server["bytes"]),
            f"{server['share']:.1%}",
            server["variables"],
            ", ".join(text(variable) for variable in server["largest"]),
        ]
        for server in servers
    ]


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
        print(f"  headway resume {name}        {_what_resume_does(figures, run)}")
    print(f"  headway findings {name}      what held it back, and what to change")
    print(f"  headway show {name}          everything about it, and why each value was chosen")
    if figures["command"] is None:
        print(f"  headway tensorboard {name}   loss, accuracy, steps/s and the graph")
    elif any(run.folder.boards.rglob("*tfevents*")):
        print(f"  headway tensorboard {name}   what the program wrote for TensorBoard")
    print('  headway query "select task, count(*), median(seconds) from steps group by task"')


def _what_resume_does(figures: dict[str, Any], run: Run) -> str:
    if figures["command"] is not None:
        return "start its command again; where it goes on from is up to the program"
    if any(run.folder.checkpoints.glob("step-*")):
        return "go on from the last checkpoint"
    return "train again from the beginning (there is no checkpoint)"


def _shortest_name(run: Run) -> str:
    """How a user may call this run now."""
    known = RunFolder.all(default_root())
    if run.path not in [folder.path for folder in known]:
        return shown_path(str(run.path))
    return "last" if known[-1].path == run.path else run.name
