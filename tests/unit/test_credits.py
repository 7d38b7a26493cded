"""The account of a burstable CPU."""

from __future__ import annotations

import pytest

from headway.host.credits import Account


def test_credits_run_out_after_as_long_as_the_arithmetic_says() -> None:
    """One CPU, earning 6 an hour (0.1 CPU): 2 credits last 2 / (1 - 0.1) minutes of full use."""
    account = Account(cpus=1.0, per_hour=6, start=2, most=144, now=0.0, used=0.0)
    now = used = 0.0
    while account.cpus == 1.0:
        now, used = now + 0.2, used + 0.2
        account.settle(now, used)
    assert now == pytest.approx(2 / 0.9 * 60, abs=0.5)
    assert account.cpus == pytest.approx(0.1)
    assert account.balance == 0.0


def test_a_node_that_rests_saves_up_to_the_most() -> None:
    account = Account(cpus=1.0, per_hour=60, start=0, most=3, now=0.0, used=0.0)
    assert account.cpus == 1.0  # it earns as fast as it could spend
    assert account.settle(120.0, 0.0) == pytest.approx(2.0)
    assert account.settle(1200.0, 0.0) == 3.0


def test_without_credits_the_baseline_is_used_for_ever() -> None:
    account = Account(cpus=0.5, per_hour=6, start=0, most=10, now=0.0, used=0.0)
    assert account.cpus == pytest.approx(0.1)
    account.settle(60.0, 6.0)
    assert account.balance == pytest.approx(0.0)
    assert account.cpus == pytest.approx(0.1)


def test_what_is_used_between_two_looks_is_owed() -> None:
    """Looked at seldom, a node gets no more in the long run."""
    account = Account(cpus=1.0, per_hour=12, start=0.001, most=10, now=0.0, used=0.0)
    now = used = 0.0
    for _ in range(600):
        used += account.cpus * 0.5
        now += 0.5
        account.settle(now, used)
    assert used / now == pytest.approx(0.2, rel=0.02)


def test_where_time_runs_slower_credits_come_slower() -> None:
    account = Account(cpus=1.0, per_hour=60, start=0, most=10, now=0.0, used=0.0, dilation=10)
    assert account.settle(600.0, 0.0) == pytest.approx(1.0)
