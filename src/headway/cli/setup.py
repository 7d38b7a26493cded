"""Commands about what is here: doctor, models, machines, schema, clean."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.output import Format, Output, print_json, print_table
from headway.errors import HeadwayError

MODELS_LIMIT = 120.0


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)
    app.command()(models)
    app.command()(machines)
    app.command()(schema)
    app.command()(clean)


def doctor(output: Output = Format.text) -> None:
    """What works on this machine, and what to do else."""
    from headway.cli.doctor import examine

    checks = examine()
    if output is Format.json:
        print_json([vars(check) for check in checks])
    else:
        for check in checks:
            print(f"{check.verdict:>7}  {check.what}: {check.found}")
            if check.advice:
                print(f"         -> {check.advice}")
    if any(check.verdict == "missing" for check in checks):
        raise typer.Exit(1)


def models(output: Output = Format.text) -> None:
    """Every model, with its parameters and the work that one example takes (a training step: three times that)."""
    from headway.units import format_bytes, format_flops

    found = _described_models()
    if output is Format.json:
        print_json(found)
        return
    print_table(
        ["model", "parameters", "bytes", "work", "for", ""],
        [
            [
                one["name"],
                f"{one['parameters']:,}",
                format_bytes(one["bytes"]),
                format_flops(one["flops"]),
                f"{'x'.join(map(str, one['shape']))} -> {one['classes'] or 'a number'}",
                one["summary"],
            ]
            for one in found
        ],
        right=["parameters", "bytes", "work"],
    )


def _described_models() -> list[dict[str, Any]]:
    """Counting parameters needs TensorFlow: in a process of its own, and cached until a model file changes."""
    from headway import workloads

    folder = Path(workloads.__file__).parent
    sources = hashlib.sha256((folder.parent / "engines/tensorflow/describe.py").read_bytes())
    for path in sorted(folder.glob("**/*.py")):
        sources.update(path.read_bytes())
    cached = workloads.cache_folder() / f"models-{sources.hexdigest()[:16]}.json"
    if cached.exists():
        return list(json.loads(cached.read_text(encoding="utf-8")))
    counted = subprocess.run(
        [sys.executable, "-m", "headway.engines.tensorflow.describe"],
        check=False,
        capture_output=True,
        text=True,
        timeout=MODELS_LIMIT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    if counted.returncode != 0:
        raise HeadwayError(f"the models cannot be described: {counted.stderr.strip().splitlines()[-1:]}")
    from headway.record.files import write_atomically

    cached.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(cached, counted.stdout)
    return list(json.loads(counted.stdout))


def schema(sweep: Annotated[bool, typer.Option("--sweep", help="Of a sweep file instead.")] = False) -> None:
    """The JSON schema of a job file (or of a sweep file), for editors."""
    from headway.spec import job_schema
    from headway.spec.sweep import sweep_schema

    print(json.dumps(sweep_schema() if sweep else job_schema(), indent=2))


def machines(output: Output = Format.text) -> None:
    """Machine types that an emulated host can be: `type: p2.xlarge` in a job's site.nodes.

    What a machine lacks here is not known, and then not limited. Where each figure is from: -o json
    """
    from headway.spec.machines import catalogue
    from headway.units import format_bytes, format_rate

    found = catalogue()
    if output is Format.json:
        print_json([{"name": name, **one.model_dump(mode="json", exclude_none=True)} for name, one in found.items()])
        return
    print_table(
        ["machine", "CPUs", "memory", "network", "GPUs", "credits/h", "dollars/h", "used by", "examples/s"],
        [
            [
                name,
                None if one.cpus is None else f"{one.cpus:g}",
                format_bytes(one.memory),
                format_rate(one.network),
                one.gpus or None,
                f"{one.credits.per_hour:g}" if one.credits else None,
                one.price,
                " ".join(one.used_by),
                ", ".join(f"{model} {speed:g}" for model, speed in one.speed.items()) or None,
            ]
            for name, one in found.items()
        ],
        right=["CPUs", "memory", "network", "GPUs", "credits/h", "dollars/h"],
    )


def clean(output: Output = Format.text) -> None:
    """Remove what killed runs have left.

    Processes and networks end with a run. Control groups of emulated hosts can stay, and forwarding of packets that was
    turned on for a program's network. A run that goes on is not touched, nor is anything else on this machine, nor any
    run folder.
    """
    from headway.host import nat
    from headway.host.leftovers import state_folder
    from headway.sites.emulated.leftovers import clean as remove_leftovers

    removed = [*remove_leftovers(), *nat.clean(state_folder())]
    if output is Format.json:
        print_json(removed)
        return
    for what in removed:
        print(f"removed {what}")
    if not removed:
        print("nothing is left of killed runs")
