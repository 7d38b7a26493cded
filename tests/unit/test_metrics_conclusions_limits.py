"""Where exactly a conclusion is re-found, where the contrary is, and in which words. Repeats are all alike, so that
an interval is one number and lies on a limit where it is meant to."""

from __future__ import annotations

from typing import Any

import pytest

from headway.metrics.conclusions import FUNCTIONS, Judgement, judge
from headway.metrics.factors import Measured
from headway.metrics.published import Conclusion

RATE = "examples_per_s"
A, B = {"a": 2}, {"a": 1}


def trial(value: float, tasks: int = 2, runs: int = 2, **settings: Any) -> Measured:
    is_baseline = settings.pop("is_baseline", False)
    data = settings.pop("data", "real")
    return Measured(settings, tasks, is_baseline, data, ({RATE: value, "seconds": value},) * runs, name="one machine")


def found_by(function: str, trials: list[Measured], figure: str = RATE, **arguments: Any) -> Judgement:
    return FUNCTIONS[function](trials, figure=figure, **arguments)


def verdict(found: Judgement) -> str:
    """`so`, `contrary`, `not clear`, or what else the verdict is."""
    if found.verdict == "not re-found":
        return "contrary" if found.is_clear else "not clear"
    return "so" if found.verdict == "re-found" else found.verdict


def pair(quotient: float) -> list[Measured]:
    return [trial(100.0 * quotient, a=2), trial(100.0, a=1)]


# --- one setting against another --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("function", "quotient", "by", "expected"),
    [
        ("more", 1.25, 1.0, "so"),
        ("more", 1.0, 1.0, "contrary"),
        ("more", 2.0, 2.0, "contrary"),
        ("more", 2.25, 2.0, "so"),
        ("less", 0.75, 1.0, "so"),
        ("less", 1.0, 1.0, "contrary"),
        ("less", 0.51, 0.5, "contrary"),
        ("less", 0.49, 0.5, "so"),
        ("not_more", 2.0, 2.0, "so"),
        ("not_more", 1.0, 1.0, "so"),
        ("not_more", 2.25, 2.0, "contrary"),
    ],
)
def test_more_and_less_are_beyond_their_factor_and_not_more_is_up_to_it(
    function: str, quotient: float, by: float, expected: str
) -> None:
    assert verdict(found_by(function, pair(quotient), when=A, than=B, by=by)) == expected


@pytest.mark.parametrize(("quotient", "expected"), [(0.51, "so"), (1.5, "so"), (0.49, "contrary"), (1.51, "contrary")])
def test_the_same_is_within_its_limits_and_on_them(quotient: float, expected: str) -> None:
    assert verdict(found_by("same", pair(quotient), when=A, than=B, within=0.5)) == expected


def test_a_tenth_is_the_same_unless_said_otherwise() -> None:
    assert verdict(found_by("same", pair(1.09), when=A, than=B)) == "so"
    assert verdict(found_by("same", pair(1.11), when=A, than=B)) == "contrary"


def test_what_was_needed_is_said_where_it_is_more_than_a_difference_and_was_not_found() -> None:
    words = found_by("more", pair(1.5), when=A, than=B, by=2.0).words
    assert (
        words
        == f"{RATE} with a 2 against a 1: 50.0 % more (50.0 % more to 50.0 % more); needed: more than 2 times as much"
    )
    assert "needed" not in found_by("more", pair(2.5), when=A, than=B, by=2.0).words
    assert "needed" not in found_by("more", pair(0.5), when=A, than=B).words
    assert found_by("less", pair(1.5), when=A, than=B, by=0.5).words.endswith("; needed: less than 0.5 times as much")
    assert found_by("not_more", pair(3.0), when=A, than=B, by=2.0).words.endswith("; needed: at most 2 times as much")
    assert found_by("same", pair(3.0), when=A, than=B, within=0.25).words.endswith("; needed: within 25 %")


def test_one_run_of_each_says_nothing_and_names_what_it_is_of() -> None:
    single = [trial(200.0, runs=1, a=2), trial(100.0, runs=2, a=1)]
    found = found_by("more", single, when=A, than=B)
    assert found.verdict == "not measured yet"
    assert found.words.endswith(": one run of each says nothing")
    assert found.trials == tuple(single)


