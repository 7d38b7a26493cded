"""tests/data/evaluations.md, the summary of the evaluations, taken apart: its figures, row by row, as the tables in
src/headway/metrics/tables should have them; and the words that a conclusion for a model may rest on."""

from __future__ import annotations

import csv
import re
from itertools import product
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
SUMMARY = (DATA / "evaluations.md").read_text(encoding="utf-8")
SECTIONS = {text[:2]: text for text in re.split(r"^## (?=E[1-5]\.)", SUMMARY, flags=re.MULTILINE)[1:]}
DEVIATION = "_deviation"
Row = dict[str, Any]


def plain(text: str) -> str:
    """Without line breaks, so that words are found wherever a line ends."""
    return " ".join(text.split())


def words_for(evaluation: str, model: str) -> str:
    """What a conclusion of this evaluation for this model may rest on."""
    text = SECTIONS[evaluation]
    if evaluation == "E3":
        softmax, _, alexnet = text.partition("\nAlexNet (5 convolutions")
        return plain(alexnet if model == "alexnet" else softmax)
    if evaluation == "E4":
        return " | ".join(clauses_of_e4(model))
    if evaluation == "E5":
        networks, _, faces = text.partition("A second problem")
        return plain(faces if model == "faces" else networks)
    return plain(text)


# --- E4: what was concluded for which model ---
def clauses_of_e4(model: str) -> list[str]:
    """Its column, what the other column says of both models, and what is said over all; each statement apart."""
    column, other = (1, 2) if model == "autoencoder" else (2, 1)
    found = []
    for cells in markdown_table(SECTIONS["E4"], "| factor |"):
        found += cells[column].split("; ")
        found += [clause for clause in cells[other].split("; ") if "(both)" in clause]
        found += re.findall(r"\((both \w[^)]*)\)", cells[other])
    over_all = next(line for line in SECTIONS["E4"].splitlines() if line.startswith("Over all: "))
    names = {"autoencoder": "autoencoder", "spatial_transformer": "transformer"}
    others = [name for each, name in names.items() if each != model]
    for clause in over_all.removeprefix("Over all: ").rstrip(".").split("; "):
        found += [] if any(name in clause for name in others) else [clause]
    return found


