"""Commands that read what runs have left: runs, show, logs, query, tensorboard."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.output import Format, Output, number, print_json, print_table
from headway.cli.reading import careful, say_damaged
from headway.cli.training import Root, root_of
from headway.cli.visible import visible
from headway.errors import HeadwayError, NotFound, SpecError
from headway.plural import counted

if TYPE_CHECKING:
    from headway.record.folder import RunFolder

MOST_LOG = 8 * 2**20  # bytes of a log that are shown as text
PIECE = 2**18  # bytes of a log that are read at once
LEAST_MEMORY, MOST_MEMORY = 64 * 2**20, 2**40  # of a query, in bytes
RunName = Annotated[str, typer.Argument(help="A run's name, its beginning, its path, or `last`.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    app.command()(careful(runs))
    app.command()(careful(show))
    app.command()(careful(logs))
    app.command()(careful(query))
    app.command()(tensorboard)


def runs(root: Root = None, output: Output = Format.text) -> None:
    """Every run, oldest first, with its main figures (all of them: -o json)."""
    from headway.record.run import load_all
    from headway.record.seal import result
    from headway.spec.secrets import without_secrets

    figures = []
    for run in load_all(root_of(root)):
        try:
            figures.append(without_secrets(result(run)))
        except HeadwayError as error:  # one damaged run must not hide the others
            say_damaged(error)
    if output is Format.json:
        print_json(figures)
        return
    if not figures:
        print(f"no runs in {root_of(root)} yet; try: headway run examples/mnist-async.yaml")
        return
    print_table(
        ["run", "state", "strategy", "tasks", "steps", "steps/s", "examples/s", "accuracy"],
        [
            [
                one["run"],
                one["state"],
                one["strategy"],
                f"{one['num_training_tasks']}" + (f"+{one['num_ps']} ps" if one["num_ps"] else ""),
                f"{one['steps']:,}",
                number(one["steps_per_s"]),
                number(one["examples_per_s"], 4),
                _quality(one),
            ]
            for one in figures
        ],
        right=["steps", "steps/s", "examples/s", "accuracy"],
    )


def _quality(figures: dict[str, Any]) -> str:
    """The accuracy; the loss where there is none, and where it says that training diverged."""
    accuracy, loss = figures["accuracy"], figures["loss"]
    if loss is not None and (accuracy is None or not math.isfinite(loss)):
        return f"loss {number(loss)}"
    return "-" if accuracy is None else f"{accuracy:.4f}"


def show(run: RunName, root: Root = None, output: Output = Format.text) -> None:
    """Everything about one run.

    Its figures, tasks, evaluations, what happened, what was chosen and why, and where it ran.
    """
    from headway.cli.findings import brief_lines
    from headway.cli.live import note_text
    from headway.cli.summary import headline, server_rows, summary_lines
    from headway.findings import findings as find
    from headway.metrics.consistency import of_run
    from headway.record.folder import LAUNCHER
    from headway.record.run import load
    from headway.record.seal import result
    from headway.spec.secrets import without_secrets

    found = load(run, root_of(root))
    figures = without_secrets(result(found))
    evaluations, events = found.rows("evaluations"), found.rows("events")
    if output is Format.json:
        print_json(
            {
                **figures,
                "job": without_secrets(found.job),
                "choices": found.choices,
                "environment": found.environment,
                "evaluations": evaluations,
                "contradictions": [wrong.text for wrong in of_run(figures)],
            }
        )
        return
    print(f"{headline(figures)}\n")
    for what, figure in summary_lines(figures, found):
        print(f"  {what:<26} {figure}")
    for wrong in of_run(figures):
        print(f"  {'contradicts itself':<26} {wrong.text}")
    if figures["staleness"]:
        shares = {
            key: value / figures["staleness"]["gradients"] for key, value in figures["staleness"]["histogram"].items()
        }
        print("\nstaleness (updates by others between pull and push)")
        for key, share in list(shares.items())[:12]:
            print(f"  {key:>4}  {share:6.1%}  {'█' * round(40 * share)}")
    if figures["servers"]:
        print("\nvariables (optimizer slots included)")
        print_table(
            ["  server", "bytes", "share", "variables", "largest"],
            server_rows(figures["servers"]),
            right=["bytes", "share", "variables"],
        )
    if evaluations:
        print("\nevaluations")
        print_table(
            ["  step", "accuracy", "loss", "seconds"],
            [
                [f"  {one['step']:,}", number(one["accuracy"], 4), number(one["loss"], 4), number(one["seconds"])]
                for one in evaluations
            ],
        )
    notes = [event for event in events if event["task"] == LAUNCHER]
    notable = [(event, text) for event in notes if (text := note_text(event["kind"], json.loads(event["data"])))]
    if notable:
        print("\nwhat happened")
        for event, text in notable:
            print(f"  {event['t'] - figures['created']:8.1f} s  {text}")
    found_here = find(found, figures)
    if found_here:
        print(f"\nfindings (headway findings {found.name})")
        for line in brief_lines(found_here):
            print(line)
    print("\nchosen, and why")
    for choice in found.choices:
        print(f"  {choice['path']}: {choice['value']}  ({choice['reason']})")
    print("\nran on")
    environment = found.environment
    print(
        f"  {environment['cpu']}, {counted(environment['cores'], 'core')}, {environment['system']}, "
        f"Python {environment['python']}"
    )
    print("  " + ", ".join(f"{name} {version}" for name, version in environment["packages"].items()))


def logs(
    run: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    task: Annotated[
        str | None, typer.Option("--task", help="Only this task, such as worker/0, agent or launcher.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="The bytes as they are, control characters and all.")] = False,
    root: Root = None,
) -> None:
    """What the tasks of a run printed, with control characters shown as \\x1b."""
    from headway.record.folder import RunFolder
    from headway.record.tables import who_wrote

    folder = RunFolder.find(root_of(root), run)
    offsets: dict[Path, int] = {}
    while True:
        alive = bool(folder.is_held())  # looked at first, so that nothing written before the end is missed
        files = {who_wrote(path): path for path in folder.reader.files("logs", ".log")}
        if task is not None and task not in files and not alive:
            raise NotFound(f"{folder.name} has no log of {task!r}; there are: {', '.join(files)}")
        for who, path in files.items():
            if task in (None, who):
                for data in _new_pieces(folder, path, offsets, alive and follow, sys.maxsize if raw else MOST_LOG):
                    if raw:
                        sys.stdout.buffer.write(data)
                        sys.stdout.flush()
                    for line in () if raw else _lines(data):
                        print(line if task else f"{who:>10} | {line}", flush=True)
        if not follow or not alive:
            break
        time.sleep(0.2)
    if not any(offsets.values()):
        print(f"{folder.name}: its tasks printed nothing (what they did: headway show {folder.name})", file=sys.stderr)


def _new_pieces(
    folder: RunFolder, path: Path, offsets: dict[Path, int], whole_only: bool, most: int
) -> Iterator[bytes]:
    """What was not shown yet, piece by piece; of a log longer than `most` that was never shown its end."""
    with folder.reader.open(path, sys.maxsize) as file:
        size = os.fstat(file.fileno()).st_size
        if path not in offsets:
            offsets[path] = max(0, size - most)
            if offsets[path]:
                what = f"only the last {most // 2**20} MiB of {size:,} bytes are shown (--raw shows all)"
                print(f"headway: {path.name}: {what}", file=sys.stderr)
        while True:
            file.seek(offsets[path])
            data = file.read(PIECE)
            whole = data[: data.rfind(b"\n") + 1]
            if whole or whole_only:  # else a line that is longer than a piece, or has no end
                data = whole
            if not data:
                return
            offsets[path] += len(data)
            yield data


def _lines(data: bytes) -> list[str]:
    """A carriage return begins a line, too: a bar that is drawn again and again."""
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    return [visible(line) for line in text.removesuffix("\n").split("\n")] if text else []


def query(
    sql: Annotated[
        str, typer.Argument(help="SQL over the tables runs, steps, updates, evaluations, checkpoints, events.")
    ],
    run: Annotated[list[str] | None, typer.Option("--run", help="Only these runs. [default: all]")] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Stop the query after this long, with the reading of the runs.")
    ] = 60.0,
    memory: Annotated[str, typer.Option(help="Memory that the query may use.")] = "2GiB",
    root: Root = None,
    output: Output = Format.text,
) -> None:
    """Ask all runs at once, in SQL (DuckDB): one SELECT, or EXPLAIN of one.

    Example: headway query "select run, task, median(seconds) from steps where not warmup group by all"

    A query only reads, and only the runs' tables.
    """
    from headway.record.query import query as ask
    from headway.record.run import load, load_all

    chosen = [load(name, root_of(root)) for name in run] if run else load_all(root_of(root))
    columns, rows = ask(sql, chosen, seconds, _memory(memory), None if run else say_damaged)
    if output is Format.json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    numeric = [
        column for place, column in enumerate(columns) if all(isinstance(row[place], (int, float)) for row in rows)
    ]
    print_table(columns, [[_cell(cell) for cell in row] for row in rows], right=numeric)


def _memory(text: str) -> int:
    from headway.units import num_bytes

    try:
        size = num_bytes(text)
    except ValueError as error:
        raise SpecError(f"--memory {text!r}: {error}") from None
    if not LEAST_MEMORY <= size <= MOST_MEMORY:
        raise SpecError(f"--memory {text!r}: from 64MiB to 1TiB are allowed")
    return size


def _cell(cell: Any) -> Any:
    return number(cell, 6) if isinstance(cell, float) else cell


def tensorboard(
    run: Annotated[list[str], typer.Argument(help="One or more runs.", show_default=False)],
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 6006,
    root: Root = None,
) -> None:
    """Open runs in TensorBoard, side by side.

    It listens on this machine only (127.0.0.1). Ctrl-C ends it.
    """
    from importlib.util import find_spec

    from headway.record.run import load

    if find_spec("tensorboard") is None:
        raise NotFound("TensorBoard is not installed here: pip install 'headway[tensorflow]'")
    found = [load(name, root_of(root)) for name in run]
    spec = ",".join(f"{one.name}:{one.folder.boards}" for one in found)
    command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", str(port)]
    print(f"http://127.0.0.1:{port}/   (Ctrl-C ends it)", flush=True)
    place = ["--logdir", str(found[0].folder.boards)] if len(found) == 1 else ["--logdir_spec", spec]
    os.execv(sys.executable, [*command, *place])  # it is this process from now on: whoever ends that, ends it
