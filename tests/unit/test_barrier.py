"""The rules of barrier.py, one by one. All of them at once: test_barrier_histories.py."""

from __future__ import annotations

from headway.engines.tensorflow.barrier import (
    Action,
    Admit,
    Answer,
    Barrier,
    Discard,
    Drain,
    Forget,
    Message,
    Reply,
    Update,
)

JOINED, ARRIVED, LEFT, CLOSED, PAUSED, RESUMED = Message


def barrier(*sizes: int, aggregate: int | None = None, step: int = 0, last_step: int | None = None) -> Barrier:
    return Barrier(sizes, aggregate or len(sizes), step, last_step)


def arrive(of: Barrier, *tasks: int, step: int = 0) -> list[Action]:
    """Each task's gradient of `step`; what the last of them brings about."""
    actions: list[Action] = []
    for task in tasks:
        actions = of.hear(ARRIVED, task, step)
    return actions


def test_messages_and_answers_are_told_apart_by_the_numbers_that_travel() -> None:
    assert len({int(message) for message in (JOINED, ARRIVED, LEFT, CLOSED, PAUSED, RESUMED)}) == 6
    assert len({int(answer) for answer in (Answer.CLOSED, Answer.DROPPED, Answer.ACCEPTED, Answer.WELCOME)}) == 4


# --- an update --------------------------------------------------------------------------------------------------------
def test_an_update_takes_one_gradient_of_every_task_and_then_all_are_told() -> None:
    three = barrier(10, 20, 30, step=7)
    assert three.hear(ARRIVED, 2, 7) == [Admit(2)]
    assert three.hear(ARRIVED, 0, 7) == [Admit(0)]
    assert three.missing == [1]
    assert three.hear(ARRIVED, 1, 7) == [
        Admit(1),
        Update(tasks=(2, 0, 1), examples=60, dropped=()),
        *(Reply(task, Answer.ACCEPTED, 8) for task in range(3)),
    ]
    assert (three.step, three.admitted, three.missing) == (8, [], [0, 1, 2])


def test_the_first_gradients_make_the_update_and_a_late_one_is_dropped_and_counted_once() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    assert arrive(three, 0, 2)[1:] == [
        Update((0, 2), 40, ()),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]
    assert three.hear(ARRIVED, 1, 0) == [Discard(1), Reply(1, Answer.DROPPED, 1)], "it goes on at once"
    assert arrive(three, 1, 2, step=1)[1] == Update((1, 2), 50, dropped=(1,))
    assert three.hear(ARRIVED, 0, 1) == [Discard(0), Reply(0, Answer.DROPPED, 2)]
    assert three.hear(ARRIVED, 0, 0) == [Discard(0), Reply(0, Answer.DROPPED, 2)]
    assert arrive(three, 2, 1, step=2)[1] == Update((2, 1), 50, dropped=(0, 0))
    assert arrive(three, 2, 1, step=3)[1] == Update((2, 1), 50, dropped=())


def test_a_task_alone_updates_with_each_gradient() -> None:
    alone = barrier(10)
    assert alone.hear(ARRIVED, 0, 0) == [Admit(0), Update((0,), 10, ()), Reply(0, Answer.ACCEPTED, 1)]
    assert alone.hear(ARRIVED, 0, 1)[1] == Update((0,), 10, ())


def test_a_gradient_of_a_step_that_is_not_the_present_one_is_never_taken() -> None:
    two = barrier(10, 10, step=5)
    for step in (0, 4, 6):  # 6: of variables that were rolled back since
        assert two.hear(ARRIVED, 0, step) == [Discard(0), Reply(0, Answer.DROPPED, 5)]
    assert two.admitted == []


# --- a task dies ------------------------------------------------------------------------------------------------------
def test_a_task_that_died_after_arriving_counts_once_and_its_second_gradient_is_dropped() -> None:
    two = barrier(10, 20)
    arrive(two, 1)
    assert two.hear(JOINED, 1, 99) == [Drain(1), Reply(1, Answer.WELCOME, 0, echo=99)]
    assert two.hear(ARRIVED, 1, 0) == [Discard(1)], "it is told when there is something to do for it"
    assert two.missing == [0]
    assert two.hear(ARRIVED, 0, 0) == [
        Admit(0),
        Update((1, 0), 30, dropped=(1,)),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(1, Answer.DROPPED, 1),
    ]


def test_what_was_due_to_a_dead_process_is_not_told_to_the_next_one() -> None:
    two = barrier(10, 10)
    arrive(two, 1)
    two.hear(JOINED, 1, 99)
    assert [action for action in arrive(two, 0) if isinstance(action, Reply)] == [Reply(0, Answer.ACCEPTED, 1)]


