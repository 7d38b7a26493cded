"""The published tables say what the evaluations say: every figure, and every conclusion for the model it was drawn for.

Rows and conclusions were once typed without their source, and some were wrong: conclusions drawn for one model stood
under the other, rows were named by their place, deviations were missing."""

from __future__ import annotations

import re

import pytest
from published_source import SECTIONS, clauses_of_e4, plain, rows_of, words_for

from headway.metrics.published import DEVIATION, Conclusion, Published, table, tables
from headway.workloads import MODELS

NAMES = sorted(tables())
CONCLUSIONS = [(name, each) for name in NAMES for each in table(name).conclusions]
IDS = [f"{name}:{each.name}" for name, each in CONCLUSIONS]
STAYS = re.compile(
    r"\b(stays?|same|similar|alike|hardly|yes|no influence|no significant difference|not in steps)\b", re.IGNORECASE
)
SAME = {"same", "alike", "not_more", "lies_within"}
NOT_HERE = {"resnet_44", "faces"}  # a depth of `resnet`; photographs that are not public
# Of an evaluation that lists its conclusions, what is no statement of its own.
BETWEEN = re.compile(r"\b(and|both|so|low|lower|than async)\b|[\s,.:()]")


def stated(one: Published) -> list[dict[str, object]]:
    """The rows without what we have added to them."""
    kept = [column.name for column in one.columns if not column.ours]
    names = [*kept, *(f"{name}{DEVIATION}" for name in kept)]
    return [{name: row[name] for name in names if row.get(name) is not None} for row in one.rows]


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_that_of_the_source(name: str) -> None:
    wanted = [{key: value for key, value in row.items() if value is not None} for row in rows_of(name)]
    assert stated(table(name)) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_a_table_says_where_its_rows_stand_and_of_which_model(name: str) -> None:
    one = table(name)
    assert plain(one.where) in plain(SECTIONS[one.evaluation])
    assert one.model in {*MODELS, *NOT_HERE}


@pytest.mark.parametrize(("name", "each"), CONCLUSIONS, ids=IDS)
def test_a_conclusion_was_drawn_for_its_model(name: str, each: Conclusion) -> None:
    one = table(name)
    assert each.model == one.model
    words = words_for(one.evaluation, each.model)
    for says in each.says:
        assert plain(says) in words


@pytest.mark.parametrize(("name", "each"), CONCLUSIONS, ids=IDS)
def test_what_stays_in_the_source_is_tested_as_staying(name: str, each: Conclusion) -> None:
    """Not the contrary: `outbound stays the same` once stood as `raises the network's peaks`."""
    if each.test is None or each.basis == "figures":
        return
    function = each.test["function"]
    if all(STAYS.search(says) for says in each.says):
        assert function in SAME or "low" in each.says[0]  # `both alike and low` is two statements
    elif not any(STAYS.search(says) for says in each.says):
        assert function not in SAME - {"lies_within"}


@pytest.mark.parametrize("name", ["e4-autoencoder", "e4-transformer"])
def test_no_conclusion_of_e4_is_left_out(name: str) -> None:
    one = table(name)
    for clause in clauses_of_e4(one.model):
        rest = clause
        for says in sorted((says for each in one.conclusions for says in each.says), key=len, reverse=True):
            rest = rest.replace(says, " ")
        assert BETWEEN.sub("", rest) == "", clause


@pytest.mark.parametrize(("name", "begin"), [("e3-softmax", "server's node): "), ("e3-alexnet", "Conclusions: ")])
def test_no_conclusion_of_e3_is_left_out(name: str, begin: str) -> None:
    one = table(name)
    rest = words_for("E3", one.model).partition(begin)[2].partition(". ")[0]
    assert rest
    for says in sorted((says for each in one.conclusions for says in each.says), key=len, reverse=True):
        rest = rest.replace(says, " ")
    assert BETWEEN.sub("", rest).strip(";") in ("", ";;"), rest


def test_both_models_of_e4_are_tested_with_the_same_figure_of_time() -> None:
    """Of so many epochs: not an epoch's time for one, and a rate for the other."""
    figures = {
        (name, each.name): each.test["figure"]
        for name in ("e4-autoencoder", "e4-transformer")
        for each in table(name).conclusions
        if each.test and re.search(r"\b(lengthens?|faster|slowest)\b", each.text)
    }
    assert len(figures) >= 5
    assert set(figures.values()) == {"seconds_per_epoch"}


def test_e3s_statistics_are_maxima_on_the_servers_node() -> None:
    resources = re.compile(r"memory|CPU|bandwidth|traffic")
    for each in table("e3-softmax").conclusions:
        if resources.search(each.text) and each.test:
            assert re.fullmatch(r"server_node\.\w+\.max", each.test["figure"]), each.name


def test_what_the_source_contradicts_is_marked_and_not_counted() -> None:
    one = table("e1-scaling")
    (marked,) = (each for each in one.conclusions if each.contradicted)
    assert marked.name == "above-linear"
    assert marked not in one.counted
    assert len(one.counted) == len(one.conclusions) - 1
