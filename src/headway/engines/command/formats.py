r"""What training scripts print, read line by line. Each format knows one form of line; what it cannot read is None.

    nanoGPT             iter 10: loss 4.1234, time 123.45ms, mfu 1.23%
    tf.estimator        loss = 0.5, step = 300 (0.123 sec)
    Keras 2             12/469 [>.............] - ETA: 3s - loss: 0.5 - accuracy: 0.8        below `Epoch 1/5`
    Keras 3             12/469 ━━━━━━━━━━━━━━━━ 3s 6ms/step - accuracy: 0.8 - loss: 0.5      below `Epoch 1/5`
    tqdm, Lightning     Epoch 0:  43%|████▎     | 20/47 [00:01<00:02, 13.1it/s, v_num=0, train_loss=1.23]
    pytorch/examples    Train Epoch: 1 [640/60000 (1%)]  Loss: 2.3       examples, not steps
    pytorch/examples    Epoch: [0][  10/5005]  Time 0.5 (0.6)  Loss 6.9 (7.0)
    tutorials           Epoch [1/5], Step [100/600], Loss: 0.3

Counters that begin anew in each epoch are made into one that goes on. A line that may tell of steps or of something
else counts nothing: its `Reading` says why.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|inf)"
_LOSS = rf"(?<![\w/])(?:train(?:ing)?[ _/]?)?loss(?:_step)?['\"]?[ :=]*(?P<loss>{NUMBER})"
_STEP = r"\b(?P<word>(?:global_?|train(?:ing)?_?)?(?:step|iter(?:ation)?))s?['\"]?[ :=#]*(?P<step>\d+)\b"
_OF_EVALUATION = r"(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|dev)"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONGEST = 2000  # characters of a line that are looked at: no line that tells of a step is longer
SHOWN = 60  # characters of a line in a message

HOW = "Say which lines count steps with workload.report.patterns, or call headway.log(step=...) in the program"


@dataclass(frozen=True)
class Reading:
    """What a line says."""

    step: int | None = None
    loss: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    """Further numbers that are kept: examples of this step, examples_per_s."""
    evaluation: tuple[float | None, float | None] | None = None
    """Accuracy and loss on data that is not trained on."""
    evaluated_step: int | None = None
    not_counted: str | None = None
    """Why it tells of no step, although it may look so."""
    is_partial: bool = False
    """This matters also where other lines were counted."""
    counter: str = ""
    """What counts here: two counters in one output are not mixed."""


class Format:
    """One form of line. `read` may keep what it needs to know of the lines before."""

    def read(self, line: str) -> Reading | None:
        raise NotImplementedError


def plain(line: str) -> str:
    """Without colours."""
    return _ESCAPES.sub("", line)[:LONGEST]


def shown(line: str) -> str:
    text = " ".join(line.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


class Pattern(Format):
    """Regular expressions whose groups are named as the values are."""

    def __init__(self, *patterns: str, flags: int = re.IGNORECASE) -> None:
        self._patterns = [re.compile(pattern, flags) for pattern in patterns]

    def read(self, line: str) -> Reading | None:
        for pattern in self._patterns:
            if found := pattern.search(line):
                groups = found.groupdict()
                word = groups.pop("word", None) or ""
                try:
                    values = {name: float(text) for name, text in groups.items() if text is not None}
                except ValueError:
                    continue  # the user's pattern takes more than a number: then it is not meant
                step, loss = values.pop("step", None), values.pop("loss", None)
                step = None if step is None or not math.isfinite(step) else step
                return Reading(None if step is None else int(step), loss, values, counter=word.lower())
        return None


class KerasBar(Format):
    """A bar has no number of its epoch: the line `Epoch 2/5` above it has. A bar that begins again without such a line
    may be evaluate()'s, or that of another fit()."""

    _HEAD = re.compile(r"^Epoch (\d+)/(\d+)$")
    _BAR = re.compile(r"^\s*(\d+)/(\d+|Unknown)\s+(?:\[[=>.]*\]\s*|━+\s*)?(?:-\s*)?(?:ETA:\s*)?(?:\d+:)*\d+s?\b(.*)$")
    _METRIC = re.compile(rf" - (\w+): ({NUMBER})(?!\S)")
    _OTHER = (
        "a progress bar begins again without a line `Epoch N/M` above it: it may be evaluate() or another fit(), "
        "so its steps are not counted"
    )

    def __init__(self) -> None:
        self._before = 0  # steps in the epochs before this one
        self._at = 0
        self._total: str | None = None
        self._is_other = False

    def read(self, line: str) -> Reading | None:
        if self._HEAD.match(line.strip()):
            self._before += self._at
            self._at, self._total, self._is_other = 0, None, False
            return Reading()
        found = self._BAR.match(line)
        if not found:
            return None
        metrics = {name: float(value) for name, value in self._METRIC.findall(found[3])}
        if "loss" not in metrics:
            return None
        step, total = int(found[1]), found[2]
        self._is_other = self._is_other or (self._total not in (None, total) and "Unknown" not in (self._total, total))
        self._is_other = self._is_other or step < self._at
        if self._is_other:
            return Reading(not_counted=self._OTHER, is_partial=True)
        self._at, self._total = step, total
        evaluation = None
        if "val_loss" in metrics:
            accuracy = next((value for name, value in metrics.items() if re.fullmatch(r"val_\w*acc\w*", name)), None)
            evaluation = (accuracy, metrics["val_loss"])
        return Reading(self._before + step, metrics["loss"], evaluation=evaluation)


