"""The published tables, and which of their figures contradict each other."""

from __future__ import annotations

import pytest

from headway.errors import NotFound
from headway.metrics.consistency import check, rounding_of
from headway.metrics.published import Conclusion, Published, table, tables


def rules_by_row(name: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in table(name).inconsistencies:
        found.setdefault(each.where, set()).add(each.rule)
    return found


def test_e5s_rows_fail() -> None:
    """42, 32 and 26 thousand steps instead of 60; 1,285 examples/s instead of 2,755."""
    assert rules_by_row("e5-cluster") == {
        "1 PS (t2.small) + 2 GPU workers": {"steps", "examples"},
        "1 PS (GPU node) + 2 GPU workers": {"steps"},
        "1 PS (t2.small) + 3 GPU workers": {"steps", "examples"},
    }
    expected = [round(each.expected) for each in table("e5-cluster").inconsistencies if each.rule == "steps"]
    assert expected == [42394, 32078, 25903]


def test_of_e5s_single_machines_one_disagrees_with_itself() -> None:
    """0.18 x 128 is 23.04, not 25.12. Their estimates of minutes are no measurements, and are not checked."""
    assert rules_by_row("e5-machines") == {"virtual CPU": {"examples"}}


def test_no_whole_number_of_tasks_explains_e5s_modes() -> None:
    assert rules_by_row("e5-modes") == {"sync": {"examples"}, "async": {"examples"}}


def test_e1s_copy_is_seen() -> None:
    (found,) = table("e1-tuning").inconsistencies
    assert (found.rule, found.where) == ("copy", "configuration 2")


def test_e2s_real_data_that_is_faster_than_none_is_seen() -> None:
    assert rules_by_row("e2-p2") == {"128": {"overhead"}}
    assert rules_by_row("e2-daint") == {}


@pytest.mark.parametrize("name", sorted(tables()))
def test_every_table_has_a_source_and_rows_that_fit_its_columns(name: str) -> None:
    one = table(name)
    assert one.source
    assert one.rows or one.conclusions
    assert len(set(one.row_names)) == len(one.rows)
    for series in one.series:
        assert len(one.points(series)) >= 2


def test_every_evaluation_is_there() -> None:
    assert {one.evaluation for one in tables().values()} == {"E1", "E2", "E3", "E4", "E5"}
    assert len({each.name for one in tables().values() for each in one.conclusions}) > 20


def test_deviations_are_numbers_beside_their_figure() -> None:
    one = table("e5-cluster")
    assert one.rows[0]["steps_per_s_deviation"] == 2.95
    assert one.text(one.rows[0], one.columns[2]) == "7.68 ± 2.95"


def test_a_name_that_is_not_there_gives_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean e5-cluster"):
        table("e5-clutser")


def test_a_conclusion_needs_a_test_or_a_reason() -> None:
    wrong = {"name": "x", "text": "y", "model": "m", "says": "z"}
    about = {"format": 1, "name": "a", "evaluation": "E1", "title": "t", "source": "s", "model": "m", "where": "w"}
    for reasons in ({}, {"not_testable": "no GPU", "contradicted": "both"}, {"test": {"function": "more"}}):
        with pytest.raises(ValueError, match="give either sweep and test, or not_testable, or contradicted"):
            Published.model_validate({**about, "conclusions": [{**wrong, **reasons}]})


def test_a_conclusion_says_where_it_comes_from_and_for_which_model() -> None:
    whole = {"name": "x", "text": "y", "model": "m", "says": "z", "not_testable": "no GPU"}
    assert Conclusion.model_validate(whole).says == ("z",)
    for name in ("model", "says"):
        with pytest.raises(ValueError, match=name):
            Conclusion.model_validate({key: value for key, value in whole.items() if key != name})


GOOD = {"steps_per_s": 10.0, "seconds": 100.0, "steps": 1000, "examples_per_s": 2000.0, "batch_size": 100, "tasks": 2}


def test_figures_that_agree_pass() -> None:
    assert check(GOOD) == []
    assert check({**GOOD, "minutes": 100 / 60}) == []


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"steps": 900}, "steps"),
        ({"examples_per_s": 1500.0}, "examples"),
        ({"contributing": 1}, "examples"),
        ({"minutes": 3.0}, "minutes"),
        ({"dollars": 1.25, "price_per_h": 18.0}, "dollars"),
        ({"synthetic": 100.0, "real": 101.0}, "overhead"),
    ],
)
def test_each_identity_can_fail(wrong: dict[str, float], rule: str) -> None:
    assert [each.rule for each in check({**GOOD, **wrong})] == [rule]


def test_what_is_not_known_is_not_checked() -> None:
    assert check({"steps_per_s": 10.0, "steps": None, "seconds": 5.0}) == []


def test_rounding_explains_what_it_can() -> None:
    assert rounding_of(7) == pytest.approx(0.0714, abs=1e-4)
    assert rounding_of(13.04) == pytest.approx(0.005 / 13.04)
    assert check({"steps_per_s": 7, "batch_size": 128, "examples_per_s": 850}) == []
    assert check({"steps_per_s": 7.0001, "batch_size": 128, "examples_per_s": 850.01}) != []
