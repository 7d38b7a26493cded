"""What the benchmarks of accuracy and of input make of their samples, and that their jobs are jobs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import accuracy_targets as targets
import distorted
import input as price

from headway.spec.load import parse_job
from headway.workloads.base import DataInfo
from headway.workloads.convert import Sources, write_shards


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few distorted digits in place of all: a job is the same with them."""
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    few = np.zeros((500, 40, 40, 1), np.uint8), np.arange(500, dtype=np.int32) % 10
    for kind in distorted.KINDS:
        sources: Sources = {"train": few, "test": few}
        write_shards(sources, DataInfo((40, 40, 1), 10, 500, 500), tmp_path / f"mnist-{kind}", 1, lambda *_: None)


@pytest.mark.parametrize("name", targets.CASES)
def test_every_case_of_accuracy_is_a_valid_job(digits: None, name: str) -> None:
    job = parse_job(targets.CASES[name]().job(seed=2))
    assert job.seed == 2
    assert (job.cluster.worker.count, job.strategy.kind) == (
        (1, "ps-async") if name in ("e1-cnn", "softmax") else (0, "single")
    )


def test_the_transformer_and_the_classifier_alone_differ_in_that_only(digits: None) -> None:
    for kind in distorted.KINDS:
        on, off = (targets.CASES[name]().workload for name in (f"spatial-{kind}", f"spatial-{kind}-without"))
        assert on["model"].pop("transformer")
        assert not off["model"].pop("transformer")
        assert on == off


def sample(case: str, seed: int = 1, **values: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "accuracy": None,
        "loss": 1.0,
        "wanted": None,
        "steps": 10,
        "evaluations": [],
        "epoch_losses": [],
    }
    return {"case": case, "seed": seed, **empty, **values}


def test_a_target_is_reached_when_every_seed_reaches_it() -> None:
    good = [sample("softmax", seed, accuracy=0.92, wanted=0.91) for seed in (1, 2)]
    bad = sample("softmax", 3, accuracy=0.90, wanted=0.91)
    assert targets.is_reached(good, ["softmax"])
    assert not targets.is_reached([*good, bad], ["softmax"])
    assert not targets.is_reached(good, ["softmax", "e1-cnn"]), "the other was not trained"
    [row] = [line for line in targets.tables([*good, bad]) if "softmax" in line]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "softmax",
        "3",
        "10",
        "accuracy 0.9133 (0.9000 to 0.9200)",
        ">= 0.91",
        "no",
    ]
    assert targets.is_reached([sample("autoencoder-small", loss=1.9, wanted=2.0)], ["autoencoder-small"])
    assert not targets.is_reached([sample("autoencoder-small", loss=2.1, wanted=2.0)], ["autoencoder-small"])


def test_the_transformer_must_be_better_in_every_seed() -> None:
    both = [
        sample(f"spatial-rotated{suffix}", seed, accuracy=accuracy)
        for seed in (1, 2)
        for suffix, accuracy in (("", 0.98), ("-without", 0.97))
    ]
    assert targets.is_reached(both, [])
    assert "2 of 2" in "".join(targets.tables(both))
    both += [sample("spatial-rotated", 3, accuracy=0.96), sample("spatial-rotated-without", 3, accuracy=0.97)]
    assert not targets.is_reached(both, [])
    assert "2 of 3" in "".join(targets.tables(both))


def test_the_known_curve_is_followed_or_not() -> None:
    evaluations = [[782, 0.63], [1564, 0.68]]
    near = [1.9, *(1.08 * loss for loss in targets.KNOWN_LOSS[1:4])]  # the first epoch does not count
    followed = sample("resnet20", steps=1600, epoch_losses=near, evaluations=evaluations)
    assert targets.is_reached([followed], ["resnet20"])
    assert "follows the known curve: training loss off by at most 8.0%" in "\n".join(targets.tables([followed]))
    assert not targets.is_reached([{**followed, "epoch_losses": [1.9, *(1.2 * loss for loss in near[1:])]}], [])
    assert not targets.is_reached([{**followed, "evaluations": [[782, 0.4], [1564, 0.5]]}], [])
    assert not targets.is_reached([{**followed, "epoch_losses": near[:1]}], []), "too few"
    assert len(targets.KNOWN_LOSS) == len(targets.KNOWN_ACCURACY) == 20


# --- the price of input -----------------------------------------------------------------------------------------------
def test_real_and_synthetic_differ_in_their_data_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path))
    few = np.zeros((200, 32, 32, 3), np.uint8), np.arange(200, dtype=np.int32) % 10
    info = DataInfo((32, 32, 3), 10, 200, 200, 1 / 255, "uint8")
    write_shards({"train": few, "test": few}, info, tmp_path / "cifar10-shards", 1, lambda *_: None)
    for name, case in price.CASES.items():
        real, synthetic = (case.job(variant) for variant in ("real", "synthetic"))
        parse_job(real)
        parse_job(synthetic)
        first, second = real["workload"].pop("dataset"), synthetic["workload"].pop("dataset")
        assert real == synthetic
        assert second["synthetic"] is True
        assert first["name"] == second["name"]
        assert bool(first["augment"]) == name.startswith("resnet20")


def pairs(case: str, *ratios: float, loaded: bool = False) -> list[dict[str, Any]]:
    found = []
    for number, ratio in enumerate(ratios):
        for variant, rate in (("real", 100 * ratio), ("synthetic", 100.0)):
            one = {"kind": "sample", "case": case, "pair": number, "variant": variant, "loaded": loaded}
            found.append({**one, "examples_per_s": rate})
    return found


def test_the_price_is_the_share_that_is_lost() -> None:
    samples = pairs("e1-cnn", 0.97, 0.98, 0.99, 0.98, 0.985)
    [row] = [line for line in price.tables(samples) if "e1-cnn" in line]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["100 / 98", "2.0%", "1.0% to 3.0%", "5", "< 3%", "yes"]
    assert price.is_reached(samples, False, ["e1-cnn"])
    assert not price.is_reached(samples, False, ["e1-cnn", "resnet20-arrays"]), "that was not measured"
    assert not price.is_reached(pairs("e1-cnn", 0.96, 0.965), False, ["e1-cnn"])
    disturbed = pairs("e1-cnn", 0.98, loaded=True)
    assert not price.is_reached(disturbed, False, ["e1-cnn"])
    assert price.is_reached(disturbed, True, ["e1-cnn"])


@pytest.mark.parametrize("module", [targets, price])
def test_cases_are_chosen_by_patterns(module: Any) -> None:
    assert module.chosen([]) == list(module.CASES)
    assert module.chosen(["resnet*"]) == [name for name in module.CASES if name.startswith("resnet")]
    with pytest.raises(ValueError, match="no case 'nonsense'; there are e1-cnn"):
        module.chosen(["nonsense"])
