"""How steps and losses of a user's own program become events, whatever it tells of them by."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_FLOAT
from tensorboard.summary.writer.event_file_writer import EventFileWriter

import headway
from headway.engines.assignment import Assignment
from headway.engines.command.boards import Boards, meaning
from headway.engines.command.known_limits import explanation
from headway.engines.command.lines import Lines
from headway.engines.command.reports import Reporter
from headway.launch.prepare import create_run
from headway.record.reader import read_events
from headway.record.run import Run
from headway.record.sources import BOARD, LINE, LOG
from headway.spec.load import parse_job


class Told:
    """A task of a program, and what it wrote down."""

    def __init__(self, root: Path, task: str = "worker/0", **workload: Any) -> None:
        settings = {"workload": {"command": "x", **workload}, "cluster": {"worker": 2}, "measure": {"warmup": 0}}
        self.folder = create_run(parse_job(settings), root)
        self.assignment = Assignment({"HEADWAY_RUN": str(self.folder.path), "HEADWAY_TASK": task})
        self.reporter = Reporter(self.assignment)

    def all_events(self) -> list[dict[str, Any]]:
        self.assignment.events.flush()
        return list(read_events(self.folder.events(self.assignment.task)))

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.all_events() if event["kind"] == kind]

    def table(self, *names: str) -> list[tuple[Any, ...]]:
        """Of the record: the steps that count."""
        self.assignment.events.flush()
        return [tuple(row[name] for name in names) for row in Run(self.folder).rows("steps")]

    def steps(self, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(event[name] for name in names) for event in self.events("step")]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


# --- from reports to steps -------------------------------------------------------------------------------------------
def test_what_lies_between_two_reports_is_steps_and_seconds(told: Told) -> None:
    for t, step, loss in ((100.0, 10, 2.0), (101.0, 20, 1.0), (103.0, 40, 0.5)):
        told.reporter.report(LOG, t, {"step": step, "loss": loss})
    # When the first ten were begun nobody knows: measuring begins with the first report.
    assert told.steps("t", "step", "num_steps", "seconds", "loss", "warmup") == [
        (100.0, 10, 1, 0.0, 2.0, True),
        (101.0, 20, 10, 1.0, 1.0, False),
        (103.0, 40, 20, 2.0, 0.5, False),
    ]


def test_a_counter_that_begins_anew_in_each_epoch_goes_on(told: Told) -> None:
    for t, step in ((0.0, 0), (1.0, 50), (2.0, 0), (3.0, 50)):
        told.reporter.report(LOG, t, {"step": step, "loss": 1.0})
    assert told.steps("step") == [(0,), (50,), (100,), (150,)]


def test_a_better_source_replaces_a_worse_one_and_keeps_its_losses(told: Told) -> None:
    told.reporter.report(LINE, 1.0, {"step": 1, "loss": 3.0})
    told.reporter.report(LINE, 2.0, {"step": 2, "loss": 2.0})
    told.reporter.report(LOG, 2.1, {"step": 2})
    told.reporter.report(BOARD, 2.2, {"step": 2, "loss": 2.0})
    told.reporter.report(LINE, 3.0, {"step": 3, "loss": 1.0})
    told.reporter.report(LOG, 3.1, {"step": 3})
    assert told.steps("t", "source") == [(1.0, LINE), (2.0, LINE), (2.1, LOG), (3.1, LOG)]
    assert [event["source"] for event in told.events("reports_from")] == [LINE, LOG]
    # What counts, with what only the others knew.
    assert told.table("t", "num_steps", "loss") == [(2.1, 1, 2.0), (3.1, 1, 1.0)]


def test_examples_follow_from_the_batch_size_or_are_told(tmp_path: Path) -> None:
    told = Told(tmp_path, batch_size=32)
    told.reporter.report(LOG, 1.0, {"step": 1})
    told.reporter.report(LOG, 2.0, {"step": 3})
    told.reporter.report(LOG, 3.0, {"step": 4, "examples": 7})
    assert told.steps("examples") == [(32,), (64,), (7,)]


def test_accuracy_is_an_evaluation_and_other_numbers_are_kept(told: Told) -> None:
    told.reporter.report(LOG, 1.0, {"step": 5, "loss": 1.0, "accuracy": 0.5, "learning_rate": 0.1})
    assert [(event["step"], event["accuracy"]) for event in told.events("evaluation")] == [(5, 0.5)]
    assert [event["values"]["learning_rate"] for event in told.events("reported")] == [0.1]


# --- headway.log() ---------------------------------------------------------------------------------------------------
def test_headway_log_writes_lines_that_are_read_back(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    place = told.folder.reports(told.assignment.task)
    monkeypatch.setenv("HEADWAY_REPORTS", str(place))
    before = time.time()
    headway.log(step=3, loss=0.5)
    headway.log(step=4, loss=float("nan"))
    told.reporter.said(place.read_text() + "no JSON\n[1]\n{}\n")
    (t, step, loss), (_, _, not_a_number) = told.steps("t", "step", "loss")
    assert (step, loss) == (3, 0.5)
    assert before <= t <= time.time()
    assert math.isnan(float(not_a_number))


def test_headway_log_is_nothing_without_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_REPORTS", raising=False)
    headway.log(step=1, loss=2.0)


# --- lines -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("step 100 loss 0.25", (100, 0.25)),
        ("Step: 7, epoch 1, loss: 1.5e-3, 12 ms", (7, 0.0015)),
        ("global_step=12 loss=nan", (12, None)),
        ("INFO:tensorflow:loss = 0.5, step = 300 (0.123 sec)", (300, 0.5)),
        ("epoch 0 step 20 loss 2.302", (20, 2.302)),
        ("10\timages/sec: 12.3 +/- 0.1 (jitter = 0.2)\t7.654", (10, 7.654)),
        ("a footstep 5 gloss 3", None),
        ("no steps here, loss unknown", None),
    ],
)
def test_lines_that_scripts_print(told: Told, line: str, found: tuple[int, float | None] | None) -> None:
    Lines(told.assignment, told.reporter).hear(1.0, line)
    seen = [(step, None if math.isnan(float(loss)) else loss) for step, loss in told.steps("step", "loss")]
    assert seen == ([] if found is None else [found])


def test_the_rate_that_a_benchmark_prints_is_kept_as_it_says(told: Told) -> None:
    Lines(told.assignment, told.reporter).hear(1.0, "total images/sec: 123.45")
    assert [event["values"]["examples_per_s"] for event in told.events("reported")] == [123.45]
    assert told.steps("step") == []


def test_a_pattern_of_the_users_replaces_the_common_ones(tmp_path: Path) -> None:
    told = Told(tmp_path, report={"patterns": [r"it (?P<step>\d+): (?P<loss>\S+)"]})
    lines = Lines(told.assignment, told.reporter)
    for line in ("step 5 loss 1.0", "it 6: 0.5", "it 7: unknown"):
        lines.hear(1.0, line)
    assert told.steps("step", "loss") == [(6, 0.5)]


# --- TensorBoard files -----------------------------------------------------------------------------------------------
def scalar(step: int, tag: str, value: float, as_tensor: bool = False) -> Event:
    tensor = TensorProto(dtype=DT_FLOAT, float_val=[value])
    content = {"tensor": tensor} if as_tensor else {"simple_value": value}
    return Event(wall_time=100.0 + step, step=step, summary=Summary(value=[Summary.Value(tag=tag, **content)]))


def write(folder: Path, *events: Event) -> None:
    writer = EventFileWriter(str(folder))
    for event in events:
        writer.add_event(event)
    writer.close()


def boards(told: Told, folder: Path) -> Boards:
    folder.mkdir(exist_ok=True)
    return Boards(folder, os.getpid(), told.assignment, told.reporter)


def test_steps_come_from_the_files_of_its_own_process(told: Told, tmp_path: Path) -> None:
    followed = boards(told, folder := tmp_path / "board")
    write(folder, scalar(1, "loss", 2.0), scalar(1, "rate", 9.0), scalar(2, "loss", 1.0, as_tensor=True))
    (mine,) = folder.iterdir()
    other = mine.with_name(mine.name.replace(f".{os.getpid()}.", ".1."))
    other.write_bytes(mine.read_bytes())
    followed.look()
    followed.look()
    assert told.steps("t", "step", "loss") == [(101.0, 1, 2.0), (102.0, 2, 1.0)]


def test_a_record_that_is_being_written_is_read_when_it_is_whole(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", scalar(1, "train/loss", 2.0), scalar(2, "train/loss", 1.0))
    (whole,) = (tmp_path / "elsewhere").iterdir()
    followed = boards(told, folder := tmp_path / "board")
    (folder / whole.name).write_bytes(whole.read_bytes()[:-3])
    followed.look()
    assert told.steps("step") == [(1,)]
    (folder / whole.name).write_bytes(whole.read_bytes())
    followed.look()
    assert told.steps("step") == [(1,), (2,)]


def test_what_was_there_before_is_of_an_earlier_attempt(told: Told, tmp_path: Path) -> None:
    write(tmp_path / "board", scalar(1, "loss", 2.0))
    boards(told, tmp_path / "board").look()
    assert told.steps("step") == []


def test_folders_of_evaluations_hold_evaluations(told: Told, tmp_path: Path) -> None:
    followed = boards(told, folder := tmp_path / "board")
    write(folder / "eval", scalar(5, "accuracy", 0.75))
    followed.look()
    assert [(event["step"], event["accuracy"]) for event in told.events("evaluation")] == [(5, 0.75)]
    assert told.steps("step") == []


def test_keras_epochs_are_no_steps_and_its_batches_are(told: Told, tmp_path: Path) -> None:
    followed = boards(told, folder := tmp_path / "board")
    write(folder / "train", scalar(0, "epoch_loss", 2.0, as_tensor=True), scalar(0, "epoch_accuracy", 0.5))
    write(
        folder / "validation",
        scalar(0, "epoch_loss", 1.9),
        scalar(469, "evaluation_accuracy_vs_iterations", 0.9),
        scalar(469, "evaluation_loss_vs_iterations", 0.4),
    )
    followed.look()
    assert told.steps("step") == []
    (event,) = told.events("not_counted")
    assert (event["seen"], event["is_partial"]) == ("the scalar epoch_loss", False)
    assert "epochs, not in steps" in event["why"]
    # Its step is that of the optimizer; accuracy and loss come in two events.
    found = [(each["step"], each["accuracy"], each["loss"]) for each in told.events("evaluation")]
    assert found == [(469, pytest.approx(0.9), pytest.approx(0.4))]
    write(folder / "again", scalar(1, "batch_loss", 2.0), scalar(2, "batch_loss", 1.0), scalar(2, "val/loss", 3.0))
    followed.look()
    assert told.steps("step", "loss") == [(1, 2.0), (2, 1.0)]


@pytest.mark.parametrize(
    ("tag", "is_of"),
    [
        ("loss", (None, "loss")),
        ("train/loss", (None, "loss")),
        ("batch_loss", (None, "loss")),
        ("loss_1", (None, "loss")),
        ("train_loss_step", (None, "loss")),
        ("train_loss_epoch", ("epochs", None)),
        ("epoch_loss", ("epochs", "loss")),
        ("eval/loss", ("evaluations", "loss")),
        ("val_accuracy", ("evaluations", "accuracy")),
        ("evaluation_loss_vs_iterations", ("evaluations", "loss")),
        ("Loss/train", (None, None)),
        ("learning_rate", (None, None)),
    ],
)
def test_what_the_name_of_a_scalar_says(tag: str, is_of: tuple[str | None, str | None]) -> None:
    assert meaning(tag) == is_of


def test_a_scalar_that_is_named_counts_whatever_it_is_called(tmp_path: Path) -> None:
    told = Told(tmp_path, report={"loss_tag": "Loss/train"})
    followed = boards(told, folder := tmp_path / "board")
    write(folder, scalar(1, "Loss/train", 2.0), scalar(2, "loss", 9.0), scalar(2, "Loss/train", 1.0))
    followed.look()
    assert told.steps("step", "loss") == [(1, 2.0), (2, 1.0)]
    assert told.events("not_counted") == []


def test_files_that_do_not_tell_whose_they_are_are_the_chiefs(tmp_path: Path) -> None:
    for task, heard in (("worker/0", [(1,)]), ("worker/1", [])):
        told = Told(tmp_path, task=task)
        followed = boards(told, folder := tmp_path / task.replace("/", "-"))
        write(tmp_path / f"of-{folder.name}", scalar(1, "loss", 2.0))
        (made,) = (tmp_path / f"of-{folder.name}").iterdir()
        (folder / "events.out.tfevents.1700000000.some.host").write_bytes(made.read_bytes())
        followed.look()
        assert told.steps("step") == heard


def test_known_limits_are_explained() -> None:
    assert explanation("ValueError: Attempt to convert a value (PerReplica:{...}) with an unsupported type") is not None
    assert explanation("ValueError: something else") is None
