"""Which server holds which variable: a pure function, so everything that must hold is checked on numbers alone."""

from __future__ import annotations

import math
import random

import pytest

from headway.engines.tensorflow.placement import SMALLEST_PART, Declared, How, Part, place

HOWS: tuple[How, ...] = ("round_robin", "greedy", "partitioned")
# The E1 CNN, in the order in which its layers make them.
CNN = [
    Declared("conv1/weights", (5, 5, 1, 32)),
    Declared("conv1/bias", (32,)),
    Declared("conv2/weights", (5, 5, 32, 64)),
    Declared("conv2/bias", (64,)),
    Declared("dense/weights", (3136, 1024)),
    Declared("dense/bias", (1024,)),
    Declared("logits/weights", (1024, 10)),
    Declared("logits/bias", (10,)),
]


def loads(variables: list[Declared], num_servers: int, how: How) -> list[int]:
    """Bytes on each server."""
    found = [0] * num_servers
    parts = place(variables, num_servers, how)
    for each in variables:
        for part in parts[each.name]:
            rows = each.shape[0] if each.shape else 1
            found[part.server] += each.bytes // rows * (part.end - part.begin)
    return found


def servers(variables: list[Declared], num_servers: int, how: How) -> list[int]:
    """The server of each variable, none of which is split."""
    parts = place(variables, num_servers, how)
    assert all(len(parts[each.name]) == 1 for each in variables)
    return [parts[each.name][0].server for each in variables]


def test_the_cnn_has_the_parameters_that_e1_says() -> None:
    assert sum(each.bytes for each in CNN) == 4 * 3_274_634


@pytest.mark.parametrize("num_servers", [1, 2, 3])
def test_round_robin_gives_variables_out_in_turn_in_the_order_in_which_they_were_made(num_servers: int) -> None:
    assert servers(CNN, num_servers, "round_robin") == [number % num_servers for number in range(8)]


@pytest.mark.parametrize("num_servers", [2, 3])
def test_round_robin_is_what_tensorflow_does(num_servers: int) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.device(v1.train.replica_device_setter(ps_tasks=num_servers)):
        made = [v1.get_variable(each.name, each.shape, use_resource=True) for each in CNN]
    assert servers(CNN, num_servers, "round_robin") == [tf.DeviceSpec.from_string(each.device).task for each in made]


def test_round_robin_puts_every_matrix_on_one_of_two_servers() -> None:
    """Why there are other placements."""
    assert loads(CNN, 2, "round_robin") == [4 * (3_274_634 - 1130), 4 * 1130]


def test_greedy_gives_the_largest_variable_left_to_the_emptiest_server() -> None:
    a, b, c, d, e = (Declared(name, (size,)) for name, size in zip("abcde", (30, 100, 80, 20, 5), strict=True))
    assert servers([a, b, c, d, e], 2, "greedy") == [1, 0, 1, 0, 1]  # 100 | 80; 100 | 110; 120 | 110; 120 | 115
    assert servers([b, a, c, e, d], 3, "greedy") == [0, 2, 1, 2, 2]
    twins = [Declared(name, (10,)) for name in "uvwx"]
    assert servers(twins, 2, "greedy") == [0, 1, 0, 1]


def test_greedy_counts_all_bytes_of_variables_of_one_row_and_of_none() -> None:
    row, bias, small = Declared("row", (1, 100)), Declared("bias", (90,)), Declared("small", (10,))
    assert servers([row, bias, small], 2, "greedy") == [0, 1, 1], "400 | 360 bytes, so the third goes to the second"
    one, scalar, two = Declared("one", (1,)), Declared("scalar", ()), Declared("two", (1,))
    assert servers([one, scalar, two], 2, "greedy") == [0, 1, 0], "a scalar weighs as much as a vector of one number"


def test_greedy_leaves_the_cnn_unbalanced() -> None:
    """One dense matrix is 98 % of the bytes: only splitting it helps."""
    assert max(loads(CNN, 2, "greedy")) / sum(loads(CNN, 2, "greedy")) > 0.97


