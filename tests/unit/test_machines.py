"""The catalogue of machine types: everything the evaluations ran on, in sane sizes, with a source."""

from __future__ import annotations

import pytest

from headway.errors import SpecError
from headway.spec.machines import Machine, catalogue, machine
from headway.units import bytes_per_second, num_bytes

USED = {
    "E1": ["n1-standard-1", "n1-standard-2"],
    "E2": ["p2.xlarge", "p2.8xlarge", "daint", "dgx-1"],
    "E3": ["c220g5"],
    "E5": ["t2.micro", "t2.small", "p2.xlarge", "p3.2xlarge", "gtx-1080-ti"],
}
EACH = pytest.mark.parametrize("found", catalogue().values(), ids=catalogue())


@pytest.mark.parametrize(("evaluation", "name"), [(which, name) for which in USED for name in USED[which]])
def test_what_the_evaluations_used_is_there(evaluation: str, name: str) -> None:
    assert evaluation in machine(name).used_by


@EACH
def test_every_figure_has_a_source_and_a_date(found: Machine) -> None:
    assert len(found.source) > 20
    assert "2017" <= found.date < "2020"


@EACH
def test_sizes_are_sane(found: Machine) -> None:
    # A slip in a unit is a factor of 8 or 1000.
    assert found.cpus is None or 1 <= found.cpus <= 128
    assert found.memory is None or num_bytes("1GiB") <= found.memory <= num_bytes("512GiB")
    assert found.network is None or bytes_per_second("50Mbit") <= found.network <= bytes_per_second("400Gbit")
    assert found.price is None or 0.01 <= found.price <= 10


@EACH
def test_gpus_have_a_name_and_a_speed_and_nothing_else_has(found: Machine) -> None:
    assert bool(found.gpus) == bool(found.gpu) == bool(found.speed)
    assert all(1 < speed < 10_000 for speed in found.speed.values())


def test_units_are_read() -> None:
    small = machine("n1-standard-1")
    assert (small.cpus, small.memory, small.network) == (1, 3.75 * 2**30, 250e6)


def test_eight_gpus_are_nearly_eight_times_as_fast_and_dear() -> None:
    one, eight = machine("p2.xlarge"), machine("p2.8xlarge")
    assert eight.speed["inception_v3"] / one.speed["inception_v3"] == pytest.approx(8, rel=0.1)
    assert one.price is not None
    assert eight.price == pytest.approx(8 * one.price)


@pytest.mark.parametrize(("name", "baseline"), [("t2.micro", 0.1), ("t2.small", 0.2)])
def test_credits_keep_up_the_baseline(name: str, baseline: float) -> None:
    credits = machine(name).credits
    assert credits is not None
    assert credits.baseline == pytest.approx(baseline)
    assert credits.limit == 24 * credits.per_hour  # Amazon lets a day's credits be saved up
    assert credits.start == 30  # half an hour of its one vCPU


def test_only_t2_has_credits() -> None:
    assert [name for name, found in catalogue().items() if found.credits] == ["t2.micro", "t2.small"]


@pytest.mark.parametrize(
    ("name", "near"), [("n1-standard-4", "n1-standard-2"), ("p2.2xlarge", "p2.xlarge"), ("DGX-1", "dgx-1")]
)
def test_an_unknown_name_is_answered_with_near_ones(name: str, near: str) -> None:
    with pytest.raises(SpecError) as raised:
        machine(name)
    question, _, known = str(raised.value).partition("? Known: ")
    assert question.startswith(f"no machine type '{name}' in the catalogue; did you mean ")
    assert near in question
    assert known.split(", ") == list(catalogue())


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(SpecError, match=r"^no machine type 'cray' in the catalogue\. Known: n1-standard-1, "):
        machine("cray")