def test_a_task_that_died_is_waited_for() -> None:
    two = barrier(10, 10)
    two.hear(JOINED, 1, 1)
    two.hear(JOINED, 1, 2)
    arrive(two, 0)
    assert two.missing == [1]
    assert two.step == 0
    assert arrive(two, 1)[1] == Update((0, 1), 20, ())


def test_a_welcome_echoes_the_number_and_tells_the_present_step() -> None:
    two = barrier(10, 10, step=3)
    assert two.hear(JOINED, 0, 17) == [Drain(0), Reply(0, Answer.WELCOME, 3, echo=17)]
    assert two.hear(JOINED, 0, 18) == [Drain(0), Reply(0, Answer.WELCOME, 3, echo=18)], "as often as it asks"


# --- a task leaves ----------------------------------------------------------------------------------------------------
def test_a_task_that_left_is_not_waited_for() -> None:
    three = barrier(10, 20, 30)
    assert three.hear(LEFT, 0) == []
    assert three.missing == [1, 2]
    assert arrive(three, 1, 2)[1] == Update((1, 2), 50, ())


def test_leaving_makes_the_update_that_all_others_wait_for() -> None:
    three = barrier(10, 20, 30)
    arrive(three, 1, 2)
    assert three.hear(LEFT, 0) == [
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]
    assert three.hear(LEFT, 0) == [], "said twice, it changes nothing"
    assert three.hear(LEFT, 1) == []
    assert arrive(three, 2, step=1)[1] == Update((2,), 30, ())


def test_a_backup_that_leaves_changes_nothing_as_long_as_there_are_enough() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    three.hear(LEFT, 0)
    assert arrive(three, 1) == [Admit(1)]
    assert arrive(three, 2)[1] == Update((1, 2), 50, ())
    arrive(three, 1, step=1)
    assert three.hear(LEFT, 2)[0] == Update((1,), 20, ())


def test_a_task_that_left_after_arriving_still_counts_and_nobody_else_is_left_out() -> None:
    """The launcher gives a task up whose gradient is there already. The update takes it, and waits for the living."""
    three = barrier(10, 20, 30)
    arrive(three, 0)
    assert three.hear(LEFT, 0) == []
    assert arrive(three, 1) == [Admit(1)], "task 2 lives: its gradient must not come too late"
    assert three.missing == [2]
    assert arrive(three, 2)[1] == Update((0, 1, 2), 60, ())
    assert arrive(three, 1, 2, step=1)[1] == Update((1, 2), 50, ())


def test_a_task_that_left_and_joins_again_is_waited_for_again() -> None:
    two = barrier(10, 10)
    two.hear(LEFT, 1)
    two.hear(JOINED, 1, 5)
    assert arrive(two, 0) == [Admit(0)]
    assert two.missing == [1]


# --- paused -----------------------------------------------------------------------------------------------------------
def test_paused_gradients_are_admitted_and_the_update_waits_for_the_end_of_the_pause() -> None:
    three = barrier(10, 20, 30, aggregate=2, step=4)
    assert three.hear(PAUSED, 0, 77) == [Reply(0, Answer.WELCOME, 4, echo=77)]
    assert arrive(three, 1, step=4) == [Admit(1)]
    assert arrive(three, 2, step=4) == [Admit(2)]
    assert three.hear(LEFT, 0) == []
    assert three.step == 4
    assert three.hear(RESUMED, 0) == [
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 5),
        Reply(2, Answer.ACCEPTED, 5),
    ]
    assert three.hear(RESUMED, 0) == []


def test_after_a_pause_an_update_has_no_more_gradients_than_it_should() -> None:
    three = barrier(10, 20, 30, aggregate=1)
    three.hear(PAUSED, 0, 77)
    assert arrive(three, 2) == [Admit(2)]
    assert arrive(three, 1) == [Discard(1)], "one too many; there is nothing to do for it before the update"
    assert three.hear(RESUMED, 0) == [
        Update((2,), 30, dropped=(1,)),
        Reply(1, Answer.DROPPED, 1),
        Reply(2, Answer.ACCEPTED, 1),
    ]


def test_a_chief_that_died_in_the_pause_ends_it_by_joining_again() -> None:
    three = barrier(10, 20, 30, aggregate=2)
    three.hear(PAUSED, 0, 77)
    arrive(three, 1, 2)
    assert three.hear(JOINED, 0, 78) == [
        Drain(0),
        Update((1, 2), 50, ()),
        Reply(1, Answer.ACCEPTED, 1),
        Reply(2, Answer.ACCEPTED, 1),
        Reply(0, Answer.WELCOME, 1, echo=78),
    ]
    three.hear(PAUSED, 0, 79)
    assert three.hear(JOINED, 1, 80) == [Drain(1), Reply(1, Answer.WELCOME, 1, echo=80)]
    assert arrive(three, 1, 2, step=1) == [Admit(2)], "another task's joining does not end it"