@pytest.mark.parametrize("num_servers", [2, 3])
def test_partitioned_balances_the_cnn_within_a_tenth(num_servers: int) -> None:
    found = loads(CNN, num_servers, "partitioned")
    mean = sum(found) / num_servers
    assert sum(found) == 4 * 3_274_634
    assert max(abs(load - mean) for load in found) < 0.1 * mean
    assert max(found) < 1.1 * min(found)
    parts = place(CNN, num_servers, "partitioned")
    assert sorted(part.server for part in parts["dense/weights"]) == list(range(num_servers))
    assert len(parts["logits/weights"]) == 1, "too small to be worth a message more"


def test_only_what_is_large_trained_and_has_rows_enough_is_split() -> None:
    def num_parts(variable: Declared, num_servers: int = 2) -> int:
        return len(place([variable], num_servers, "partitioned")["v"])

    assert SMALLEST_PART == 65_536
    rows = SMALLEST_PART // 4 // 8  # of 8 columns: one part
    assert num_parts(Declared("v", (2 * rows, 8))) == 2
    assert num_parts(Declared("v", (2 * rows - 1, 8))) == 1
    assert num_parts(Declared("v", (3 * rows, 8)), 3) == 3
    assert num_parts(Declared("v", (2 * rows, 8)), 3) == 1
    assert num_parts(Declared("v", (2 * rows, 8), trainable=False)) == 1
    assert num_parts(Declared("v", (2 * rows, 8), trainable=False, momentum=0.99)) == 1
    assert num_parts(Declared("v", (16 * rows,))) == 1, "a bias"
    assert num_parts(Declared("v", (2, 16 * rows)), 2) == 2
    assert num_parts(Declared("v", (2, 16 * rows)), 3) == 1, "no row for the third server"
    assert num_parts(Declared("v", (2 * rows, 8)), 1) == 1


def test_the_emptiest_server_takes_the_largest_part() -> None:
    parts = place([Declared("odd", (5, 2**16)), Declared("too", (5, 2**15))], 2, "partitioned")
    assert [(part.server, part.end - part.begin) for part in parts["odd"]] == [(1, 2), (0, 3)]
    assert [(part.server, part.end - part.begin) for part in parts["too"]] == [(0, 2), (1, 3)]


def test_scalars_have_a_place_too() -> None:
    for how in HOWS:
        assert place([Declared("scale", ())], 2, how) == {"scale": (Part(0, 0, 1),)}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("num_servers", range(1, 10))
def test_the_parts_of_any_variables_hold_every_row_exactly_once(how: How, num_servers: int) -> None:
    chance = random.Random(num_servers)
    num_split = 0
    for _ in range(60):
        variables = [_any_variable(chance, f"v{number}") for number in range(chance.randint(1, 12))]
        parts = place(variables, num_servers, how)
        assert list(parts) == [each.name for each in variables], "all of them, in their order"
        for each in variables:
            found = parts[each.name]
            rows = each.shape[0] if each.shape else 1
            held = [row for part in found for row in range(part.begin, part.end)]
            assert held == list(range(rows)), "in order, without gap or overlap"
            assert all(part.begin < part.end and 0 <= part.server < num_servers for part in found)
            assert len({part.server for part in found}) == len(found), "two parts of one variable on one server"
            num_split += len(found) > 1
        assert place(variables, num_servers, how) == parts, "every task computes the same"
        _check_balance(variables, num_servers, how)
    assert (num_split > 10) == (how == "partitioned" and num_servers > 1)


def _any_variable(chance: random.Random, name: str) -> Declared:
    shape = [chance.choice((1, 2, 3, 5, 7, 64, 100, 1000, 4097)) for _ in range(chance.randint(0, 4))]
    while math.prod(shape) > 10**7:
        shape.pop()
    return Declared(name, tuple(shape), trainable=chance.random() < 0.8)


def _check_balance(variables: list[Declared], num_servers: int, how: How) -> None:
    """Servers differ by no more than one variable that is whole, and a row of each that is split."""
    if how == "round_robin":
        return
    found, parts = loads(variables, num_servers, how), place(variables, num_servers, how)
    whole = max((each.bytes for each in variables if len(parts[each.name]) == 1), default=0)
    rows = sum(each.bytes // each.shape[0] for each in variables if len(parts[each.name]) > 1)
    assert max(found) - min(found) <= whole + rows