# --- figures ----------------------------------------------------------------------------------------------------------
def markdown_table(text: str, head: str) -> list[list[str]]:
    """The cells of the rows below the line that begins so."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(head))
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def with_deviation(name: str, text: str) -> Row:
    """`7.68 +/- 2.95` -> both numbers."""
    value, _, deviation = text.partition(" +/- ")
    return {name: number(value), **({f"{name}{DEVIATION}": number(deviation)} if deviation else {})}


def number(text: str) -> float:
    return float(text.replace(",", ""))


def rows_of(table: str) -> list[Row]:
    """The figures that a published table should have, in its order."""
    return {
        "e1-scaling": _e1_scaling,
        "e1-servers": _e1_servers,
        "e1-tuning": _e1_tuning,
        "e2-daint": lambda: _e2("Piz Daint", 1),
        "e2-p2": lambda: _e2("p2.xlarge", 4),
        "e3-alexnet": _e3_alexnet,
        "e3-softmax": _e3_softmax,
        "e4-autoencoder": list,
        "e4-transformer": list,
        "e5-cluster": _e5_cluster,
        "e5-faces": _e5_faces,
        "e5-machines": _e5_machines,
        "e5-modes": _e5_modes,
    }[table]()


def _found(pattern: str, evaluation: str) -> re.Match[str]:
    match = re.search(pattern, plain(SECTIONS[evaluation]))
    assert match, f"{evaluation} has no {pattern}"
    return match


def _e1_scaling() -> list[Row]:
    seconds, accuracies = (row[1:] for row in markdown_table(SECTIONS["E1"], "| workers (1 vCPU)"))
    found = [
        {"workers": workers, "vcpus": 1, "seconds": number(time), "accuracy": number(accuracy)}
        for workers, time, accuracy in zip([None, 1, 2, 3, 4, 5], seconds, accuracies, strict=True)
    ]
    pattern = r"2-vCPU: one machine (\d+) s \((\.\d+)\); 1 worker (\d+) s \((\.\d+)\); 2 workers (\d+) s \((\.\d+)\)"
    figures = [number(text) for text in _found(pattern, "E1").groups()]
    for place, workers in enumerate([None, 1, 2]):
        time, accuracy = figures[2 * place : 2 * place + 2]
        found.append({"workers": workers, "vcpus": 2, "seconds": time, "accuracy": accuracy})
    return found


def _e1_servers() -> list[Row]:
    match = _found(r"2 servers \+ 4 workers: ([\d,]+) s, (\.\d+); 1 server: ([\d,]+) s", "E1")
    one = next(row for row in _e1_scaling() if row["workers"] == 4)
    return [
        {"servers": 1, "workers": 4, "seconds": number(match[3]), "accuracy": one["accuracy"]},
        {"servers": 2, "workers": 4, "seconds": number(match[1]), "accuracy": number(match[2])},
    ]


def _e1_tuning() -> list[Row]:
    """PS and master had 2 vCPUs each, then 1 each."""
    match = _found(r"configurations 1 and 2 of the tuning report identical results \((\d+) s, (\.\d+)\)", "E1")
    assert _found(r"PS and master nearly idle on (\d) vCPUs; the master undersized on (\d)", "E1").groups() == (
        "2",
        "1",
    )
    same = {"seconds": number(match[1]), "accuracy": number(match[2])}
    return [
        {"configuration": f"configuration {place}", "master_vcpus": vcpus, "server_vcpus": vcpus, **same}
        for place, vcpus in ((1, 2), (2, 1))
    ]


def _e2(system: str, first: int) -> list[Row]:
    """The summary has some of the sizes, and all must be in the list of all (published_scaling.csv)."""
    found: dict[int, Row] = {}
    with (DATA / "published_scaling.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if "(E2)" in line["source"] and system in line["system"]:
                row = found.setdefault(int(line["devices"]), {"gpus": int(line["devices"])})
                assert row.setdefault("servers", int(line["ps"])) == int(line["ps"])
                row[line["data"]] = number(line["value"])
    for cells in markdown_table(SECTIONS["E2"], "| GPUs |"):
        servers, synthetic, real = (number(cell.split(" (")[0]) for cell in cells[first : first + 3])
        gpus = int(cells[0])
        assert found[gpus] == {"gpus": gpus, "servers": servers, "synthetic": synthetic, "real": real}
    return [found[gpus] for gpus in sorted(found)]


def _e3_alexnet() -> list[Row]:
    text = plain(SECTIONS["E3"])
    per_second = re.search(r"single ([\d./]+); 2 workers ([\d./]+); 3 workers ([\d./]+); seconds per batch", text)
    assert per_second
    columns = {"examples_per_s": list(per_second.groups())}
    for name, words in {
        "batch_seconds": "seconds per batch",
        "cpu": "CPU %",
        "memory": "memory MB",
        "packets_received": "packets received per second",
        "packets_sent": "sent",
    }.items():
        match = re.search(rf"{words} ([\d./]+\d), ([\d./]+\d), ([\d./]+\d)", text)
        assert match, name
        columns[name] = list(match.groups())
    modes = ["single", "2 workers", "3 workers"]
    return [
        {
            "mode": f"{modes[mode]}, {batch}",
            "tasks": mode + 1,
            "batch_size": batch,
            **{name: number(cells[mode].split("/")[place]) for name, cells in columns.items()},
        }
        for mode, (place, batch) in product(range(3), enumerate((64, 128, 256)))
    ]


def _e3_softmax() -> list[Row]:
    found = []
    for mode, memory, network, load, seconds in markdown_table(SECTIONS["E3"], "| mode | memory MB"):
        for place, workers in enumerate((2, 3)):
            received, sent = network.split(", ")[place].split("/")
            found.append(
                {
                    "mode": f"{mode.split(',')[0]}, {workers} workers",
                    "tasks": workers,
                    "memory": number(memory.split(" / ")[place]),
                    "received": number(received),
                    "sent": number(sent),
                    "load": number(load.split(" / ")[place]),
                    "seconds": number(seconds.split(" / ")[place]),
                }
            )
    return found


def _e5_cluster() -> list[Row]:
    return [
        {
            "machines": machines,
            **with_deviation("steps_per_s", steps),
            **with_deviation("examples_per_s", examples),
            "minutes": number(minutes),
            "accuracy": number(accuracy),
            "dollars": number(dollars),
        }
        for machines, steps, examples, minutes, accuracy, dollars in markdown_table(SECTIONS["E5"], "| machines |")
    ]


RATE = r"([\d.]+ \+/- [\d.]+)"


def _e5_faces() -> list[Row]:
    pattern = (
        rf"(the physical GPU) {RATE} steps/s, {RATE} examples/s; (1 PS \(GPU node\) \+ 2 GPU workers) {RATE}, {RATE}; "
        rf"(1 PS \(t2.small\) \+ 3 GPU workers) {RATE}, {RATE}"
    )
    groups = _found(pattern, "E5").groups()
    return [
        {
            "machines": groups[place],
            **with_deviation("steps_per_s", groups[place + 1]),
            **with_deviation("examples_per_s", groups[place + 2]),
        }
        for place in (0, 3, 6)
    ]


def _e5_machines() -> list[Row]:
    pattern = (
        rf"One machine: (physical CPU) {RATE} steps/s, {RATE} examples/s, (\d+) minutes \(estimated\); "
        rf"(virtual CPU) {RATE}, {RATE}, (\d+) \(est\.\); "
        rf"(1080 Ti) {RATE}, {RATE}, (\d+) minutes, {RATE} %; "
        rf"(K80) {RATE}, {RATE} \(measured\), (\d+) minutes \(est\.\)"
    )
    groups = _found(pattern, "E5").groups()
    prices = _found(r"Owning \(K80 ([\d,]+), V100 ([\d,]+), 1080 Ti ([\d,]+) dollars\)", "E5")
    found = []
    for place, minutes in (
        (0, "estimated_minutes"),
        (4, "estimated_minutes"),
        (8, "minutes"),
        (13, "estimated_minutes"),
    ):
        name, steps, examples, time = groups[place : place + 4]
        rates = with_deviation("steps_per_s", steps) | with_deviation("examples_per_s", examples)
        found.append({"machine": name, **rates, minutes: number(time)})
    found[2] |= {"machine": "GTX 1080 Ti", **with_deviation("accuracy", groups[12]), "price": number(prices[3])}
    found[3] |= {"price": number(prices[1])}
    return found


def _e5_modes() -> list[Row]:
    pattern = rf"(sync) {RATE} steps/s, {RATE} examples/s against (async) {RATE}, {RATE};"
    groups = _found(pattern, "E5").groups()
    return [
        {
            "mode": groups[place],
            **with_deviation("steps_per_s", groups[place + 1]),
            **with_deviation("examples_per_s", groups[place + 2]),
        }
        for place in (0, 3)
    ]