class Tqdm(Format):
    """A progress bar counts any loop: only one that shows a training loss is taken for training."""

    _BAR = re.compile(r"^(?P<title>.*?)\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+)\s*\[(?P<rest>.*(?:it/s|s/it).*)$")
    _LOSS = re.compile(_LOSS, re.IGNORECASE)
    _NOT_TRAINING = re.compile(r"\b(?:val\b|val_|valid|eval|test|sanity|predict)", re.IGNORECASE)

    def __init__(self) -> None:
        self._before = self._at = 0
        self._total: int | None = None

    def read(self, line: str) -> Reading | None:
        found = self._BAR.match(line)
        if not found:
            return None
        if self._NOT_TRAINING.search(found["title"]):
            return Reading()
        loss = self._LOSS.search(found["title"]) or self._LOSS.search(found["rest"])
        if not loss:
            why = "a progress bar without a loss may count anything: it is not counted"
            return Reading(not_counted=why)
        step, total = int(found["step"]), int(found["total"])
        if self._total not in (None, total):
            why = f"progress bars of {self._total} and of other numbers of steps show a loss: only the first is counted"
            return Reading(not_counted=why, is_partial=True)
        if step < self._at:
            self._before += total
        self._at, self._total = step, total
        return Reading(self._before + step, float(loss["loss"]))