@pytest.mark.parametrize("function", ["more", "less", "not_more", "same", "overhead"])
def test_without_a_pair_nothing_is_measured(function: str) -> None:
    arguments: dict[str, Any] = {"most": 0.5} if function == "overhead" else {"when": A, "than": B}
    found = found_by(function, [trial(1.0, a=2)], **arguments)
    assert found.verdict == "not measured yet"
    assert found.words == f"the sweep has no two trials with {RATE}, each run twice, to compare"


@pytest.mark.parametrize(
    ("price", "expected", "cost"), [(2.0, "contrary", "1.00"), (1.6, "so", "0.80"), (2.5, "contrary", "1.25")]
)
def test_cheaper_is_more_for_the_same_price(price: float, expected: str, cost: str) -> None:
    found = found_by("cheaper", pair(2.0), when=A, than=B, price_when=price, price_than=1.0)
    assert verdict(found) == expected
    assert found.words.endswith(f"for {price:.2f} times the price: {cost} times the cost")
    single = [trial(200.0, runs=1, a=2), trial(100.0, a=1)]
    assert found_by("cheaper", single, when=A, than=B, price_when=1.0, price_than=1.0).verdict == "not measured yet"


def test_pairs_that_contradict_each_other_are_neither_cheaper_nor_dearer() -> None:
    mixed = [trial(400.0, a=2, b=1), trial(100.0, a=1, b=1), trial(90.0, a=2, b=2), trial(100.0, a=1, b=2)]
    for price in (0.1, 10.0):
        assert verdict(found_by("cheaper", mixed, when=A, than=B, price_when=price, price_than=1.0)) == "not clear"


# --- curves -----------------------------------------------------------------------------------------------------------
def curve(*values: float) -> list[Measured]:
    return [trial(value, tasks=tasks) for tasks, value in enumerate(values, start=1)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((100.0, 150.0, 200.0), "so"),
        ((100.0, 100.0), "contrary"),
        ((100.0, 100.0, 200.0), "not clear"),  # a step that is level is not a step up, nor one down
        ((100.0, 200.0, 150.0), "contrary"),
        ((200.0, 100.0), "contrary"),
    ],
)
def test_a_rise_goes_up_at_every_step(values: tuple[float, ...], expected: str) -> None:
    assert verdict(found_by("rises", curve(*values), over="tasks")) == expected


def test_a_rise_is_told_value_by_value() -> None:
    found = found_by("rises", curve(100.0, 150.0), over="tasks")
    assert found.words == f"{RATE} by tasks: 1: 100 (100 to 100), 2: 150 (150 to 150)"
    assert found_by("rises", curve(100.0), over="tasks").verdict == "not measured yet"
    once = [trial(100.0, tasks=1, runs=1), trial(200.0, tasks=2)]
    assert found_by("rises", once, over="tasks").verdict == "not measured yet"


def test_a_rise_is_of_the_best_trial_of_each_size_and_a_baseline_is_no_setting() -> None:
    trials = [trial(100.0, a=1), trial(90.0, a=2, b=1), trial(150.0, a=2, b=2)]
    assert verdict(found_by("rises", trials, over="a")) == "so"
    baseline = trial(500.0, a=1, is_baseline=True)
    assert verdict(found_by("rises", [*trials, baseline], over="a")) == "so"
    single = trial(500.0, tasks=1, is_baseline=True)
    assert verdict(found_by("rises", [single, trial(100.0, tasks=2)], over="tasks")) == "contrary"


def test_values_that_no_run_gave_are_named() -> None:
    trials = [trial(100.0, a=1), trial(150.0, a=2), Measured({"a": 4}, 2, False, "real", ())]
    assert found_by("rises", trials, over="a").words.endswith("; no run gave it with a 4")


