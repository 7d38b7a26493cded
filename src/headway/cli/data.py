"""Commands about data: list, fetch, verify, convert, standin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import Format, Output, print_json, print_table
from headway.cli.visible import beneath, visible
from headway.errors import DataError, NotFound, SpecError
from headway.plural import counted

if TYPE_CHECKING:
    from headway.workloads.base import Progress, Settings

data_app = typer.Typer(help="Data sets: list, fetch, verify, convert.", no_args_is_help=True, rich_markup_mode=None)
Names = Annotated[
    list[str] | None,
    typer.Argument(
        help="Data sets; or one and its settings: image_folder path=photos. [default: all that need no settings]",
        show_default=False,
    ),
]
NUM_SHOWN = 10  # bad records that are named one by one


def add_to(app: typer.Typer) -> None:
    app.add_typer(data_app, name="data")


@data_app.command("list")
def list_(output: Output = Format.text) -> None:
    """Every data set, and whether it is on this machine."""
    from headway import workloads

    rows: list[dict[str, Any]] = []
    for name in workloads.dataset_names():
        dataset, settings = workloads.dataset(name), workloads.default_settings(name)
        row: dict[str, Any] = {"name": name, "train": None, "test": None, "shape": None, "classes": None, "here": None}
        if settings is not None:
            info = dataset.describe(settings)
            row["train"], row["test"], row["classes"] = info.num_train, info.num_test, info.classes
            row["shape"] = list(info.shape)
            row["here"] = not dataset.verify(settings, workloads.cache_folder())
        rows.append({**row, "summary": dataset.SUMMARY})
    if output is Format.json:
        print_json(rows)
        return
    print_table(
        ["data set", "train", "test", "shape", "classes", "here", ""],
        [
            [
                row["name"],
                None if row["train"] is None else f"{row['train']:,}",
                None if row["test"] is None else f"{row['test']:,}",
                "x".join(map(str, row["shape"])) if row["shape"] else None,
                row["classes"],
                {True: "yes", False: "no", None: None}[row["here"]],
                row["summary"],
            ]
            for row in rows
        ],
        right=["train", "test", "classes"],
    )


@data_app.command()
def fetch(names: Names = None) -> None:
    """Bring data sets to this machine, verified; what is here and whole is kept."""
    from headway import workloads

    for settings in _chosen(names):
        with _progress("fetching") as progress:
            workloads.fetch(settings, workloads.cache_folder(), progress)
        print(f"{settings.name}: here, verified")


@data_app.command()
def verify(names: Names = None, output: Output = Format.text) -> None:
    """Check data sets on this machine: checksums, records, labels, images."""
    from headway import workloads

    found: dict[str, list[str]] = {}
    for settings in _chosen(names):
        problems = workloads.dataset(settings.name).verify(settings, workloads.cache_folder())
        if problems and not names and not (workloads.cache_folder() / settings.name).exists():
            continue  # never fetched, and not asked for
        found[settings.name] = problems
    if output is Format.json:
        print_json(found)
    else:
        for name, problems in found.items():
            print(f"{name}: {'all is well' if not problems else '; '.join(problems)}")
    if any(found.values()):
        raise DataError("some data is missing or damaged: `headway data fetch` mends what can be fetched")


@data_app.command()
def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="A folder with a folder of images for each class, or a data set's name."),
    ],
    target: Annotated[Path, typer.Argument(metavar="DST", help="The folder for the shards.", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Settings of SRC, such as test_share=0.2.", show_default=False)
    ] = None,
    shards: Annotated[int, typer.Option(min=1, max=99999, help="Files for training; the test set gets its share.")] = 8,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be read.")] = False,
) -> None:
    """Write TFRecord shards with an index and checksums.

    Example: headway data convert photos shards --shards 16 image_size=[128,128]

    A job then says dataset: {name: tfrecords, files: shards}.
    """
    from headway.units import format_bytes
    from headway.workloads.convert import convert as write_shards

    settings = _settings(*_meant(source), overrides or [])
    with _progress("writing") as progress:
        index, skipped = write_shards(settings, target, shards, progress, skip_bad)
    sizes = [[len(shard.lengths) for shard in index.splits[split]] for split in ("train", "test")]
    size = sum(shard.bytes for split in index.splits.values() for shard in split)
    for bad in skipped[:NUM_SHOWN]:
        print(f"left out: {bad}")
    if len(skipped) > NUM_SHOWN:
        print(f"left out: {len(skipped) - NUM_SHOWN:,} more")
    print(
        f"{target}: {counted(sum(sizes[0]), 'training example')} in {counted(len(sizes[0]), 'shard')}, "
        f"{counted(sum(sizes[1]), 'test example')} in {counted(len(sizes[1]), 'shard')}, "
        f"{format_bytes(size)}\nuse it with  dataset: {{name: tfrecords, files: {target}}}"
    )


@data_app.command()
def standin(
    target: Annotated[Path, typer.Argument(metavar="DST", help="An empty folder.", show_default=False)],
    share: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Of ImageNet's 144 GB; at least a record for each shard, 130 MB.")
    ] = 0.001,
) -> None:
    """Write made-up shards in ImageNet's format, with as large records, to measure reading.

    A job then says dataset: {name: imagenet, path: DST}.
    """
    from headway.units import format_bytes
    from headway.workloads.standin import write_standin

    with _progress("writing") as progress:
        size = write_standin(target, share, progress)
    print(f"{target}: {format_bytes(size)}\nuse it with  dataset: {{name: imagenet, path: {target}}}")


def _meant(source: str) -> tuple[str, dict[str, Any]]:
    """The data set's name and the settings that SRC stands for."""
    from headway import workloads
    from headway.workloads.shards import INDEX

    if source in workloads.dataset_names():
        return source, {}
    path = Path(source)
    if path.is_dir():
        return ("tfrecords", {"files": source}) if (path / INDEX).exists() else ("image_folder", {"path": source})
    if "*" in source or "?" in source:
        return "tfrecords", {"files": source}
    raise NotFound(f"{source}: neither a folder nor a data set (headway data list)")


