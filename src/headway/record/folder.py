"""RunFolder owns every path of a run folder. docs/formats.md describes what the files hold.

<run>/
  run.json              what the run is and its state; rewritten atomically at each change
  job.json              the job: as asked, as resolved, and the reason for every chosen value
  environment.json      machine, CPU, versions, commit
  events/TASK.jsonl     what each task (and the launcher) did, appended while it runs
  metrics/NODE.jsonl    samples of each node and the tasks on it, appended while it runs
  logs/TASK.log         what each task printed
  logs/TASK.reports.jsonl   what a user's own program said with headway.log()
  model_dir/            what a user's own program keeps there
  alive/TASK            touched by a living task; only its modification time matters
  checkpoints/step-N/   the variables at global step N
  tensorboard/TASK/     for TensorBoard
  model/                the SavedModel
  tables/*.parquet      the events as tables, written when the run is sealed
  reserve               room for the end of the record, while the run goes on
  control.sock, lock    held by the launcher while it lives
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headway import locks
from headway.errors import FormatError, NotFound
from headway.locks import Held
from headway.record.files import to_json, write_atomically
from headway.record.reader import NUMBER, TEXT, Reader, fits
from headway.record.storage import RESERVE, probe, writing
from headway.spec.cluster import Task

FORMAT = 1
LAUNCHER = "launcher"
ENDED = ("finished", "stopped", "failed")
# run.json, as far as anything is read from it.
FACTS = {
    "name": TEXT,
    "state": TEXT,
    "reason": TEXT,
    "created": NUMBER,
    "launches": [{"started": NUMBER, "ended": NUMBER, "pid": NUMBER}],
}
NEEDED = ("name", "state", "created", "launches")
RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def default_root() -> Path:
    """Where run folders go unless told otherwise."""
    return Path(os.environ.get("HEADWAY_RUNS", "runs"))


def new_run_name(job_name: str) -> str:
    return f"{job_name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Folder = TypeVar("Folder", bound=_Named)


def by_name(known: Sequence[Folder], name: str, complaint: str, command: str) -> Folder:
    """Of these, oldest first: by name, by the unique beginning of a name, or `last`. NotFound says what there is, and
    which command lists it."""
    if name == "last" and known:
        return known[-1]
    matching = [each for each in known if each.name == name] or [each for each in known if each.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise NotFound(f"{name!r} could be any of: {', '.join(each.name for each in matching)}")
    newest = f"; the newest is {known[-1].name}" if known else ""
    raise NotFound(f"{complaint}{newest} (`{command}` lists them)")


def _slug(who: Task | str) -> str:
    return who.slug if isinstance(who, Task) else who


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.reader = Reader(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @staticmethod
    def create(root: Path, job_name: str) -> RunFolder:
        """StorageError where it cannot be made."""
        folder = RunFolder(root / new_run_name(job_name))
        with writing(root):
            folder.path.mkdir(parents=True)
            for inner in ("events", "metrics", "logs", "alive", "checkpoints", "tensorboard"):
                (folder.path / inner).mkdir()
        probe(folder.path)
        return folder

    @staticmethod
    def find(root: Path, name: str) -> RunFolder:
        """By path, by name, by the unique beginning of a name, or `last`."""
        if (Path(name) / "run.json").is_file() and RUN_NAME.fullmatch(Path(name).absolute().name):
            return RunFolder(Path(name))
        return by_name(RunFolder.all(root), name, f"no run {name!r} in {root}", "headway runs")

    @staticmethod
    def all(root: Path) -> list[RunFolder]:
        """Every run below `root`, oldest first."""
        found = [RunFolder(path.parent) for path in root.glob("*/run.json") if RUN_NAME.fullmatch(path.parent.name)]
        return sorted(found, key=lambda folder: (folder.created(), folder.name))

    # --- files -----------------------------------------------------------------------------------------------
    @property
    def job_file(self) -> Path:
        return self.path / "job.json"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def resolver_file(self) -> Path:
        """The name servers that tasks in a private network ask."""
        return self.path / "resolv.conf"

    @property
    def events_folder(self) -> Path:
        return self.path / "events"

    @property
    def metrics_folder(self) -> Path:
        return self.path / "metrics"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def boards(self) -> Path:
        """What TensorBoard shows of the run: ours, or what a user's own program wrote."""
        return self.model_dir if self.model_dir.is_dir() else self.tensorboard_folder

    @property
    def model_dir(self) -> Path:
        """Where a user's own program may keep what it makes."""
        return self.path / "model_dir"

    @property
    def tensorboard_folder(self) -> Path:
        return self.path / "tensorboard"

    @property
    def control_socket(self) -> Path:
        return self.path / "control.sock"

    def events(self, who: Task | str) -> Path:
        return self.events_folder / f"{_slug(who)}.jsonl"

    def metrics(self, node: str) -> Path:
        return self.metrics_folder / f"{node}.jsonl"

    def log(self, who: Task | str) -> Path:
        return self.path / "logs" / f"{_slug(who)}.log"

    def reports(self, task: Task) -> Path:
        """What a user's own program says with headway.log()."""
        return self.path / "logs" / f"{task.slug}.reports.jsonl"

    def alive(self, task: Task) -> Path:
        return self.path / "alive" / task.slug

    def tensorboard(self, task: Task) -> Path:
        return self.tensorboard_folder / task.slug

    # --- run.json --------------------------------------------------------------------------------------------
    def facts(self) -> dict[str, Any]:
        """run.json. Where it says that the run goes on, `state` is `interrupted` if no launcher lives, and `unknown` if
        that cannot be told."""
        facts = self.read(self.path / "run.json")
        fits(facts, FACTS, str(self.path / "run.json"))
        if missing := [name for name in NEEDED if facts.get(name) is None]:
            raise FormatError(f"{self.path / 'run.json'}: damaged: {missing[0]} is not there")
        for launch in facts["launches"]:
            if launch.get("started") is None or not math.isfinite(launch["started"]):
                raise FormatError(f"{self.path / 'run.json'}: launches: one has no time at which it started")
        if facts["state"] not in ENDED and (held := self.is_held()) is not Held.HELD:
            facts["state"] = "unknown" if held is Held.UNKNOWN else "interrupted"
        return facts

    def created(self) -> float:
        try:
            created = float(self.read(self.path / "run.json")["created"])
            return created if math.isfinite(created) else 0.0
        except (FormatError, LookupError, TypeError, ValueError):  # one damaged run must not hide the others
            return self.path.lstat().st_mtime

    def write_facts(self, facts: dict[str, Any]) -> None:
        write_atomically(self.path / "run.json", to_json({"format": FORMAT, **facts}, indent=1))

    def read(self, file: Path) -> dict[str, Any]:
        return self.reader.json(file, FORMAT)

    # --- who runs it -----------------------------------------------------------------------------------------
    def hold(self) -> int:
        """Take the run for this process."""
        with writing(self.path):
            return locks.take(self.path / "lock", f"{self.name} is running already (`headway status`)")

    def keep_reserve(self) -> None:
        """Take some room on the disk now: a disk that gets full must still take how the run ended."""
        with writing(self.path), (self.path / "reserve").open("wb") as file:
            file.write(os.urandom(RESERVE))  # no file system can make that smaller
            file.flush()
            os.fsync(file.fileno())

    def use_reserve(self) -> None:
        with contextlib.suppress(OSError):
            (self.path / "reserve").unlink(missing_ok=True)

    def is_held(self) -> Held:
        """Whether a launcher lives."""
        return locks.is_held(self.path / "lock")
