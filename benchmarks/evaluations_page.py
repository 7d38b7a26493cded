"""docs/evaluations.md, from the raw figures in results/evaluations.jsonl. Pure: text from values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.metrics.conclusions import Judgement, judge
from headway.metrics.curves import curves
from headway.metrics.effect import in_words
from headway.metrics.estimate import estimate
from headway.metrics.factors import Measured, effects
from headway.metrics.published import Published, tables
from headway.spec.words import value_in_words

HEAD = """# The evaluations, measured here

Made by `make evaluations` (`benchmarks/evaluations.py`) from `benchmarks/results/evaluations.jsonl`; do not edit. What
was published is in `headway published`; what each figure means is in [metrics.md](metrics.md). Measured is the local
form of each experiment: smaller input, fewer steps, emulated hosts that share two cores. So numbers are never compared,
only shapes and conclusions. Each conclusion is tested for the model that it was drawn for, with the figure that its
source used; one that its source contradicts is marked, and not counted. Intervals decide: a conclusion that is not so
beyond chance is **not re-found**, also where the value points the right way; it is *not clear* where the contrary is
not beyond chance either, or where pairs of trials contradict each other. How sure that is depends on the runs of a
trial, which the tables show: the interval of a median of two runs holds the true one with 50 % at most, of three with
75 %, of five with 94 %. A row with (!) contradicts itself.
"""
TITLES = {
    "E1": "E1. MNIST CNN on Google Cloud",
    "E2": "E2. InceptionV3 on Piz Daint and EC2",
    "E3": "E3. Logistic regression and AlexNet on three nodes",
    "E4": "E4. Autoencoders and spatial transformers on two to three servers",
    "E5": "E5. Unattended training in the cloud",
}
FIGURES = {"e1-accuracy": "accuracy", "e3-accuracy": "training_seconds", "e5-credits": "rate_change"}
VERDICTS = ("re-found", "not re-found", "not testable here", "not measured yet")
Line = Mapping[str, Any]


def page(lines: Sequence[Line]) -> str:
    by_name = {line["sweep"]: line for line in lines}
    measured = {name: trials_of(line) for name, line in by_name.items()}
    parts = [HEAD, summary(measured)]
    left = dict(by_name)  # each is shown once, where it belongs first
    for evaluation, title in TITLES.items():
        parts.append(f"## {title}\n")
        for table in (each for each in tables().values() if each.evaluation == evaluation):
            parts += section(table, left, measured)
    return "\n".join(parts).rstrip() + "\n"


def trials_of(line: Line) -> list[Measured]:
    return [
        Measured(
            trial["settings"], trial["tasks"], trial["baseline"], trial["data"], tuple(trial["figures"]), trial["name"]
        )
        for trial in line["trials"]
    ]


def summary(measured: Mapping[str, list[Measured]]) -> str:
    """Of each evaluation, how many conclusions are what."""
    rows = []
    for evaluation, title in TITLES.items():
        found = [
            judge(each, measured.get(each.sweep or ""))
            for table in tables().values()
            if table.evaluation == evaluation
            for each in table.counted
        ]
        counts: Counter[str] = Counter(each.verdict for each in found)
        rows.append([title, *(str(counts[name]) for name in VERDICTS), str(sum(not each.is_clear for each in found))])
    text = table_of(["evaluation", *VERDICTS, "of the not re-found: not clear"], rows)
    if not measured:
        text = f"**None of it was measured yet**: `make evaluations` does it, in some hours.\n\n{text}"
    return f"{text}\n"


def section(table: Published, left: dict[str, Line], measured: Mapping[str, list[Measured]]) -> list[str]:
    parts = [f"### {table.name}: {table.title}\n", f"{table.source}.\n"]
    if table.rows:
        parts.append(published_table(table))
    wrong = [f"- {each.where}: {each.text}" for each in table.inconsistencies]
    if wrong:
        parts.append("Contradicts itself, so it is not for calibration:\n\n" + "\n".join(wrong) + "\n")
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes) + "\n")
    names = [table.sweep, *(each.sweep for each in table.conclusions)]
    for name in dict.fromkeys(name for name in names if name):
        if name in left:
            parts.append(measured_table(left.pop(name), measured[name]))
    trials = measured.get(table.sweep or "", [])
    shapes = [f"- {curve.label}: {curve.words}" for curve in curves(table, trials)]
    if shapes:
        why = f" {table.why}" if table.why else ""
        parts.append("As shape:" + why + "\n\n" + "\n".join(shapes) + "\n")
    if table.evaluation == "E4" and trials:
        parts.append(factor_table(trials))
    if table.conclusions:
        parts.append(conclusion_table(table, measured))
    return parts


def published_table(table: Published) -> str:
    marked = {each.where for each in table.inconsistencies}
    heads = [f"{column.title}, {column.unit}" if column.unit else column.title for column in table.columns]
    rows = [
        [cell + (" (!)" if number == 0 and name in marked else "") for number, cell in enumerate(cells)]
        for name, cells in (
            (name, [table.text(row, column) for column in table.columns])
            for row, name in zip(table.rows, table.row_names, strict=True)
        )
    ]
    return "Published:\n\n" + table_of(heads, rows) + "\n"


def measured_table(line: Line, trials: Sequence[Measured]) -> str:
    figure = FIGURES.get(line["sweep"], "examples_per_s")
    rows = []
    for trial, raw in zip(trials, line["trials"], strict=True):
        samples = trial.samples(figure)
        shown = said(samples) if samples else f"{raw['state']}: {raw['reason'] or 'no figure'}"
        more = [middle(trial, name) for name in ("steps_per_s", "cpus", "communication_share")]
        name = f"{trial.name}{' (baseline)' if trial.is_baseline else ''}"
        rows.append([name, str(trial.tasks), trial.data, shown, str(len(samples)), *more, ", ".join(raw["marks"])])
    state = "" if line["finished"] else " It was broken off: what was measured until then."
    commit = f" at commit {line['commit']}" if line["commit"] else ""
    about = f"{line['day']}{commit}, {line['machine']}, {line['minutes']:g} minutes of runs.{state}"
    where = f"`examples/{line['sweep']}.yaml`, {about}"
    heads = [
        "trial",
        "training tasks",
        "data",
        figure,
        "runs",
        "steps/s",
        "CPUs of all tasks",
        "communication",
        "marks",
    ]
    return f"Measured here: {where}\n\n{table_of(heads, rows)}\n"


def said(samples: Sequence[float]) -> str:
    found = estimate(samples)
    if found.num < 2:
        return number(found.value)
    return f"{number(found.value)} ({number(found.low)} to {number(found.high)})"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def middle(trial: Measured, name: str) -> str:
    samples = trial.samples(name)
    return f"{estimate(samples).value:.3g}" if samples else "-"


def factor_table(trials: Sequence[Measured]) -> str:
    rows = []
    for figure in ("examples_per_s", "train_loss", "cpus", "sent_per_s"):
        for effect in effects(trials, figure):
            ((path, value),) = effect.when.items()
            mixed = " (pairs contradict each other)" if effect.is_mixed else ""
            against = f"{path.split('.')[-1]} {value_in_words(value)} against {value_in_words(effect.than[path])}"
            rows.append([figure, against, in_words(effect.value) + mixed, str(len(effect.pairs))])
    return "One factor at a time, all else equal:\n\n" + table_of(["figure", "factor", "effect", "pairs"], rows) + "\n"


def conclusion_table(table: Published, measured: Mapping[str, list[Measured]]) -> str:
    rows = []
    for each in table.conclusions:
        found: Judgement = judge(each, measured.get(each.sweep or ""))
        text = f"{each.text} (By their figures.)" if each.basis == "figures" else each.text
        rows.append([text, f"**{found.verdict}**", found.words])
    return table_of(["they concluded", "here", "figures"], rows) + "\n"


def table_of(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(heads), "|" + "---|" * len(heads), *map(line, rows)])