class TrainEpoch(Format):
    """`Train Epoch: 1 [640/60000 (1%)]  Loss: 2.3`: the examples that this task has used in this epoch, of those in the
    data set; with several tasks each uses a part of these. A batch size makes them steps."""

    _LINE = re.compile(
        rf"^Train Epoch: (?P<epoch>\d+) \[(?P<done>\d+)/(?P<all>\d+) \((?P<percent>[\d.]+)%\)\]\s*Loss: "
        rf"(?P<loss>{NUMBER})"
    )

    def __init__(self, batch_size: int | None, num_tasks: int) -> None:
        self._batch_size, self._num_tasks = batch_size, num_tasks
        self._epoch: int | None = None
        self._before = 0  # steps
        self._examples = 0  # in an epoch, of this task

    def read(self, line: str) -> Reading | None:
        found = self._LINE.match(line)
        if not found:
            return None
        loss, done = float(found["loss"]), int(found["done"])
        if self._batch_size is None:
            why = "such lines count examples, not steps: with workload.batch_size they are made into steps"
            return Reading(loss=loss, not_counted=why)
        if self._epoch not in (None, int(found["epoch"])):
            self._before += math.ceil(self._examples / self._batch_size)
        self._epoch = int(found["epoch"])
        self._examples = self._in_epoch(done, int(found["all"]), float(found["percent"]))
        return Reading(self._before + done // self._batch_size, loss)

    def _in_epoch(self, done: int, everything: int, percent: float) -> int:
        """Of this task: all of them, or its share. The percentage is of what this task uses."""
        share = math.ceil(everything / self._num_tasks)
        is_share = abs(100 * done / max(1, share) - percent) < abs(100 * done / max(1, everything) - percent)
        return share if is_share else everything


class EpochAndBatch(Format):
    """Lines that say which batch of how many in which epoch."""

    _LINES = (
        re.compile(rf"^Epoch:? \[(?P<epoch>\d+)\]\s*\[\s*(?P<step>\d+)/(?P<all>\d+)\].*?{_LOSS}", re.IGNORECASE),
        re.compile(
            r"^\[?Epoch:? \[?(?P<epoch>\d+)(?:/\d+)?\]?[ ,:|-]*(?:Step|Batch|Iter(?:ation)?):? "
            rf"\[?\s*(?P<step>\d+)/(?P<all>\d+)\]?.*?{_LOSS}",
            re.IGNORECASE,
        ),
    )

    def __init__(self) -> None:
        self._first: int | None = None

    def read(self, line: str) -> Reading | None:
        found = next((match for pattern in self._LINES if (match := pattern.search(line))), None)
        if not found:
            return None
        epoch = int(found["epoch"])
        self._first = epoch if self._first is None else self._first
        return Reading((epoch - self._first) * int(found["all"]) + int(found["step"]), float(found["loss"]))


class Evaluation(Format):
    """Lines with a loss or an accuracy on data that is not trained on, such as nanoGPT's
    `step 250: train loss 2.0, val loss 2.1`, or `Test set: Average loss: 0.05, Accuracy: 9843/10000 (98%)`."""

    _LOSS = re.compile(
        rf"\b{_OF_EVALUATION}(?: set:?)?[ _/-]?(?:average )?loss['\"]?[ :=]*(?P<loss>{NUMBER})", re.IGNORECASE
    )
    _ACCURACY = re.compile(
        rf"\b{_OF_EVALUATION}[ _/-]?acc(?:uracy)?['\"]?[ :=]*(?P<accuracy>{NUMBER})(?P<percent>\s*%)?", re.IGNORECASE
    )
    _CORRECT = re.compile(r"^Test set: .*Accuracy: (?P<correct>\d+)/(?P<all>\d+)")
    _STEP = re.compile(_STEP, re.IGNORECASE)

    def read(self, line: str) -> Reading | None:
        loss, accuracy, correct = self._LOSS.search(line), self._ACCURACY.search(line), self._CORRECT.match(line)
        if not (loss or accuracy or correct):
            return None
        share = self._share(accuracy, correct)
        if loss is None and share is None:
            return None
        step = self._STEP.search(line)
        why = "such lines have a loss on other data than is trained on: they are evaluations, not steps"
        return Reading(
            evaluation=(share, _number(loss["loss"]) if loss else None),
            evaluated_step=int(step["step"]) if step else None,
            not_counted=why if step else None,
        )

    def _share(self, accuracy: re.Match[str] | None, correct: re.Match[str] | None) -> float | None:
        if correct:
            return int(correct["correct"]) / max(1, int(correct["all"]))
        if not accuracy:
            return None
        value = float(accuracy["accuracy"]) / (100 if accuracy["percent"] else 1)
        return value if 0 <= value <= 1 else None


class Epochs(Format):
    """Lines that count epochs and nothing smaller: their losses are heard of, but how many steps an epoch has is not
    known. A Transformers Trainer prints such ones."""

    _EPOCH = re.compile(r"\bepoch['\"]?[ :=#]*\[?\d", re.IGNORECASE)
    _LOSS = re.compile(_LOSS, re.IGNORECASE)

    def read(self, line: str) -> Reading | None:
        if not self._EPOCH.search(line) or not (loss := self._LOSS.search(line)):
            return None
        return Reading(loss=float(loss["loss"]), not_counted="such lines count epochs, not steps")


def common(batch_size: int | None, num_tasks: int) -> list[Format]:
    """What scripts print, if nobody says what this one does. The first that reads a line has it."""
    return [
        # tf_cnn_benchmarks (E2)
        Pattern(
            rf"^(?P<step>\d+)\timages/sec: (?P<examples_per_s>{NUMBER}).*\t(?P<loss>{NUMBER})",
            rf"^total images/sec: (?P<examples_per_s>{NUMBER})",
        ),
        KerasBar(),
        Tqdm(),
        TrainEpoch(batch_size, num_tasks),
        EpochAndBatch(),
        Evaluation(),
        Pattern(
            rf"{_STEP}(?:\s*/\s*\d+)?.*?{_LOSS}",
            rf"{_LOSS}.*?{_STEP}",
            rf"^\[\d+,\s*(?P<step>\d+)\] loss: (?P<loss>{NUMBER})",  # PyTorch's tutorial: [epoch, batch]
        ),
        Epochs(),
    ]
