from __future__ import annotations

import pytest

from headway.units import (
    bytes_per_second,
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
    num_bytes,
    seconds,
    significant,
)


@pytest.mark.parametrize(
    ("text", "value"), [("500ms", 0.5), ("10s", 10), ("2 min", 120), (3, 3), ("1.5h", 5400), ("1e3us", 1e-3), ("7", 7)]
)
def test_durations_are_seconds(text: object, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [("2GiB", 2**31), ("64MB", 64_000_000), (512, 512), ("1.5kB", 1500)])
def test_sizes_are_bytes(text: object, value: int) -> None:
    assert num_bytes(text) == value


@pytest.mark.parametrize(("text", "value"), [("1Gbit", 125e6), ("100Mbit", 12.5e6), ("50MB/s", 50e6)])
def test_rates_are_bytes_per_second(text: object, value: float) -> None:
    assert bytes_per_second(text) == value


@pytest.mark.parametrize("text", ["10 parsecs", "", "s", "-1s", True, None, [1], "1..5s"])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


def test_numbers_become_text() -> None:
    assert [format_seconds(value) for value in (2e-5, 0.0123, 4.25, 75, 3700, None)] == [
        "20 µs",
        "12.3 ms",
        "4.2 s",
        "1 min 15 s",
        "1 h 01 min",
        "-",
    ]
    assert [format_bytes(value) for value in (16, 13098536, 2e9, None)] == ["16 B", "13.1 MB", "2 GB", "-"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (125e6, "1 Gbit/s"), (12.5e6, "100 Mbit/s"), (10, "80 bit/s"), (124.99e6, "1 Gbit/s")],
)
def test_rates_are_told_in_bits(value: float | None, text: str) -> None:
    assert format_rate(value) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1234.5, 3, "1,234"),
        (999.7, 3, "1,000"),
        (-999.7, 3, "-1,000"),
        (9999.6, 4, "10,000"),
        (0, 3, "0"),
        (0.5, 3, "0.5"),
    ],
)
def test_however_large_a_number_is_it_has_no_exponent(value: float, digits: int, text: str) -> None:
    assert significant(value, digits) == text


def test_what_rounds_up_to_the_next_unit_is_told_in_it() -> None:
    assert format_bytes(999_700) == "1 MB"
    assert [format_seconds(value) for value in (0.0009996, 0.9994, 0.9996, 59.94, 59.97, 3599.7)] == [
        "1 ms",
        "999 ms",
        "1.0 s",
        "59.9 s",
        "1 min 00 s",
        "1 h 00 min",
    ]
    assert [format_flops(value) for value in (6, 27.7e6, 8.18e9, None)] == ["6 FLOP", "27.7 MFLOP", "8.18 GFLOP", "-"]
