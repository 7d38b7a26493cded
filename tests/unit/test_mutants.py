"""Mutants are made as mutate.py says, are the same ones when lines move, and every core has tests of its own."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "mutants"))

import cores
from mutants_page import Tally, page, read, stored
from mutate import Mutation, mutated, mutations, sample

AGE = '''
def is_late(now: int, since: int = 0) -> bool:
    """Whether 3 seconds are over."""
    age = now - since
    return age > 3 and now != 0
'''


def changes(source: str) -> set[tuple[str, str]]:
    return {(one.before, one.after) for one in mutations(source)}


def of(source: str, before: str, after: str) -> Mutation:
    return next(one for one in mutations(source) if (one.before, one.after) == (before, after))


def test_comparisons_conjunctions_arithmetic_constants_and_returned_values_are_changed() -> None:
    assert changes(AGE) == {
        ("now: int, since: int=0", "now: int, since: int=1"),
        ("now - since", "now + since"),
        ("return age > 3 and now != 0", "return None"),
        ("age > 3 and now != 0", "age > 3 or now != 0"),
        ("age > 3", "age >= 3"),
        ("age > 3", "age <= 3"),
        ("age > 3", "age > 4"),
        ("now != 0", "now == 0"),
        ("now != 0", "now != 1"),
    }


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("x = not y", ("not y", "not not y")),
        ("x += 1", ("x += 1", "x -= 1")),
        ("x = a * b", ("a * b", "a / b")),
        ("x = a is None", ("a is None", "a is not None")),
        ("x = a in ('p', 'q')", ("('p', 'q')", "('p', 'q?')")),
        ("x = 0.5", ("x = 0.5", "x = 1.0")),
        ("x = y[-1]", ("y[-1]", "y[-2]")),
        ("x = f(strict=True)", ("f(strict=True)", "f(strict=False)")),
    ],
)
def test_a_change_is_shown_with_what_it_stands_in(source: str, change: tuple[str, str]) -> None:
    assert change in changes(source)


@pytest.mark.parametrize(
    "source", ["@dataclass(frozen=True)\nclass A:\n    x: Literal[1]", 'x = "a message"', "x = None"]
)
def test_what_describes_is_left_alone(source: str) -> None:
    assert mutations(source) == []


def test_a_mutant_does_what_it_says() -> None:
    found: dict[str, object] = {}
    exec(compile(mutated(AGE, of(AGE, "now - since", "now + since")), "mutant", "exec"), found)  # noqa: S102
    is_late = found["is_late"]
    assert callable(is_late)
    assert is_late(5, 4), "9 seconds, as the mutant reckons"


def test_only_the_asked_place_is_changed() -> None:
    for one in mutations(AGE):
        pairs = zip(ast.unparse(ast.parse(AGE)).splitlines(), ast.unparse(mutated(AGE, one)).splitlines(), strict=True)
        assert sum(before != after for before, after in pairs) == 1, one


def test_a_mutation_stays_the_same_one_when_other_functions_change() -> None:
    more = f"LIMIT = 7\n\n\ndef other(x):\n    return x > 1 or x < LIMIT\n\n{AGE}"
    assert {one.key for one in mutations(AGE)} < {one.key for one in mutations(more)}


def test_changes_that_read_alike_are_told_apart() -> None:
    keys = [one.key for one in mutations("def f(x):\n    a = x + 1\n    b = x + 1")]
    assert len(keys) == len({*keys}) == 4


def test_a_sample_is_always_the_same_and_stays_where_nothing_was_edited() -> None:
    source = (cores.SOURCES / "launch" / "watch.py").read_text(encoding="utf-8")
    drawn = sample(source, 20)
    assert drawn == sample(source, 20)
    assert len({one.key for one in drawn}) == 20
    edited = f"{source}\n\ndef more(x):\n    return x > 5\n"
    assert len({one.key for one in drawn} - {one.key for one in sample(edited, 20)}) <= 4, "one for each new mutation"


@pytest.mark.parametrize("core", cores.CORES)
def test_every_core_is_there_and_has_tests(core: str) -> None:
    assert (cores.SOURCES / core).is_file()
    assert cores.tests_of(core)


def test_what_is_listed_as_equivalent_is_of_a_core_and_has_a_reason() -> None:
    listed = cores.equivalents()
    assert listed.keys() <= cores.CORES.keys()
    assert all(len(why) > 10 for entries in listed.values() for why in entries.values())


def test_the_page_tells_what_was_not_caught_and_what_is_not_counted() -> None:
    first, second, third, *_ = mutations(AGE)
    tally = Tally(9, [(third, "nobody reads it")])
    tally.add(first, is_caught=True)
    tally.add(second, is_caught=False)
    text = page({"launch/watch.py": read(json.loads(json.dumps(stored(tally))))})
    assert tally.share == 0.5
    assert "| `launch/watch.py` | 9 | 2 | 1 | 50.0% |" in text
    assert f"`{second.before}` as `{second.after}`\n" in text
    assert f"`{third.before}` as `{third.after}`: nobody reads it" in text
