"""Commands about what is here: doctor, data, models, machines, schema, clean."""

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
from headway.errors import DataError, HeadwayError, NotFound

data_app = typer.Typer(help="Data sets: list, fetch, verify.", no_args_is_help=True, rich_markup_mode=None)
Names = Annotated[list[str] | None, typer.Argument(help="Data sets. [default: all]", show_default=False)]
MODELS_LIMIT = 120.0


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)
    app.add_typer(data_app, name="data")
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


@data_app.command("list")
def data_list(output: Output = Format.text) -> None:
    """Every data set, and whether it is on this machine."""
    from headway import workloads

    rows: list[dict[str, Any]] = []
    for name in workloads.dataset_names():
        dataset = workloads.dataset(name)
        settings = dataset.Settings.model_validate({"name": name})
        info = dataset.describe(settings)
        problems = dataset.verify(settings, workloads.cache_folder())
        rows.append(
            {
                "name": name,
                "train": info.num_train,
                "test": info.num_test,
                "shape": list(info.shape),
                "classes": info.classes,
                "here": not problems,
                "summary": dataset.SUMMARY,
            }
        )
    if output is Format.json:
        print_json(rows)
        return
    print_table(
        ["data set", "train", "test", "shape", "classes", "here", ""],
        [
            [
                row["name"],
                f"{row['train']:,}",
                f"{row['test']:,}",
                "x".join(map(str, row["shape"])),
                row["classes"],
                "yes" if row["here"] else "no",
                row["summary"],
            ]
            for row in rows
        ],
        right=["train", "test", "classes"],
    )


@data_app.command("fetch")
def data_fetch(names: Names = None) -> None:
    """Bring data sets to this machine, verified; what is here and whole is kept."""
    from headway import workloads

    for name in _known(names):
        dataset = workloads.dataset(name)
        with _progress() as progress:
            dataset.fetch(dataset.Settings.model_validate({"name": name}), workloads.cache_folder(), progress)
        print(f"{name}: here, verified")


@data_app.command("verify")
def data_verify(names: Names = None, output: Output = Format.text) -> None:
    """Check the data sets on this machine against their checksums."""
    from headway import workloads

    found: dict[str, list[str]] = {}
    for name in _known(names):
        dataset = workloads.dataset(name)
        found[name] = dataset.verify(dataset.Settings.model_validate({"name": name}), workloads.cache_folder())
    if output is Format.json:
        print_json(found)
    else:
        for name, problems in found.items():
            print(f"{name}: {'all is well' if not problems else '; '.join(problems)}")
    if any(found.values()):
        raise DataError("some data is missing or damaged: `headway data fetch` mends it")


def _known(names: list[str] | None) -> list[str]:
    from headway import workloads

    for name in names or []:
        try:
            workloads.dataset(name)
        except ValueError as error:
            raise NotFound(f"{name}: {error}") from None
    return names or workloads.dataset_names()


class _progress:
    """Shows downloads: a bar on a terminal, a line every few megabytes elsewhere."""

    def __enter__(self) -> Any:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

        self._bar = Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), transient=True)
        self._tasks: dict[str, Any] = {}
        self._bar.start()

        def show(what: str, done: int, total: int | None) -> None:
            if what not in self._tasks:
                self._tasks[what] = self._bar.add_task(what, total=total)
                if not self._bar.console.is_terminal:
                    print(f"fetching {what} ...", flush=True)
            self._bar.update(self._tasks[what], completed=done, total=total)

        return show

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def models(output: Output = Format.text) -> None:
    """Every model, with its parameters."""
    from headway.units import format_bytes

    found = _described_models()
    if output is Format.json:
        print_json(found)
        return
    print_table(
        ["model", "parameters", "bytes", "for", ""],
        [
            [
                one["name"],
                f"{one['parameters']:,}",
                format_bytes(one["bytes"]),
                f"{'x'.join(map(str, one['shape']))} -> {one['classes'] or 'a number'}",
                one["summary"],
            ]
            for one in found
        ],
        right=["parameters", "bytes"],
    )


def _described_models() -> list[dict[str, Any]]:
    """Counting parameters needs TensorFlow: in a process of its own, and cached until a model file changes."""
    from headway import workloads

    sources = hashlib.sha256(Path(workloads.__file__).read_bytes())
    for path in sorted(Path(workloads.__file__).parent.glob("**/*.py")):
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


def schema() -> None:
    """The JSON schema of a job file, for editors."""
    from headway.spec import job_schema

    print(json.dumps(job_schema(), indent=2))


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
    """Remove what killed runs with emulated hosts have left.

    Their processes and networks end with them; control groups stay, and the next such run removes them, too. A run that
    goes on is not touched, nor is anything else on this machine, nor any run folder.
    """
    from headway.sites.emulated.leftovers import clean as remove_leftovers

    removed = remove_leftovers()
    if output is Format.json:
        print_json(removed)
        return
    for what in removed:
        print(f"removed {what}")
    if not removed:
        print("nothing is left of killed runs")
