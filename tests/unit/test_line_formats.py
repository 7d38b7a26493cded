"""What training scripts print, and what of it is steps: every format in the form in which it comes through a pipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_reports import Told

from headway.engines.command.lines import Lines, Stream
from headway.record.sources import BOARD, LINE, LOG, that_count


def hear(told: Told, output: str, seconds: float = 1.0, start: float = 100.0) -> None:
    """Each piece between two `|>` comes as one write, a second after the one before."""
    lines, stream = Lines(told.assignment, told.reporter), Stream()
    heard = [
        line
        for place, piece in enumerate(output.split("|>"))
        for line in stream.lines(start + place * seconds, piece.encode())
    ]
    for t, line in [*heard, *stream.end()]:
        lines.hear(t, line)


def counted(told: Told) -> list[tuple[Any, ...]]:
    return told.steps("step", "loss")


def evaluations(told: Told) -> list[tuple[Any, ...]]:
    return [(event["step"], event["accuracy"], event["loss"]) for event in told.events("evaluation")]


def reasons(told: Told) -> list[str]:
    return [event["why"] for event in told.events("not_counted")]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


# --- nanoGPT ---------------------------------------------------------------------------------------------------------
def test_nanogpt_counts_its_iterations_and_evaluates_between_them(told: Told) -> None:
    hear(
        told,
        "step 0: train loss 4.2874, val loss 4.2823\n"
        "iter 0: loss 4.2664, time 1520.31ms, mfu -100.00%\n"
        "iter 10: loss 3.1429, time 95.12ms, mfu 0.41%\n"
        "iter 20: loss 2.7319, time 94.20ms, mfu 0.41%\n"
        "step 20: train loss 2.6512, val loss 2.6628\nsaving checkpoint to out\n",
    )
    assert counted(told) == [(0, 4.2664), (10, 3.1429), (20, 2.7319)]
    assert evaluations(told) == [(0, None, 4.2823), (20, None, 2.6628)]


def test_evaluation_lines_alone_are_no_steps_and_that_is_said(told: Told) -> None:
    hear(told, "step 0: train loss 4.2, val loss 4.3\nstep 250: train loss 2.1, val loss 2.2\n")
    assert counted(told) == []
    (why,) = reasons(told)
    assert "evaluations, not steps" in why
    assert "workload.report.patterns" in why


# --- Keras -----------------------------------------------------------------------------------------------------------
def bar(step: int, total: int | str, loss: float, more: str = "", drawn_over: int = 60) -> str:
    """As Keras 3 draws it on a pipe: backspaces, colours, and no end of the line."""
    done = f"\x1b[32m{'━' * 8}\x1b[0m\x1b[37m{'━' * 12}\x1b[0m"
    tail = f" \x1b[1m2s\x1b[0m 12ms/step - accuracy: 0.8123 - loss: {loss:.4f}{more}"
    return "\b" * drawn_over + f"\r\x1b[1m{step:3d}/{total}\x1b[0m {done}{tail}"


def test_keras_3_progress_bars(told: Told) -> None:
    hear(
        told,
        "Epoch 1/2\n|>" + bar(1, 100, 2.3, drawn_over=0) + "|>" + bar(60, 100, 1.5) + "|>"
        # The last bar of an epoch is drawn twice, the second time with what the evaluation gave.
        + bar(100, 100, 1.2) + "|>" + bar(100, 100, 1.2, " - val_accuracy: 0.9000 - val_loss: 0.4000") + "\n|>"
        "Epoch 2/2\n|>" + bar(1, 100, 1.1, drawn_over=0) + "|>" + bar(100, 100, 0.9) + "\n",
    )  # fmt: skip
    assert counted(told) == [(1, 2.3), (60, 1.5), (100, 1.2), (101, 1.1), (200, 0.9)]
    assert evaluations(told) == [(100, 0.9, 0.4)]
    # A bar is heard of when the next one begins, and counts from when it was drawn.
    assert told.steps("t")[:3] == [(101.0,), (102.0,), (103.0,)]
    assert reasons(told) == []


def test_keras_2_progress_bars(told: Told) -> None:
    hear(
        told,
        "Epoch 1/2\n\r  1/469 [..............................] - ETA: 3:02 - loss: 2.3 - accuracy: 0.1"
        "\b\b\b\b\r 40/469 [=>............................] - ETA: 1s - loss: 1.5 - accuracy: 0.5"
        "\b\b\b\b\r469/469 [==============================] - 2s 4ms/step - loss: 0.5 - accuracy: 0.8"
        " - val_loss: 0.3 - val_accuracy: 0.91\n"
        "Epoch 2/2\n\r  1/469 [..............................] - ETA: 2s - loss: 0.4 - accuracy: 0.9\n",
    )
    assert counted(told) == [(1, 2.3), (40, 1.5), (469, 0.5), (470, 0.4)]
    assert evaluations(told) == [(469, 0.91, 0.3)]


def test_keras_with_one_line_an_epoch_and_with_data_of_unknown_length(told: Told) -> None:
    hear(
        told,
        "Epoch 1/3\n469/469 - 3s - 6ms/step - accuracy: 0.9 - loss: 0.3\n"
        "Epoch 2/3\n469/469 - 3s - 6ms/step - accuracy: 0.9 - loss: 0.2\n"
        "Epoch 3/3\n     12/Unknown - 1s 2ms/step - loss: 0.19\r     40/Unknown - 1s 2ms/step - loss: 0.18\n",
    )
    assert counted(told) == [(469, 0.3), (938, 0.2), (950, 0.19), (978, 0.18)]


def test_the_bar_of_evaluate_is_not_training(told: Told) -> None:
    """One epoch has no line above its bar, and the bar of evaluate() looks the same."""
    hear(told, bar(1, 50, 2.0) + bar(50, 50, 1.0) + "\n" + bar(1, 10, 0.7) + bar(10, 10, 0.6) + "\n")
    assert counted(told) == [(1, 2.0), (50, 1.0)]
    (event,) = told.events("not_counted")
    assert "evaluate()" in event["why"]
    assert event["is_partial"]


# --- pytorch/examples and tutorials ----------------------------------------------------------------------------------
def train_epoch(epoch: int, done: int, of: int, percent: float, loss: float) -> str:
    return f"Train Epoch: {epoch} [{done}/{of} ({percent:.0f}%)]\tLoss: {loss:.6f}\n"


MNIST = (
    train_epoch(1, 0, 1000, 0, 2.3)
    + train_epoch(1, 320, 1000, 32, 1.2)
    + train_epoch(1, 960, 1000, 94, 0.9)
    + "\nTest set: Average loss: 0.0482, Accuracy: 9843/10000 (98%)\n\n"
    + train_epoch(2, 0, 1000, 0, 0.8)
)


def test_examples_are_no_steps_without_a_batch_size(told: Told) -> None:
    hear(told, MNIST)
    assert counted(told) == []
    assert [event["loss"] for event in told.events("told")] == [2.3, 1.2, 0.9, 0.8]
    assert evaluations(told) == [(0, 0.9843, 0.0482)]
    (why,) = reasons(told)
    assert "examples, not steps: with workload.batch_size" in why


def test_a_batch_size_makes_steps_of_examples(tmp_path: Path) -> None:
    told = Told(tmp_path, batch_size=32)
    hear(told, MNIST)
    # 1,000 examples are 31 batches of 32 and one of 8.
    assert counted(told) == [(0, 2.3), (10, 1.2), (30, 0.9), (32, 0.8)]
    assert evaluations(told) == [(30, 0.9843, 0.0482)]


def test_a_task_uses_its_share_of_the_examples(tmp_path: Path) -> None:
    """Two tasks, each 500 of 1,000: the percentage is of its own ones."""
    told = Told(tmp_path, batch_size=50)
    hear(
        told,
        train_epoch(1, 0, 1000, 0, 2.3)
        + train_epoch(1, 250, 1000, 50, 1.2)
        + train_epoch(2, 0, 1000, 0, 0.8)
        + train_epoch(2, 250, 1000, 50, 0.7),
    )
    assert [step for step, _ in counted(told)] == [0, 5, 10, 15]


@pytest.mark.parametrize(
    ("lines", "steps"),
    [
        (
            "Epoch: [0][  10/5005]\tTime  0.512 ( 0.623)\tData  0.001\tLoss 6.9012e+00 (7.0032e+00)\tAcc@1 0.10\n"
            "Test: [ 10/196]\tTime  0.512\tLoss 6.5\nEpoch: [1][  10/5005]\tTime 0.5 (0.5)\tLoss 5.0 (5.1)\n",
            [(10, 6.9012), (5015, 5.0)],
        ),
        ("Epoch [1/5], Step [100/600], Loss: 0.3\nEpoch [2/5], Step [100/600], Loss: 0.2\n", [(100, 0.3), (700, 0.2)]),
        ("Epoch 1, Batch 10/50, Loss: 0.5\nEpoch 2, Batch 10/50, Loss: 0.4\n", [(10, 0.5), (60, 0.4)]),
        ("[1,  2000] loss: 2.173\n[1,  4000] loss: 1.853\n", [(2000, 2.173), (4000, 1.853)]),
        (" iteration       10/    1000 | lm loss: 1.0E+01 | ms: 12\n", [(10, 10.0)]),
        ('{"step": 5, "loss": 0.25, "lr": 0.1}\n', [(5, 0.25)]),
    ],
)
def test_batches_of_epochs_and_other_counters(told: Told, lines: str, steps: list[tuple[int, float]]) -> None:
    hear(told, lines)
    assert counted(told) == steps


# --- tqdm ------------------------------------------------------------------------------------------------------------
def tqdm(title: str, step: int, total: int, rest: str) -> str:
    return f"\r{title}{100 * step // total:3d}%|████▎     | {step}/{total} [00:01<00:02, {rest}]"


def test_a_progress_bar_with_a_training_loss_counts(told: Told) -> None:
    hear(
        told,
        tqdm("Sanity Checking DataLoader 0: ", 1, 2, "70.1it/s")
        + tqdm("Epoch 0: ", 20, 47, "13.1it/s, v_num=0, train_loss=1.23")
        + tqdm("Epoch 0: ", 47, 47, "13.1it/s, v_num=0, train_loss=1.10")
        + tqdm("Validation DataLoader 0: ", 3, 9, "70.1it/s, loss=0.5")
        + tqdm("Epoch 0: ", 47, 47, "13.1it/s, v_num=0, train_loss=1.10, val_loss=0.90")
        + tqdm("Epoch 1: ", 3, 47, "13.1it/s, v_num=0, train_loss=1.00")
        + "\n",
    )
    assert counted(told) == [(20, 1.23), (47, 1.1), (50, 1.0)]
    assert reasons(told) == []


def test_a_progress_bar_without_a_loss_counts_nothing(told: Told) -> None:
    """As a Transformers Trainer prints: its bar may be training's or evaluation's."""
    hear(
        told,
        tqdm("", 5, 30, "2.0it/s") + "\n{'loss': 2.41, 'learning_rate': 0.0002, 'epoch': 0.5}\n"
        "{'eval_loss': 0.62, 'eval_runtime': 1.2, 'epoch': 1.0}\n",
    )
    assert counted(told) == []
    assert [event["loss"] for event in told.events("told")] == [2.41]
    assert evaluations(told) == [(0, None, 0.62)]
    assert len(reasons(told)) == 2


def test_a_download_is_not_asked_about(told: Told) -> None:
    hear(told, "\r 40%|████      | 40/100 [00:01<00:02, 12.3MB/s]\nCollecting torch\n")
    assert reasons(told) == []


# --- what is not counted ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("line", ["Epoch 3: loss 0.4", "epoch=3 train_loss=0.4", "Epoch 3/10 - loss: 0.4"])
def test_epochs_are_no_steps(told: Told, line: str) -> None:
    hear(told, line + "\n")
    assert counted(told) == []
    assert [event["loss"] for event in told.events("told")] == [0.4]
    assert "count epochs, not steps" in reasons(told)[0]


def test_two_counters_are_not_mixed(told: Told) -> None:
    hear(told, "iter 0: loss 3.0\nstep 100: loss 2.9\niter 1: loss 2.0\nstep 101: loss 1.9\niter 2: loss 1.0\n")
    assert counted(told) == [(0, 3.0), (1, 2.0), (2, 1.0)]


def test_the_last_line_counts_also_where_nothing_ends_it(told: Told) -> None:
    hear(told, "step 1 loss 2.0\nstep 2 loss 1.0")
    assert counted(told) == [(1, 2.0), (2, 1.0)]


# --- several sources -------------------------------------------------------------------------------------------------
_REPORTS = st.lists(
    st.tuples(st.sampled_from([LOG, BOARD, LINE]), st.integers(1, 60), st.booleans()), min_size=1, max_size=40
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=_REPORTS)
def test_in_any_order_and_mix_the_best_sources_steps_count(
    tmp_path_factory: pytest.TempPathFactory, reports: list[tuple[str, int, bool]]
) -> None:
    """What is counted of all sources is what would be counted of the best one alone."""
    best = min((source for source, _, _ in reports), key=[LOG, BOARD, LINE].index)

    def made(told: Told, only: str | None) -> list[tuple[Any, ...]]:
        for place, (source, step, has_loss) in enumerate(reports):
            if only in (None, source):
                loss = {"loss": 1000.0 * place} if has_loss else {}
                told.reporter.report(source, float(place), {"step": step, **loss})
        return told.table("t", "step", "num_steps", "seconds", "own_step", "loss")

    everything = Told(tmp_path_factory.mktemp("all"))
    rows = made(everything, None)
    assert [row[:-1] for row in rows] == [row[:-1] for row in made(Told(tmp_path_factory.mktemp("best")), best)]
    # A resumed run counts on from the same.
    again = [event["num_steps"] for event in that_count(everything.all_events()) if event["kind"] == "step"]
    assert again == [row[2] for row in rows]
    # No loss is made up, and where the best source knows none and another does, one is in the record.
    heard = {1000.0 * place for place, (_, _, has_loss) in enumerate(reports) if has_loss}
    found = {row[-1] for row in rows if row[-1] is not None}
    assert found <= heard
    assert found or not heard
