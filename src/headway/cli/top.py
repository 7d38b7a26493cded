"""The picture of a run that `headway run` and `headway top` draw in place: its nodes and tasks, with sparklines.

The picture is made of a status (launch/status.py) and nothing else. Where a terminal is narrow, sparklines get shorter
and then columns go, those of least interest first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.cli.output import number
from headway.cli.training import status_of
from headway.cli.visible import beneath, visible_in
from headway.plural import counted
from headway.units import format_bytes, format_rate, format_seconds

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.text import Text

    from headway.record.folder import RunFolder

REFRESH = 2.0  # pictures a second: more would take from the training, and nobody reads faster
BLOCKS = "▁▂▃▄▅▆▇█"
LONGEST, SHORTEST = 24, 8  # values that a sparkline shows
GUTTER = 2  # blanks between columns
BAR = 72
PLAIN_WIDTH = 160  # columns where there is no terminal

Series = Sequence[float | None]
Row = dict[str, Any]


def show(folder: RunFolder) -> None:
    """Once, without escape codes and without a terminal's width."""
    from rich.console import Console

    out = Console(highlight=False, color_system=None, width=PLAIN_WIDTH)
    with out.capture() as capture:
        out.print(render(status_of(folder, pids=False)))
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))


def watch(folder: RunFolder) -> None:
    """In place, until the run ends or the user has seen enough."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from headway.cli.keys import pressed

    hint = Text("q: leave; the run goes on", style="dim")
    key, leaves = "", False
    try:
        with pressed() as wait, Live(console=Console(file=beneath()), auto_refresh=False) as live:
            while not (leaves := key in ("q", "Q")) and folder.is_held():
                live.update(Group(render(status_of(folder, pids=False), spare=2), hint), refresh=True)
                key = wait(1 / REFRESH)
    except KeyboardInterrupt:
        leaves = True
    if leaves:
        print(f"{folder.name} goes on; headway stop {folder.name}   ends it")
        return
    facts = folder.facts()
    print(f"{folder.name}: {facts['state']}" + (f" ({facts['reason']})" if facts["reason"] else ""))


# --- the picture -----------------------------------------------------------------------------------------------------
def render(status: dict[str, Any], spare: int | None = None) -> RenderableType:
    """A status as a picture. `spare`: lines of the terminal that others need; None: there is no end of lines."""
    return Picture(visible_in(status), spare)


@dataclass(frozen=True)
class Picture:
    status: dict[str, Any]
    spare: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        status, width = self.status, options.max_width
        head = list(self._head(width))
        nodes, tasks = status.get("nodes", []), status["tasks"]
        room = math.inf if self.spare is None else console.height - self.spare - len(head) - 2
        most_nodes, most_tasks = _shares(len(nodes), len(tasks), room)
        yield from head
        for what, columns, rows, most in (
            ("nodes", node_columns, nodes, most_nodes),
            ("tasks", task_columns, tasks, most_tasks),
        ):
            if rows:
                yield from table(columns(rows[:most]), width)
                if len(rows) > most:
                    yield Text(f"… and {len(rows) - most} more {what}", style="dim")

    def _head(self, width: int) -> Iterator[RenderableType]:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        status = self.status
        since = f", {format_seconds(status['t'] - status['started'])}" if "started" in status else ""
        first = f"{status['run']}: {status['state']}{since}{left_text(status)}"
        yield Text(first, style="bold", no_wrap=True, overflow="ellipsis")
        if status["step"] is None:  # it prepares
            return
        yield Text(progress_text(status), no_wrap=True, overflow="ellipsis")
        if target := status["stop"].get("steps"):
            share = min(1.0, status["step"] / target)
            bar = Table.grid(padding=(0, GUTTER, 0, 0))  # a bare bar does not end its line
            bar.add_row(ProgressBar(total=1.0, completed=share, width=max(1, min(BAR, width - 8))), f"{share:.0%}")
            yield bar
        if status["evaluation"]:
            text = f"evaluated: {evaluation_text(status['evaluation'])}"
            yield Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _shares(num_nodes: int, num_tasks: int, room: float) -> tuple[int, int]:
    """How many rows of each table fit; one that is cut needs a line to say so."""
    if num_nodes + num_tasks <= room:
        return num_nodes, num_tasks
    nodes = min(num_nodes, max(2, int(room) // 2, int(room) - num_tasks))
    tasks = min(num_tasks, max(2, int(room) - nodes))
    return (nodes if nodes == num_nodes else nodes - 1), (tasks if tasks == num_tasks else tasks - 1)


# --- tables ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Column:
    """A text or figure for each row, perhaps with what it was before."""

    heading: str
    cells: Sequence[str]
    goes: int | None = None
    """Columns with the highest number go first where there is no room; None: it stays."""
    right: bool = True
    series: Sequence[Series] | None = None
    tops: Sequence[float | None] = ()
    """For each row the value of a full block; None: the highest shown."""
    flattens: int | None = None
    """As `goes`, for its sparkline alone."""
    styles: Sequence[str] | None = None

    @property
    def text_width(self) -> int:
        return max(len(cell) for cell in (self.heading, *self.cells))

    def flat(self) -> Column:
        return Column(self.heading, self.cells, self.goes, self.right, styles=self.styles)


def table(columns: Sequence[Column], width: int) -> Iterator[Text]:
    """Lines, none of them wider."""
    from rich.text import Text

    columns, length = fitting(columns, width)

    def line(texts: Sequence[str], sparks: Sequence[str], styles: Sequence[str]) -> Text:
        whole = Text(no_wrap=True, overflow="ellipsis")
        for place, (column, text) in enumerate(zip(columns, texts, strict=True)):
            whole.append(" " * GUTTER if place else "")
            aligned = text.rjust(column.text_width) if column.right else text.ljust(column.text_width)
            whole.append(aligned, style=styles[place])
            if column.series is not None:
                whole.append(f" {sparks[place]:{length}}", style="cyan")
        whole.rstrip()
        return whole

    nothing = [""] * len(columns)
    yield line([column.heading for column in columns], nothing, ["dim"] * len(columns))
    for row in range(len(columns[0].cells)):
        yield line(
            [column.cells[row] for column in columns],
            [spark(column.series[row], length, column.tops[row]) if column.series else "" for column in columns],
            [column.styles[row] if column.styles else "" for column in columns],
        )


def fitting(columns: Sequence[Column], width: int) -> tuple[list[Column], int]:
    """The columns that have room, and how many values their sparklines show."""
    kept = list(columns)
    while True:
        taken = sum(column.text_width for column in kept) + GUTTER * (len(kept) - 1)
        num_sparks = sum(column.series is not None for column in kept)
        length = min(LONGEST, (width - taken) // num_sparks - 1) if num_sparks else 0
        if (num_sparks and length >= SHORTEST) or (not num_sparks and taken <= width):
            return kept, length
        flattening = [(column.flattens, place) for place, column in enumerate(kept) if column.series is not None]
        going = [(column.goes, place) for place, column in enumerate(kept)]
        rank, place = max(((rank, place) for rank, place in flattening + going if rank is not None), default=(0, -1))
        if place < 0:
            return kept, max(1, length)  # what cannot go is cut off
        if (rank, place) in going:
            del kept[place]
        else:
            kept[place] = kept[place].flat()


def spark(values: Series, length: int, top: float | None = None) -> str:
    """The last values as blocks from 0 to `top` (None: to the highest of them), the newest at the right; blank where
    there is none."""
    shown = values[-length:]
    known = [value for value in shown if value is not None and math.isfinite(value)]
    top = top or max(known, default=0.0)

    def block(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        share = max(0.0, min(1.0, value / top)) if top > 0 else 0.0
        return BLOCKS[round(share * (len(BLOCKS) - 1))]

    return "".join(map(block, shown)).rjust(length)


def node_columns(nodes: Sequence[Row]) -> list[Column]:
    def of(heading: str, name: str, text: Callable[[Row], str], limit: str, goes: int | None, flattens: int) -> Column:
        """`limit`: what the node has of it, if that is known."""
        cells = [text(node) if node["now"].get(name) is not None else "-" for node in nodes]
        series = [node["history"].get(name, []) for node in nodes]
        tops = [node["limits"].get(limit) for node in nodes]
        return Column(heading, cells, goes, series=series, tops=tops, flattens=flattens)

    def rate(name: str) -> Callable[[Row], str]:
        return lambda node: format_rate(node["now"][name]).removesuffix("bit/s").rstrip()

    def moved(*names: str) -> bool:
        return any(any(node["history"].get(name, [])) for node in nodes for name in names)

    columns = [
        Column("node", [node["node"] for node in nodes], right=False, styles=[_red(not node["up"]) for node in nodes]),
        of("CPUs", "cpus", _cpus, "cpus", None, 1),
        of("memory", "memory", _memory, "memory", 3, 9),
    ]
    # A node alone talks to itself, several to each other: what does not move then is not worth its room.
    is_external = len(nodes) > 1 or moved("received", "sent")
    if is_external:
        columns += [
            of("in bit/s", "received", rate("received"), "rate", 2, 4),
            of("out bit/s", "sent", rate("sent"), "rate", 2, 4),
        ]
    if len(nodes) == 1 or moved("loopback_sent"):
        goes, flattens = (6, 7) if is_external else (2, 4)
        columns.append(of("loopback", "loopback_sent", rate("loopback_sent"), "", goes, flattens))
    if any(node["gpus"] for node in nodes):
        columns.append(_gpu_column(nodes))
    if any("credits" in node["now"] for node in nodes):
        columns.append(of("credits", "credits", lambda node: f"{node['now']['credits']:.1f}", "", 2, 8))
    columns.append(Column("tasks", [" ".join(node["tasks"]) for node in nodes], goes=8, right=False))
    return columns


def _cpus(node: Row) -> str:
    of = node["limits"]["cpus"]
    return f"{node['now']['cpus']:.2f}" + (f"/{of:.3g}" if of else "")


def _gpu_column(nodes: Sequence[Row]) -> Column:
    """How busy a node's GPUs are, in the mean."""

    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def text(node: Row) -> str:
        busy = mean([gpu["now"].get("busy") for gpu in node["gpus"]])
        return "-" if busy is None else (f"{len(node['gpus'])} x " if len(node["gpus"]) > 1 else "") + f"{busy:.0%}"

    series = [[mean(moment) for moment in zip(*_ends(node["gpus"]), strict=True)] for node in nodes]
    return Column("GPU", [text(node) for node in nodes], 2, series=series, tops=[1.0] * len(nodes), flattens=2)


