"""Commands that start, follow and end runs: run, resume, stop, status, top."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import Format, Output, is_terminal, number, print_json, print_table
from headway.errors import INTERRUPTED_EXIT_CODE, Busy, RunFailed

if TYPE_CHECKING:
    import socket

    from headway.record.folder import RunFolder

Root = Annotated[
    Path | None, typer.Option("--runs", help="Where run folders are. [default: $HEADWAY_RUNS, else runs/]")
]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings to change, such as cluster.worker=3.", show_default=False)
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        help="Serve http://127.0.0.1:PORT/metrics for Prometheus, to this machine only; 0 takes any free port.",
        min=0,
        max=65535,
        show_default=False,
    ),
]
DETACH_LIMIT = 30.0
STOP_LIMIT = 1200.0


def add_to(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(resume)
    app.command()(stop)
    app.command()(status)
    app.command()(top)
    app.command(hidden=True, name="_drive")(drive)


def root_of(chosen: Path | None) -> Path:
    from headway.record.folder import default_root

    return chosen or default_root()


def run(
    job: Annotated[Path, typer.Argument(help="The job: a YAML file, see examples/.", show_default=False)],
    overrides: Overrides = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be started, and start nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Train in the background.")] = False,
    metrics_port: MetricsPort = None,
    runs: Root = None,
    output: Output = Format.text,
) -> None:
    """Train what a job file describes, and leave a run folder.

    Example: headway run examples/mnist-async.yaml cluster.worker=3 workload.stop.steps=500

    Ctrl-C stops in order (checkpoint, evaluation, model); a second one at once. `headway top` watches it from another
    terminal.
    """
    from headway.launch.prepare import create_run
    from headway.spec.load import load_job

    asked = load_job(job, overrides or [])
    if dry_run:
        show_plan(asked, output)
        return
    metrics = listen_at(metrics_port)
    follow(create_run(asked, root_of(runs)), detach, output, metrics)


def resume(
    run: Annotated[str, typer.Argument(help="A run's name, its beginning, its path, or `last`.", show_default=False)],
    overrides: Overrides = None,
    detach: Annotated[bool, typer.Option("--detach", help="Train in the background.")] = False,
    metrics_port: MetricsPort = None,
    runs: Root = None,
    output: Output = Format.text,
) -> None:
    """Go on with a run: from its last checkpoint, if it has one.

    A program's command is started again. The run may have been stopped, have failed, or have been killed.

    A finished run goes on when told until when: headway resume last workload.stop.steps=5000
    """
    from headway.launch.prepare import change_job, check_resumable
    from headway.record.folder import RunFolder

    folder = RunFolder.find(root_of(runs), run)
    check_resumable(folder, overrides or [])
    folder.reader.refuse_links()
    metrics = listen_at(metrics_port)
    if overrides:
        change_job(folder, overrides)
    follow(folder, detach, output, metrics)


def listen_at(port: int | None) -> socket.socket | None:
    """Before anything else is done: a port that is taken is no reason for a run that failed."""
    from headway.launch.exposition import listen

    return None if port is None else listen(port)


def follow(folder: RunFolder, detach: bool, output: Format, metrics: socket.socket | None) -> None:
    """Drive the run from here, or from a process of its own."""
    from headway.launch.exposition import address
    from headway.record.folder import ENDED

    if detach:
        log = folder.log("launcher").open("ab")
        given = [metrics.fileno()] if metrics else []
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", "_drive", str(folder.path), *(f"--metrics-socket={fd}" for fd in given)],
            pass_fds=given,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + DETACH_LIMIT
        while not folder.is_held() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is not None and folder.facts()["state"] not in ENDED:
            said = folder.log("launcher").read_text(encoding="utf-8", errors="replace").strip()
            raise RunFailed(f"{folder.name} did not start:\n{said[-2000:]}")
        if output is Format.json:
            served = {"metrics": address(metrics)} if metrics else {}
            print_json({"run": folder.name, "path": str(folder.path), "pid": process.pid, **served})
        else:
            print(f"{folder.name} runs in the background")
            print(f"  watch it   headway top {folder.name}   |   headway logs -f {folder.name}")
            print(f"  stop it    headway stop {folder.name}")
            if metrics:
                print(f"  metrics    {address(metrics)}")
        return
    drive_here(folder, output, metrics)


def drive(
    path: Annotated[Path, typer.Argument(help="A run folder.")],
    metrics_socket: Annotated[int | None, typer.Option(help="A descriptor to serve /metrics at.")] = None,
) -> None:
    """What `--detach` starts."""
    import socket

    from headway.record.folder import RunFolder

    metrics = None if metrics_socket is None else socket.socket(fileno=metrics_socket)
    drive_here(RunFolder(path), Format.text, metrics)


def drive_here(folder: RunFolder, output: Format, metrics: socket.socket | None) -> None:
    """Run what a run folder asks for, and say how it ended."""
    from headway.cli.live import watcher_for
    from headway.cli.summary import print_summary
    from headway.launch.launcher import Launcher
    from headway.record.run import Run
    from headway.record.seal import result

    launcher = Launcher(folder, watcher := watcher_for(folder, output), metrics)
    watcher.begin(launcher.job, Run(folder).choices)
    try:
        end = launcher.run()
    finally:
        watcher.finish()
    if output is Format.json:
        print_json(result(Run(folder)))
    else:
        print_summary(result(Run(folder)), Run(folder))
    if end.state == "failed":
        raise RunFailed(
            f"{folder.name} failed: {end.reason}\n  headway logs {folder.name}   shows what the tasks printed"
        )
    if end.state == "stopped":
        sys.exit(INTERRUPTED_EXIT_CODE)


def stop(
    run: Annotated[str, typer.Argument(help="A run's name, its beginning, its path, or `last`.", show_default=False)],
    now: Annotated[bool, typer.Option("--now", help="Kill at once: no checkpoint, no evaluation.")] = False,
    runs: Root = None,
) -> None:
    """Stop a run in order, and seal its record.

    Each task ends after its present step; the chief saves, evaluates and exports the model.
    """
    from headway.launch.control import ask
    from headway.launch.identity import signal_launcher
    from headway.record.folder import RunFolder

    folder = RunFolder.find(root_of(runs), run)
    if not folder.is_held():
        raise _not_running(folder)
    try:
        ask(folder.control_socket, {"do": "stop", "now": now})
    except Busy:  # it prepares (fetches data) and does not listen yet, or has just ended
        if folder.is_held():
            launches = folder.facts()["launches"]
            try:
                signal_launcher(folder.name, launches[-1] if launches else {}, signal.SIGINT)
            except Busy:
                if folder.is_held():  # else it has just ended
                    raise
    deadline = time.monotonic() + STOP_LIMIT
    while folder.is_held():
        if time.monotonic() > deadline:
            raise Busy(f"{folder.name} has not stopped within {STOP_LIMIT:g} s; headway stop --now {folder.name}")
        time.sleep(0.1)
    facts = folder.facts()
    print(f"{folder.name}: {facts['state']} ({facts['reason']})")


def status(runs: Root = None, output: Output = Format.text) -> None:
    """What is running now, and how each task fares (`headway top` goes on looking)."""
    from headway.record.folder import RunFolder

    alive = [status_of(folder) for folder in RunFolder.all(root_of(runs)) if _may_run(folder)]
    if output is Format.json:
        print_json(alive)
    elif not alive:
        print(f"nothing runs in {os.fspath(root_of(runs))}")
    for run in alive if output is Format.text else ():
        target = run["stop"].get("steps")
        print(f"{run['run']}: {run['state']}, step {run['step']}" + (f" of {target}" if target else ""))
        print_table(
            ["task", "phase", "pid", "restarts", "own steps", "steps/s", "loss"],
            [
                [
                    task["task"],
                    task["trouble"] or task["phase"],
                    task["pid"],
                    max(0, task["attempt"]),
                    task["own_steps"],
                    number(task["steps_per_s"]),
                    number(task["loss"]),
                ]
                for task in run["tasks"]
            ],
            right=["pid", "restarts", "own steps", "steps/s", "loss"],
        )


def _may_run(folder: RunFolder) -> bool:
    """It runs, or says so itself and cannot be asked."""
    from headway.locks import Held

    held = folder.is_held()
    return held is Held.HELD or (held is Held.UNKNOWN and folder.facts()["state"] == "unknown")


def _not_running(folder: RunFolder, hint: str = "") -> Busy:
    state = folder.facts()["state"]
    if state == "unknown":
        return Busy(f"{folder.name} may be running: its lock cannot be opened{hint}")
    return Busy(f"{folder.name} is not running (it is {state}){hint}")


def status_of(folder: RunFolder, pids: bool = True) -> dict[str, Any]:
    """What its launcher says; less where it does not answer: it prepares, or ends just now."""
    from headway.launch.control import ask

    try:
        return ask(folder.control_socket, {"do": "status", "pids": pids})
    except Busy:
        state = folder.facts()["state"]
        return {"run": folder.name, "state": state, "tasks": [], "nodes": [], "step": None, "stop": {}}


def top(
    run: Annotated[
        str, typer.Argument(help="A run's name, its beginning, its path, or `last`.", show_default=False)
    ] = "last",
    runs: Root = None,
    output: Output = Format.text,
) -> None:
    """Watch a running run: its nodes and tasks, and what they did in the last seconds.

    CPUs in use (of those that the node has), memory, network in and out, steps/s and loss, drawn anew twice a second
    until the run ends. Ctrl-C ends the watching, not the run.

    Without a terminal, and with -o json, it says once how things are.
    """
    from headway.record.folder import RunFolder

    folder = RunFolder.find(root_of(runs), run)
    if not folder.is_held():
        raise _not_running(folder, f"; headway show {folder.name}")
    if output is Format.json:
        print_json(status_of(folder))
        return
    from headway.cli.top import show, watch

    (watch if is_terminal() else show)(folder)


def show_plan(asked: Any, output: Format) -> None:
    """What `--dry-run` prints: a value, made without touching the world."""
    from headway.launch.commands import needs_port, task_command
    from headway.launch.prepare import num_cores, plan_run
    from headway.record.folder import RunFolder

    resolved, plan = plan_run(asked)
    job, folder = resolved.job, RunFolder(Path("runs") / f"{asked.name}-TIME")
    addresses = {
        task: f"{node.address}:<port of {task}>" for node in plan.nodes for task in node.tasks if needs_port(job, task)
    }
    commands = [
        task_command(job, task, folder, addresses, cores=list(range(num_cores()))) for task in job.cluster.tasks()
    ]
    if output is Format.json:
        print_json(
            {
                "job": job.model_dump(mode="json"),
                "choices": [vars(choice) for choice in resolved.choices],
                "nodes": [
                    {
                        "name": node.name,
                        "address": node.address,
                        "tasks": [str(task) for task in node.tasks],
                        "machine": node.machine.model_dump(exclude_none=True, exclude_defaults=True),
                    }
                    for node in plan.nodes
                ],
                "command": plan.command,
                "tasks": [
                    {"task": str(command.task), "argv": command.argv, "env": command.env, "cores": command.cores}
                    for command in commands
                ],
            }
        )
        return
    print(f"{asked.name}: {job.strategy.kind} on {job.site.kind}; nothing is started\n\nchosen")
    for choice in resolved.choices:
        print(f"  {choice.path}: {choice.value}  ({choice.reason})")
    print(f"\nstarted for the nodes\n  {' '.join(plan.command)}")
    for node in plan.nodes:
        asked_of_it = node.machine.model_dump(exclude_none=True, exclude_defaults=True)
        print(f"\nnode {node.name} ({node.address})" + (f": {asked_of_it}" if asked_of_it else ""))
        for command in commands:
            if command.task in node.tasks:
                print(f"  {command.task}: {' '.join(command.argv)}")
                for name, value in command.env.items():
                    print(f"    {name}={value}")
