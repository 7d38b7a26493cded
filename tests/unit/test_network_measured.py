"""What the network gives, judged: agents that answer from a list stand for those that measure (tests/real has them)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.sites import measure

MEGABIT = 125_000.0


class Agent:
    """Answers every question for a rate with the next one, in Mbit/s on the wire."""

    name = "worker0"

    def __init__(self, *rates: float) -> None:
        self._rates = list(rates)
        self.asked: list[float] = []

    def send(self, do: str, **fields: Any) -> None:
        assert do == "rates"
        self.asked.append(fields["seconds"])

    async def receive(self) -> dict[str, Any]:
        return {"say": "rates", "rates": [self._rates.pop(0) * MEGABIT / measure.HEADERS]}


@pytest.mark.parametrize(
    ("rates", "tries", "got", "is_ok"),
    [
        ((99,), 1, 99, True),
        ((60, 98), 2, 98, True),  # the first one was held up
        ((60, 50, 55), 3, 60, False),  # it is so slow
        ((130,), 1, 130, False),  # too fast is never chance
        ((60, 130), 2, 130, False),
    ],
)
def test_a_rate_below_what_was_asked_is_measured_again(
    rates: tuple[float, ...], tries: int, got: float, is_ok: bool
) -> None:
    agent: Any = Agent(*rates)
    samples = asyncio.run(measure._rates(100 * MEGABIT, [(agent, [("10.0.0.1", 1)])]))
    assert agent.asked == list(measure.RATE_SECONDS[:tries])
    (event,) = measure.Found(sending={"worker0": (100 * MEGABIT, samples)}).events()
    assert event["got"] == pytest.approx(got * MEGABIT)
    assert (event["ok"], len(event["samples"])) == (is_ok, tries)


def test_where_nothing_was_asked_once_is_enough() -> None:
    agent: Any = Agent(3)
    samples = asyncio.run(measure._rates(None, [(agent, [("10.0.0.1", 1)])]))
    assert samples == [pytest.approx(3 * MEGABIT)]