def _chosen(arguments: list[str] | None) -> list[Settings]:
    """What the arguments name: data sets, or one with its settings."""
    from headway import workloads

    names = [argument for argument in arguments or [] if "=" not in argument]
    overrides = [argument for argument in arguments or [] if "=" in argument]
    if overrides and len(names) != 1:
        raise SpecError(f"settings ({overrides[0]}) are for one data set: write its name before them")
    if not names:
        return [found for name in workloads.dataset_names() if (found := workloads.default_settings(name)) is not None]
    return [_settings(name, {}, overrides) for name in names]


def _settings(name: str, settings: dict[str, Any], overrides: list[str]) -> Settings:
    from pydantic import ValidationError

    from headway import workloads
    from headway.spec.load import apply_override

    settings = {"name": name, **settings}
    for override in overrides:
        apply_override(settings, override)
    try:
        return workloads.dataset(name).Settings.model_validate(settings)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, detail['loc'])) or name}: {detail['msg'].removeprefix('Value error, ')}"
            for detail in error.errors(include_url=False)
        )
        raise SpecError(f"{name}: {'; '.join(problems)}") from None
    except ValueError as error:
        raise NotFound(f"{name}: {error}") from None


@contextmanager
def _progress(doing: str) -> Iterator[Progress]:
    """Shows what comes or goes: a bar on a terminal, a line for each thing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    tasks: dict[str, Any] = {}
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(file=beneath()), transient=True) as bar:

        def show(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(visible(what), total=total)
                if not bar.console.is_terminal:
                    print(f"{doing} {what} ...", flush=True)
            bar.update(tasks[what], completed=done, total=total)

        yield show