@pytest.mark.parametrize(
    ("last", "expected", "quotient"), [(150.0, "so", "0.75"), (200.0, "contrary", "1.00"), (300.0, "contrary", "1.50")]
)
def test_a_curve_flattens_earlier_where_it_grows_less(last: float, expected: str, quotient: str) -> None:
    trials = [
        trial(value, tasks=tasks, a=a) for a, tasks, value in ((2, 1, 100.0), (2, 4, last), (1, 1, 50.0), (1, 4, 100.0))
    ]
    found = found_by("flattens_earlier", trials, over="tasks", when=A, than=B)
    assert verdict(found) == expected
    assert found.words == (
        f"{RATE} from 1 to 4 tasks: {last / 100:.2f} times with a 2 and 2.00 times with a 1, "
        f"a quotient of {quotient} ({quotient} to {quotient})"
    )
    assert found_by("flattens_earlier", trials[:3], over="tasks", when=A, than=B).verdict == "not measured yet"
    once = [trial(last, tasks=4, runs=1, a=2), trials[0], *trials[2:]]
    assert found_by("flattens_earlier", once, over="tasks", when=A, than=B).verdict == "not measured yet"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((100.0, 175.0), "so"),
        ((100.0, 200.0), "contrary"),  # linear
        ((100.0, 250.0), "contrary"),
        ((100.0, 100.0), "contrary"),  # no more at all
        ((100.0, 250.0, 275.0), "contrary"),  # above linear on the way
    ],
)
def test_below_linear_is_more_but_not_so_many_times_as_much(values: tuple[float, ...], expected: str) -> None:
    assert verdict(found_by("below_linear", curve(*values))) == expected


def test_a_speed_up_is_told_with_its_baseline_and_its_efficiency() -> None:
    found = found_by("below_linear", curve(100.0, 175.0))
    assert found.words == ("speed-up against one machine: 2 tasks: 1.75 (efficiency 0.88, 0.88 to 0.88)")
    assert found_by("below_linear", curve(100.0)).verdict == "not measured yet"
    once = [trial(100.0, tasks=1), trial(150.0, tasks=2, runs=1)]
    assert found_by("below_linear", once).verdict == "not measured yet"


def test_the_baseline_of_a_speed_up_may_be_one_task_with_its_servers() -> None:
    """The single machine is far faster than one task with a server."""
    trials = [trial(400.0, tasks=1, is_baseline=True), trial(100.0, tasks=1), trial(175.0, tasks=2)]
    assert verdict(found_by("below_linear", trials)) == "contrary"
    assert verdict(found_by("below_linear", trials, of_one_task=True)) == "so"


def test_of_times_the_best_trial_is_the_shortest() -> None:
    trials = [trial(100.0, tasks=1), trial(90.0, tasks=2, a=1), trial(60.0, tasks=2, a=2)]
    found = found_by("below_linear", trials, figure="seconds")
    assert found.trials == (trials[0], trials[2])
    rates = found_by("below_linear", [trial(100.0, tasks=1), trial(150.0, tasks=2, a=1), trial(120.0, tasks=2, a=2)])
    assert "2 tasks: 1.50" in rates.words


# --- the cost of real data --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("real", "expected"),
    [(100.0, "contrary"), (125.0, "contrary"), (87.5, "so"), (75.0, "contrary"), (50.0, "contrary")],
)
def test_an_overhead_is_above_nothing_and_below_its_limit(real: float, expected: str) -> None:
    trials = [trial(real, data="real"), trial(100.0, data="synthetic")]
    found = found_by("overhead", trials, most=0.25)
    assert verdict(found) == expected
    share = f"{1 - real / 100:.1%}"
    assert found.words == f"I/O overhead {share} ({share} to {share}, 1 pair of trials)"
    once = [trial(real, data="real", runs=1), trial(100.0, data="synthetic")]
    assert found_by("overhead", once, most=0.25).verdict == "not measured yet"


# --- the highest of all -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "most", "least"),
    [
        ((100.0, 50.0, 75.0), "so", "contrary"),
        ((100.0, 150.0, 125.0), "contrary", "so"),
        ((100.0, 150.0, 75.0), "contrary", "contrary"),
        ((100.0, 100.0, 75.0), "not clear", "contrary"),
        ((100.0, 100.0, 125.0), "contrary", "not clear"),
    ],
)
def test_the_highest_is_above_each_of_the_others(values: tuple[float, ...], most: str, least: str) -> None:
    trials = [trial(value, a=a) for a, value in enumerate(values, start=1)]
    assert verdict(found_by("most", trials, factor="a", value=1)) == most
    assert verdict(found_by("least", trials, factor="a", value=1)) == least


def test_the_highest_needs_a_figure_of_each_of_the_others() -> None:
    trials = [trial(100.0, a=1), trial(50.0, a=2), Measured({"a": 4}, 2, False, "real", ())]
    found = found_by("most", trials, factor="a", value=1)
    assert (found.verdict, found.words) == ("not measured yet", f"no run gave {RATE} with a 4")
    once = [trial(100.0, runs=1, a=1), trial(50.0, runs=1, a=2)]
    assert found_by("most", once, factor="a", value=1).words.startswith("the sweep has no two trials")
    baseline = trial(500.0, a=3, is_baseline=True)
    assert verdict(found_by("most", [trial(100.0, a=1), trial(50.0, a=2), baseline], factor="a", value=1)) == "so"