def _ends(gpus: Sequence[Row]) -> list[Series]:
    """The newest samples that all of them have."""
    histories = [gpu["history"].get("busy", []) for gpu in gpus]
    shortest = min(map(len, histories), default=0)
    return [history[len(history) - shortest :] for history in histories]


def _memory(node: Row) -> str:
    memory, of = node["now"]["memory"], node["limits"]["memory"]
    return format_bytes(memory) + (f" {memory / of:3.0%}" if of else "")


def task_columns(tasks: Sequence[Row]) -> list[Column]:
    def training(text: Callable[[Row], str]) -> list[str]:
        return [text(task) if task["trains"] else "" for task in tasks]

    def series(name: str) -> list[Series]:
        return [task["history"].get(name, []) for task in tasks]

    def present(name: str, text: Callable[[float], str]) -> list[str]:
        return [text(value) if (value := task["now"].get(name)) is not None else "-" for task in tasks]

    no_tops = [None] * len(tasks)
    columns = [
        Column("task", [task["task"] for task in tasks], right=False),
        Column(
            "phase",
            [task["trouble"] or task["busy"] or task["phase"] for task in tasks],
            right=False,
            styles=[_red(task["trouble"] is not None) for task in tasks],
        ),
        Column("own steps", training(lambda task: f"{task['own_steps']:,}"), goes=5),
        Column(
            "steps/s",
            training(lambda task: number(task["steps_per_s"])),
            series=series("steps_per_s"),
            tops=no_tops,
            flattens=2,
        ),
        Column(
            "loss",
            training(lambda task: number(task["loss"])),
            goes=4,
            series=series("loss"),
            tops=no_tops,
            flattens=3,
        ),
        Column("CPUs", present("cpus", lambda value: f"{value:.2f}"), goes=8),
        Column("memory", present("memory", format_bytes), goes=7),
    ]
    if any(task["restarts"] for task in tasks):
        columns.append(Column("restarts", [str(task["restarts"] or "") for task in tasks], goes=1))
    return columns