# --- closed -----------------------------------------------------------------------------------------------------------
def test_closing_tells_everybody_who_waits_and_forgets_their_gradients() -> None:
    three = barrier(10, 10, 10)
    arrive(three, 2)
    three.hear(JOINED, 2, 1)
    arrive(three, 2, 1)  # the second one of task 2 waits too
    assert three.hear(CLOSED, 0) == [Forget((2, 1)), Reply(1, Answer.CLOSED, 0), Reply(2, Answer.CLOSED, 0)]
    assert three.hear(CLOSED, 0) == []
    assert three.step == 0


def test_closed_nobody_updates_and_whoever_comes_is_told() -> None:
    two = barrier(10, 10, step=4)
    assert two.hear(CLOSED, 1) == []
    for step in (3, 4):
        assert two.hear(ARRIVED, 1, step) == [Discard(1), Reply(1, Answer.CLOSED, 4)]
    assert two.hear(JOINED, 1, 8) == [Drain(1), Reply(1, Answer.CLOSED, 4, echo=8)]
    assert two.hear(LEFT, 0) == []
    assert two.step == 4


def test_the_chief_opens_it_again_and_nothing_of_before_is_left() -> None:
    two = barrier(10, 10)
    arrive(two, 1)
    two.hear(CLOSED, 1)
    assert two.hear(JOINED, 0, 3) == [Drain(0), Reply(0, Answer.WELCOME, 0, echo=3)]
    assert two.hear(JOINED, 1, 4) == [Drain(1), Reply(1, Answer.WELCOME, 0, echo=4)]
    assert arrive(two, 0) == [Admit(0)], "the forgotten gradient of task 1 does not count"
    assert arrive(two, 1)[1:] == [
        Update((0, 1), 20, ()),
        Reply(0, Answer.ACCEPTED, 1),
        Reply(1, Answer.ACCEPTED, 1),
    ]


# --- the last step ----------------------------------------------------------------------------------------------------
def test_the_update_that_reaches_the_last_step_is_the_last_one() -> None:
    three = barrier(10, 20, 30, aggregate=2, step=6, last_step=8)
    arrive(three, 0, 1, step=6)
    assert not three.is_closed
    assert arrive(three, 0, 1, step=7)[1:] == [
        Update((0, 1), 30, ()),
        Reply(0, Answer.ACCEPTED, 8),
        Reply(1, Answer.ACCEPTED, 8),
    ]
    for step in (7, 8):  # a backup's, which came too late; and one of a task that does not know the end
        assert three.hear(ARRIVED, 2, step) == [Discard(2), Reply(2, Answer.CLOSED, 8)]
    assert three.hear(JOINED, 2, 5) == [Drain(2), Reply(2, Answer.CLOSED, 8, echo=5)]
    assert three.hear(LEFT, 2) == three.hear(RESUMED, 0) == []
    assert three.step == 8


def test_at_the_last_step_the_chief_is_welcome_to_save_and_opens_nothing() -> None:
    two = barrier(10, 20, last_step=1)
    arrive(two, 0, 1)
    assert two.hear(JOINED, 0, 3) == [Drain(0), Reply(0, Answer.WELCOME, 1, echo=3)]
    assert two.hear(JOINED, 1, 4) == [Drain(1), Reply(1, Answer.CLOSED, 1, echo=4)]
    assert two.hear(ARRIVED, 0, 1) == [Discard(0), Reply(0, Answer.CLOSED, 1)]
    assert two.step == 1


def test_who_waits_to_hear_of_a_dropped_gradient_is_told_by_the_last_update() -> None:
    two = barrier(10, 20, last_step=1)
    arrive(two, 1)
    two.hear(JOINED, 1, 9)
    arrive(two, 1)
    assert arrive(two, 0)[2:] == [Reply(0, Answer.ACCEPTED, 1), Reply(1, Answer.DROPPED, 1)]
    assert two.hear(ARRIVED, 1, 1) == [Discard(1), Reply(1, Answer.CLOSED, 1)]


def test_what_is_restored_at_the_last_step_is_closed_from_the_beginning() -> None:
    two = barrier(10, 20, last_step=8)
    two.begin(8)
    assert two.hear(JOINED, 1, 4) == [Drain(1), Reply(1, Answer.CLOSED, 8, echo=4)]
    assert two.hear(JOINED, 0, 5) == [Drain(0), Reply(0, Answer.WELCOME, 8, echo=5)]
    two.begin(7)  # rolled back
    assert arrive(two, 0, 1, step=7)[1] == Update((0, 1), 30, ())
    assert two.is_closed
