"""Layouts: texts and rules, and what does not fit."""

from __future__ import annotations

import pytest

from headway.spec.cluster import MOST_PLACED, MOST_TASKS, Cluster, RoleSettings
from headway.spec.layout import MOST_TEXT, LayoutError, Rule, counts, parse, place


def cluster(ps: int, training: int, evaluator: int = 0) -> Cluster:
    return Cluster(
        chief=RoleSettings(count=1),
        worker=RoleSettings(count=training - 1),
        ps=RoleSettings(count=ps),
        evaluator=RoleSettings(count=evaluator),
    )


def placed(layout: str | Rule, tasks: Cluster) -> str:
    """ps0=p0 worker0=c0+e0 worker1=w0"""
    return " ".join(
        f"{host.name}={'+'.join(f'{task.role[0]}{task.index}' for task in host.tasks)}" for host in place(layout, tasks)
    )


# --- texts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "tasks", "expected"),
    [
        ("PW-W", cluster(1, 2), "worker0=p0+c0 worker1=w0"),
        ("PW-PW", cluster(2, 2), "worker0=p0+c0 worker1=p1+w0"),
        ("PS-W-W", cluster(1, 2), "ps0=p0 worker0=c0 worker1=w0"),
        ("M-PS-W-W", cluster(1, 3), "chief0=c0 ps0=p0 worker0=w0 worker1=w1"),
        ("PS-M-W*", cluster(1, 4), "ps0=p0 chief0=c0 worker0=w0 worker1=w1 worker2=w2"),
        ("M*-PS-W", cluster(1, 2), "chief0=c0 ps0=p0 worker0=w0"),
        ("P-W*2", cluster(1, 2), "ps0=p0 worker0=c0 worker1=w0"),
        ("PSW*", cluster(3, 3), "worker0=p0+c0 worker1=p1+w0 worker2=p2+w1"),
        ("WW", cluster(0, 2), "worker0=c0+w0"),
        ("PS-W*", cluster(1, 1, evaluator=1), "ps0=p0 worker0=c0+e0"),
    ],
)
def test_texts(text: str, tasks: Cluster, expected: str) -> None:
    assert placed(text, tasks) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no node"),
        ("PS--W", "is no node"),
        ("PS-X", "'X' is no node"),
        ("PS-W*0", "is no node"),
        ("S-W", "is no node"),
        ("PS-PS", "has no training task"),
        ("M-M-PS", "has 2 chiefs"),
        ("PS*-W*", "only one node can be repeated"),
    ],
)
def test_texts_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(LayoutError, match=why.replace("*", r"\*")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "tasks", "why"),
    [
        ("PS-W-W", cluster(1, 3), "has 1 server and 2 training tasks, but .* has 1 server and 3 training"),
        ("PS-W-W", cluster(2, 2), "has 1 server and 2 training tasks, but .* has 2 servers and 2 training"),
        ("PSW*", cluster(1, 3), r"repeated 3 times, but the cluster has 1 server and 3 training tasks"),
        ("PS-PS-W*", cluster(1, 3), "has 2 servers and 3 training tasks"),
        ("PS-WWW*", cluster(1, 4), "has 1 server and 3 training tasks with its . repeated 1 times"),
        ("PS-W-W-W*", cluster(1, 1), "has 1 server and 2 training tasks with its . repeated 0 times"),
    ],
)
def test_counts_that_do_not_fit_are_refused_with_the_arithmetic(text: str, tasks: Cluster, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        place(text, tasks)


def test_a_text_without_a_star_gives_the_counts() -> None:
    assert counts("PW-PS-W*2") == {"P": 2, "W": 3}
    assert counts("PS-W*") is None


def test_a_layout_has_a_most_of_letters_and_of_tasks() -> None:
    """As many tasks as the roles may have together, and eight letters for each."""
    parse(f"M-P*{MOST_TASKS}-W*{MOST_TASKS}")
    with pytest.raises(LayoutError, match=f"more than {MOST_PLACED:,} tasks"):
        parse(f"M-P*{MOST_TASKS}-W*{MOST_TASKS}-W")
    parse(f"P*{MOST_PLACED - 1}-W*")  # a star is one task at least
    assert MOST_TEXT == 8 * MOST_PLACED
    parse("W".ljust(MOST_TEXT))
    with pytest.raises(LayoutError, match=f"^layout 'W {{19}}'...: {MOST_TEXT + 1:,} characters; at most"):
        parse("W".ljust(MOST_TEXT + 1))


# --- rules ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rule", "tasks", "expected"),
    [
        (Rule(), cluster(2, 2), "ps0=p0 ps1=p1 worker0=c0 worker1=w0"),
        (Rule(ps_per_node=2, worker_per_node=2), cluster(3, 3), "ps0=p0+p1 ps1=p2 worker0=c0+w0 worker1=w1"),
        (Rule(servers="beside_workers"), cluster(2, 3), "worker0=p0+c0 worker1=p1+w0 worker2=w1"),
        (Rule(servers="beside_workers", ps_per_node=2), cluster(3, 2), "worker0=p0+p1+c0 worker1=p2+w0"),
        (Rule(), cluster(0, 2), "worker0=c0 worker1=w0"),
    ],
)
def test_rules(rule: Rule, tasks: Cluster, expected: str) -> None:
    assert placed(rule, tasks) == expected


def test_servers_that_have_no_room_beside_workers_are_refused_with_the_arithmetic() -> None:
    with pytest.raises(LayoutError, match="3 training tasks at 2 a node have 2 nodes, with room for 2 x 1 = 2 servers"):
        place(Rule(servers="beside_workers", worker_per_node=2), cluster(3, 3))


def test_every_task_is_on_exactly_one_node() -> None:
    for ps in range(1, 6):
        for training in range(1, 9):
            tasks = cluster(ps, training, evaluator=1)
            for rule in (Rule(), Rule(ps_per_node=3, worker_per_node=2), Rule(servers="beside_workers", ps_per_node=5)):
                on_nodes = [task for host in place(rule, tasks) for task in host.tasks]
                assert sorted(on_nodes) == sorted(tasks.tasks())
