"""Whether what was seen is what was expected. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from matrix import ACCURACY_WITHIN, HEARTBEAT, LOSS_WITHIN, NAMED_WITHIN, PAUSE_WITHIN, SETUPS, STALL, Cell, Setup
from observed import Seen


def problems_of(cell: Cell, seen: Seen, undisturbed: Seen) -> list[str]:
    """Everything that is not as expected; empty: the cell passed."""
    if seen.broke:
        return [seen.broke]
    setup = SETUPS[cell.setup]
    found = [*_end(cell, seen), *_naming(cell, seen), *_changes(cell, seen)]
    if cell.outcome.state == "finished":
        found += [*_rollback(cell, seen), *_meanwhile(cell, seen), *_result(setup, seen, undisturbed)]
    return [*found, *(f"left behind: {what}" for what in seen.left)]


def undisturbed_problems(setup: Setup, seen: Seen) -> list[str]:
    """Of the run that the others are compared with."""
    if seen.broke:
        return [seen.broke]
    found = [] if (seen.state, seen.exit_code) == ("finished", 0) else [f"ended {seen.state}: {seen.reason}"]
    found += [f"{task} was restarted" for task in seen.restarted]
    counts = [] if setup.is_program else _counts(setup, seen)
    return [*found, *counts, *(f"left behind: {what}" for what in seen.left)]


def _end(cell: Cell, seen: Seen) -> Iterator[str]:
    if seen.state != cell.outcome.state:
        yield f"ended {seen.state} ({seen.reason}), not {cell.outcome.state}"
    if seen.exit_code != cell.exit_code:
        yield f"exit code {seen.exit_code}, not {cell.exit_code}"
    if cell.outcome.state == "failed" and not (cell.task in (seen.reason or "") and cell.reason in (seen.reason or "")):
        yield f"the run's reason does not say that {cell.task} failed by {cell.reason}: {seen.reason}"


def _naming(cell: Cell, seen: Seen) -> Iterator[str]:
    if seen.named is None:
        yield f"{cell.task} was never named"
    elif seen.named > cell.named_within:
        yield f"{cell.task} was named after {seen.named:.1f} s, not within {cell.named_within:g} s"
    if cell.outcome.state == "finished" and not any(cell.reason in reason for reason in seen.reasons):
        yield f"no restart of {cell.task} because of {cell.reason}: {seen.reasons}"
    if seen.blamed:
        yield f"others were blamed: {', '.join(seen.blamed)}"
    limit = STALL if cell.fault == "SIGKILL, hang" else HEARTBEAT
    if cell.fault != "SIGKILL" and seen.killed is not None and seen.killed > limit + NAMED_WITHIN:
        yield f"{cell.task} was killed only after {seen.killed:.1f} s"


def _changes(cell: Cell, seen: Seen) -> Iterator[str]:
    wanted = dict.fromkeys(cell.outcome.restarted, cell.num_faults)
    if seen.restarted != wanted:
        yield f"restarted: {_listed(seen.restarted)}; expected: {_listed(wanted)}"
    how = [] if cell.outcome.variables in ("kept", "own") else [cell.outcome.variables]
    if seen.initialized != how:
        yield f"variables: {seen.initialized or 'kept'}; expected: {cell.outcome.variables}"


def _rollback(cell: Cell, seen: Seen) -> Iterator[str]:
    if cell.outcome.variables == "own":
        return
    if cell.outcome.variables != "restored":
        if seen.rollbacks:
            yield f"rolled back, {sum(lost for _, _, lost in seen.rollbacks)} steps lost; expected: none"
        return
    if len(seen.rollbacks) != 1:
        yield f"{len(seen.rollbacks)} rollbacks recorded, not 1"
        return
    ((before, step, lost),) = seen.rollbacks
    if seen.restored is None or seen.checkpoint is None or seen.highest is None:
        yield "nothing says what was restored"
        return
    highest = max(seen.highest, seen.restored)  # rows of a killed task may be missing
    if (before, step, lost) != (highest, seen.restored, highest - seen.restored):
        yield (
            f"the recorded rollback says {before} to {step}, {lost} lost; "
            f"steps and checkpoints say {highest} to {seen.restored}"
        )
    if seen.restored < seen.checkpoint:
        yield f"restored step {seen.restored}, but there was a checkpoint of step {seen.checkpoint}"


def allowed_loss(seen: Seen) -> int | None:
    """Steps since the last checkpoint."""
    return None if seen.highest is None or seen.checkpoint is None else max(0, seen.highest - seen.checkpoint)


def _meanwhile(cell: Cell, seen: Seen) -> Iterator[str]:
    if seen.back is None:
        yield "training never went on with every task"
    elif cell.outcome.meanwhile == "go on" and seen.longest_pause > PAUSE_WITHIN:
        yield f"the others paused for {seen.longest_pause:.1f} s; expected: they go on"
    elif cell.outcome.meanwhile == "begin":
        if not seen.meanwhile:
            yield "the others made no step meanwhile; expected: they train without it"
    elif cell.outcome.meanwhile in ("wait", "nobody") and seen.meanwhile:
        yield f"the others made {seen.meanwhile} steps meanwhile; expected: none"


def _result(setup: Setup, seen: Seen, undisturbed: Seen) -> Iterator[str]:
    if setup.is_program:  # what it makes of its steps is not ours to judge
        return
    yield from _counts(setup, seen)
    if seen.accuracy is None or undisturbed.accuracy is None:
        yield "there is no accuracy"
    elif abs(seen.accuracy - undisturbed.accuracy) > ACCURACY_WITHIN:
        yield f"accuracy {seen.accuracy:.4f}, undisturbed {undisturbed.accuracy:.4f}"
    if seen.loss is None or undisturbed.loss is None:
        yield "there is no loss"
    elif setup.is_repeatable and abs(seen.loss - undisturbed.loss) > LOSS_WITHIN:
        yield f"another model: loss {seen.loss:.6f}, undisturbed {undisturbed.loss:.6f}"


def _counts(setup: Setup, seen: Seen) -> Iterator[str]:
    if seen.step is None or not setup.steps <= seen.step <= setup.steps + setup.overshoot:
        yield f"ended at step {seen.step}, asked were {setup.steps}"
    yield from seen.miscounted
    yield from seen.bad_updates


def _listed(restarts: dict[str, int]) -> str:
    return ", ".join(f"{task} {count} times" if count > 1 else task for task, count in restarts.items()) or "nobody"