def _red(is_bad: bool) -> str:
    return "red" if is_bad else ""


# --- words -----------------------------------------------------------------------------------------------------------
def progress_text(status: dict[str, Any]) -> str:
    target, rate = status["stop"].get("steps"), status["steps_per_s"]
    losses = [task["loss"] for task in status["tasks"] if task["trains"] and task["loss"] is not None]
    text = f"step {status['step']:,}" + (f" of {target:,}" if target else "")
    if rate:
        text += f", {number(rate)} steps/s"
        text += f", {number(status['examples_per_s'], 4)} examples/s" if status["examples_per_s"] else ""
    return text + (f", loss {number(sum(losses) / len(losses))}" if losses else "")


def left_text(status: dict[str, Any]) -> str:
    """How long it will take still, as a further part of a sentence; nothing where that cannot be said."""
    target, rate = status["stop"].get("steps"), status.get("steps_per_s")
    if not target or not rate or status["step"] >= target or status["state"] != "running":
        return ""
    return f", about {format_seconds((target - status['step']) / rate)} left"


def evaluation_text(event: dict[str, Any]) -> str:
    quality = f"accuracy {event['accuracy']:.4f}, " if isinstance(event.get("accuracy"), float) else ""
    loss = event["loss"] if isinstance(event["loss"], float) else None
    return f"step {event['step']:,}: {quality}loss {number(loss)} on {counted(event['num_examples'], 'test example')}"