# --- alike, and within limits -----------------------------------------------------------------------------------------
def test_alike_is_the_same_in_every_pair() -> None:
    def alike(*values: float) -> Judgement:
        return found_by("alike", [trial(value, a=a) for a, value in enumerate(values)], factor="a", within=0.25)

    assert verdict(alike(100.0, 110.0, 120.0)) == "so"
    assert verdict(alike(100.0, 110.0, 150.0)) == "contrary"
    assert alike(100.0, 110.0).words.count("needed") == 0
    assert alike(100.0).verdict == "not measured yet"
    once = [trial(100.0, runs=1, a=1), trial(100.0, a=2)]
    assert found_by("alike", once, factor="a", within=0.25).verdict == "not measured yet"
    assert len(alike(100.0, 110.0, 120.0).trials) == 3


@pytest.mark.parametrize(
    ("value", "limits", "expected"),
    [
        (0.5, {"least": 0.25, "most": 0.75}, "so"),
        (0.25, {"least": 0.25}, "contrary"),
        (0.75, {"most": 0.75}, "contrary"),
        (0.5, {"least": 0.25}, "so"),
        (0.5, {"most": 0.75}, "so"),
        (0.125, {"least": 0.25}, "contrary"),
    ],
)
def test_what_lies_within_is_between_its_limits_and_not_on_them(
    value: float, limits: dict[str, Any], expected: str
) -> None:
    assert verdict(found_by("lies_within", [trial(value)], **limits)) == expected


def test_what_lies_within_is_told_with_its_limits() -> None:
    found = found_by("lies_within", [trial(0.5)], least=0.25, most=0.75)
    assert found.words == f"{RATE}: 0.5 (0.5 to 0.5); needed: above 0.25 and below 0.75"
    assert found_by("lies_within", [trial(0.5, runs=1)], least=0.25).verdict == "not measured yet"
    two = found_by("lies_within", [trial(0.5, a=1), trial(0.25, a=2)], least=0.25)
    assert verdict(two) == "not clear"
    assert (
        two.words
        == f"not clear: {RATE}: 0.375 (0.375 to 0.375), mean of 2 trials; not in every trial; needed: above 0.25"
    )


# --- a conclusion -----------------------------------------------------------------------------------------------------
def conclusion(**known: Any) -> Conclusion:
    said = {"name": "a", "text": "t", "model": "m", "says": "s", **known}
    return Conclusion.model_validate({key: value for key, value in said.items() if key in Conclusion.model_fields})


MORE = {"function": "more", "figure": RATE, "when": A, "than": B}


def test_what_cannot_be_tested_or_was_not_run_is_told_so() -> None:
    never = conclusion(not_testable="it needs a GPU")
    assert judge(never, pair(2.0)) == Judgement("not testable here", "it needs a GPU")
    to_run = conclusion(sweep="e1", test=MORE)
    for trials in (None, [], [Measured({}, 1, False, "real", ())]):
        assert judge(to_run, trials) == Judgement("not measured yet", "headway bench examples/e1.yaml")


def test_the_original_values_are_tried_only_where_the_sweeps_own_were_not_run() -> None:
    either = conclusion(sweep="e1", test=MORE, full={"when": {"a": 8}})
    assert verdict(judge(either, pair(2.0))) == "so"
    assert verdict(judge(either, [trial(50.0, a=8), trial(100.0, a=1)])) == "contrary"
    assert verdict(judge(either, [*pair(2.0), trial(50.0, a=8)])) == "so"
    assert judge(either, [trial(1.0, a=3)]).verdict == "not measured yet"


def test_perhaps_is_said_only_where_it_is_not_re_found() -> None:
    either = conclusion(sweep="e1", test=MORE, perhaps="this machine is small")
    assert "Perhaps" not in judge(either, pair(2.0)).words
    assert judge(either, pair(0.5)).words.endswith(". Perhaps because this machine is small")
    assert "Perhaps" not in judge(conclusion(sweep="e1", test=MORE), pair(0.5)).words
