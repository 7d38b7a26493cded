"""`headway launch`: a user's own program on a cluster, without a job file."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headway.cli.output import Format, Output
from headway.cli.training import MetricsPort, Root, follow, listen_at, root_of, show_plan
from headway.errors import SpecError


def add_to(app: typer.Typer) -> None:
    app.command()(launch)


def launch(
    command: Annotated[
        list[str], typer.Argument(help="The program and its arguments, after `--`.", metavar="-- COMMAND")
    ],
    worker: Annotated[int, typer.Option(min=0, max=1024, help="Training tasks.")] = 1,
    ps: Annotated[int, typer.Option(min=0, max=1024, help="Parameter servers.")] = 0,
    chief: Annotated[int, typer.Option(min=0, max=1, help="1: a chief besides the workers; it counts as one.")] = 0,
    evaluator: Annotated[int, typer.Option(min=0, max=1, help="1: a task that evaluates.")] = 0,
    python: Annotated[
        str | None,
        typer.Option(help="Whose `python` is meant: its path, or a requirements file.", show_default=False),
    ] = None,
    pattern: Annotated[
        list[str] | None,
        typer.Option(help="A regular expression for lines with step and loss.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option(help="Begins the run's name.")] = "launch",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any setting of a job, such as site=emulated or restart.attempts=0.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be started, and start nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Train in the background.")] = False,
    metrics_port: MetricsPort = None,
    runs: Root = None,
    output: Output = Format.text,
) -> None:
    """Run your own program, unchanged, on a cluster, and leave a run folder.

    Example: headway launch --ps 1 --worker 2 -- python train.py --steps 1000

    Every task runs the command. Each finds in its environment who it is: TF_CONFIG for TensorFlow; MASTER_ADDR,
    MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK for PyTorch; and for scripts that want flags there are placeholders:

    headway launch --ps 1 --worker 2 -- python train.py --job_name={job_name} --task_index={task_index}
    --ps_hosts={ps_hosts} --worker_hosts={worker_hosts}

    Tasks are supervised, started again, watched and recorded as those of a job. Steps and losses are heard of by
    themselves from TensorBoard files in {model_dir} and from lines such as `step 100 loss 0.25`; by a pattern of yours;
    or the program says headway.log(step=..., loss=...). More: docs/own-code.md
    """
    from headway.launch.prepare import create_run
    from headway.spec.load import apply_override, parse_job

    if not worker + chief:
        raise SpecError("--worker 0: without a training task there is nothing to run; allowed: 1 or more, or --chief 1")
    counts = {"worker": worker, "ps": ps, "chief": chief, "evaluator": evaluator}
    workload: dict[str, Any] = {"command": command}
    if python is not None:
        workload["python"] = python
    if pattern:
        workload["report"] = {"patterns": pattern}
    job: dict[str, Any] = {
        "name": name,
        "workload": workload,
        "cluster": {role: count for role, count in counts.items() if count},
    }
    for override in setting or ():
        apply_override(job, override)
    asked = parse_job(job, origin="headway launch")
    if dry_run:
        show_plan(asked, output)
        return
    metrics = listen_at(metrics_port)
    follow(create_run(asked, root_of(runs)), detach, output, metrics)
