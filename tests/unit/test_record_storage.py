"""Folders that cannot be written, as far as that needs no other disk (tests/real/test_storage.py has those)."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.errors import StorageError
from headway.launch.prepare import create_run
from headway.record.files import EventWriter, write_atomically
from headway.record.folder import RunFolder
from headway.record.reader import read_events
from headway.record.run import Run
from headway.record.storage import cause, explained, in_words
from headway.spec.load import parse_job

JOB = {"workload": {"command": "true"}}
# A file can have so many bytes and no more: a write goes half through, as on a disk that gets full.
WRITER = """
import resource, signal, sys
from pathlib import Path
from headway.errors import StorageError
from headway.record.files import EventWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
writer, failed = EventWriter(Path(sys.argv[1])), 0
for number in range(40):
    try:
        writer.write("step", number=number)
    except StorageError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write("end")
print(failed)
"""


def test_a_line_that_the_disk_takes_half_of_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    done = subprocess.run([sys.executable, "-c", WRITER, str(path)], capture_output=True, text=True, check=True)
    numbers = [event.get("number") for event in read_events(path)]
    failed = int(done.stdout)
    assert 0 < failed < 40
    assert numbers == [
        *range(40 - failed),
        None,
    ]  # all that was written before, and what came when there was room again


def test_a_full_disk_is_named_by_who_writes() -> None:
    writer = EventWriter(Path("/dev/full"))
    with pytest.raises(StorageError, match=r"^the disk is full: .*No space left on device"):
        writer.write("step")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("file/runs", "not a folder"),
        ("file", "not a folder"),
        ("loop/runs", "a link that leads to itself"),
        ("x" * 300, "the path is too long"),
        ("/proc/runs", "missing, or deleted since"),
    ],
)
def test_a_run_folder_that_cannot_be_made_is_said_with_what_to_do(tmp_path: Path, path: str, wanted: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageError, match=f"^{wanted}: ") as raised:
        create_run(parse_job(JOB), tmp_path / path)
    assert "--runs" in str(raised.value)


@pytest.mark.parametrize("command", [["run", "{job}"], ["launch", "--", "true"], ["bench", "{sweep}"]])
def test_every_command_that_makes_runs_says_it_in_a_few_words(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    sweep = {"job": "job.yaml", "vary": {"cluster.worker": [1, 2]}, "measure": {"steps": None, "figure": "steps"}}
    (tmp_path / "sweep.yaml").write_text(json.dumps(sweep))
    words = [word.format(job=tmp_path / "job.yaml", sweep=tmp_path / "sweep.yaml") for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "headway", *words],
        env={**os.environ, "HEADWAY_RUNS": str(tmp_path / "file")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == StorageError.exit_code, done.stderr
    assert done.stderr.startswith("headway: not a folder: ")
    assert len(done.stderr.splitlines()) <= 2


def test_what_libraries_say_in_their_own_exceptions_is_known(tmp_path: Path) -> None:
    error = RuntimeError("IO Error: Could not write file: No space left on device")
    assert cause(error) == errno.ENOSPC
    assert str(explained(error, tmp_path)).startswith(f"the disk is full: {tmp_path}")
    assert explained(RuntimeError("something else"), tmp_path) is None


def test_a_program_that_is_missing_is_no_matter_of_the_run_folder(tmp_path: Path) -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "unshare")
    assert explained(error, tmp_path) is None
    assert in_words(error) == "missing, or deleted since: unshare (No such file or directory)"


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "run.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "run.json", "x" * 100)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_reserve_is_there_while_a_run_goes_on_and_no_part_of_the_record(tmp_path: Path) -> None:
    folder: RunFolder = create_run(parse_job(JOB), tmp_path)
    folder.keep_reserve()
    assert (folder.path / "reserve").stat().st_blocks * 512 >= 256 * 1024
    assert Run(folder).rows("steps") == []
    folder.use_reserve()
    folder.use_reserve()
    assert not (folder.path / "reserve").exists()
