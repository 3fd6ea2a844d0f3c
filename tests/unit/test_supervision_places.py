"""The budget of connections, in the supervisor's tree: docs/background/supervision.md, rule 56."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.covers import covers
from support.trees import (
    ASLEEP,
    CRASH,
    REPLACE,
    on_connection,
    on_connections_left,
    on_exit,
    on_falling_asleep,
    on_ready,
    on_tick,
    on_wake,
    ready,
    running,
    starting,
    state_of,
)

from pgflowd.core.documents.daemon_status import problems_of_children
from pgflowd.core.messages import (
    ConnectionGranted,
    ConnectionReturned,
    ConnectionWanted,
    FallingAsleep,
    SleepIfIdle,
    StayingAwake,
)
from pgflowd.core.server_connections import automatic_budget
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.decide import WakeCause, next_due
from pgflowd.core.supervision.transition import SendToChild, StartChild
from pgflowd.core.supervision.tree import ANSWER_S, LONG_S, DaemonPhase

A, B, C, D = (f"worker {slug}" for slug in "abcd")


def started(actions):
    return [each.id for each in actions if isinstance(each, StartChild)]


def asked(actions, what=SleepIfIdle):
    return [e.id for e in actions if isinstance(e, SendToChild) and isinstance(e.how, what)]


def slept(tree, id, now):
    """A worker falls asleep, and is reaped."""
    tree, _ = on_falling_asleep(tree, id, FallingAsleep(30.0), now)
    return on_exit(tree, id, ASLEEP, now)


def with_line(now=1.0):
    """A tree with places for two workers, a and b, in which c waits."""
    tree, _ = ready(starting("a", "b", "c", max_connections=4), "listener", A, B, now=now)
    return tree


@covers("rule 56")
def test_workers_beyond_the_budget_wait_in_line():
    tree, actions = ready(starting("a", "b", "c", "d", max_connections=4), "listener")

    assert started(actions) == [A, B]
    assert [each.id for each in tree.waiting] == [C, D]
    assert tree.taken == 4


@covers("rule 56")
def test_idle_workers_are_asked_and_the_first_in_line_gets_the_place():
    tree, _ = ready(starting("a", "b", "c", "d", max_connections=4), "listener")

    tree, actions = on_ready(tree, A, 1.0)
    assert asked(actions) == [A]
    tree, actions = slept(tree, A, 1.1)

    assert started(actions) == [C]
    assert state_of(tree, A) is ChildState.ASLEEP


@covers("rule 56")
def test_a_worker_with_work_keeps_its_place_and_the_next_is_asked():
    tree = with_line()

    tree, actions = on_connection(tree, A, StayingAwake(), 1.1)
    assert asked(actions) == [B]
    tree, actions = on_connection(tree, B, StayingAwake(), 1.2)
    assert actions == [] and next_due(tree) == pytest.approx(1.7)
    tree, actions = on_tick(tree, 1.75)

    assert asked(actions) == [A], "the one that was not asked for longest"


@covers("rule 56")
def test_a_worker_that_does_not_answer_is_not_waited_for():
    tree = with_line()

    _, actions = on_tick(tree, 1.0 + ANSWER_S)

    assert asked(actions) == [B]


@covers("rule 56")
def test_nobody_is_asked_while_there_are_places():
    tree = running("a", "b", max_connections=9)

    assert tree.to_ask(100.0) == []
    assert tree.ask_at is None


@covers("rule 56")
def test_a_dead_worker_returns_its_places_when_it_is_reaped():
    tree = with_line()

    tree, actions = on_exit(tree, A, CRASH, 2.0)

    assert C in started(actions) or A in started(actions)
    assert tree.taken == 4


@covers("rule 56")
def test_a_successor_waits_like_the_others():
    tree = with_line()
    tree, _ = on_connection(tree, A, StayingAwake(), 1.1)

    tree, actions = on_exit(tree, A, REPLACE, 2.0)

    assert len(started(actions)) == 1 and tree.taken == 4


@covers("rule 56")
def test_a_second_connection_is_granted_while_there_is_a_place_and_no_line():
    tree = running("a", "b", max_connections=5)

    tree, first = on_connection(tree, A, ConnectionWanted(), 1.0)
    tree, second = on_connection(tree, B, ConnectionWanted(), 1.0)
    assert asked(first, ConnectionGranted) == [A] and second == []
    tree, actions = on_connection(tree, A, ConnectionReturned(), 2.0)

    assert asked(actions, ConnectionGranted) == [B]
    assert tree.taken == 5


@covers("rule 56")
def test_first_connections_go_before_second_ones():
    tree = with_line()

    tree, actions = on_connection(tree, A, ConnectionWanted(), 1.2)
    assert asked(actions, ConnectionGranted) == []
    tree, actions = slept(tree, B, 1.3)

    assert started(actions) == [C] and asked(actions, ConnectionGranted) == []


@covers("rule 56")
def test_a_line_that_stands_still_does_not_hold_up_the_start():
    tree = with_line()
    assert tree.phase is DaemonPhase.STARTING
    for id in (A, B):
        tree, _ = on_connection(tree, id, StayingAwake(), 1.1)

    tree, actions = on_tick(tree, 1.0 + LONG_S)

    assert started(actions) == ["sweeper"]
    tree, _ = on_ready(tree, "sweeper", 12.0)
    assert tree.was_ready and state_of(tree, C) is ChildState.IDLE


@covers("rule 56")
def test_who_waits_long_is_a_problem_with_the_number_that_would_do(facts_at):
    tree, _ = ready(with_line(), "sweeper", now=2.0)
    tree, _ = on_tick(tree, 12.0)

    assert problems_of_children(with_line(), facts_at(5.0)) == []
    [problem] = problems_of_children(tree, facts_at(12.0))

    assert problem["code"] == "W320"
    assert problem["text"] == (
        "1 flow waits for a connection, and the daemon has 4 of at most 4: 5 would do"
    )


@pytest.fixture
def facts_at():
    from pgflowd.core.documents.daemon_status import DaemonFacts

    return lambda now: DaemonFacts(UUID(int=1), "t", "app1", "1", 1, 0.0, 0.0, now, now)


@covers("rule 56")
@pytest.mark.parametrize(("left", "most"), [(97, 48), (57, 28), (17, 8), (3, 8), (0, 8)])
def test_without_a_setting_it_is_half_of_what_is_left_and_eight_at_least(left, most):
    tree, _ = on_connections_left(starting("a"), left, 1.0)
    again, _ = on_connections_left(tree, 500, 2.0)

    assert automatic_budget(left) == tree.max_connections == again.max_connections == most


@covers("rule 56")
def test_a_setting_goes_before_what_is_left():
    tree, _ = on_connections_left(starting("a", max_connections=5), 90, 1.0)

    assert tree.max_connections == 5


EVENTS = ("ready", "crash", "sleep", "awake", "wake", "want", "return", "tick")


@covers("rule 56")
@settings(max_examples=300, deadline=None)
@given(
    st.integers(3, 6),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 5), st.floats(0, 3)), max_size=80),
)
def test_no_sequence_of_events_exceeds_the_budget_and_nobody_waits_for_ever(most, life):
    tree, now = starting(*"abcdef", max_connections=most), 0.0
    tree, _ = on_ready(tree, "listener", now)
    for what, number, pause_s in life:
        now += pause_s
        tree, _ = on_tick(tree, now)
        tree = happened(tree, what, f"worker {'abcdef'[number]}", now)
        assert tree.taken <= most
        if tree.waiting:
            assert tree.ask_at is not None and tree.ask_at > now

    for _ in range(200):  # whoever is up has no work: all come to their turn
        up = next((e.id for e in tree.workers if e.state is ChildState.UP), None)
        starts = next((e.id for e in tree.workers if e.state is ChildState.STARTING), None)
        now += 31.0
        tree = happened(tree, "tick", "", now)
        if starts:
            tree, _ = on_ready(tree, starts, now)
        elif up:
            tree, _ = slept(tree, up, now)
    assert tree.phase is DaemonPhase.ENDED or not tree.line


def happened(tree, what, id, now):
    child = tree.child(id)
    state = child.state if child else None
    if what == "tick":
        return on_tick(tree, now)[0]
    if what == "ready" and state is ChildState.STARTING:
        return on_ready(tree, id, now)[0]
    if what == "crash" and state in (ChildState.STARTING, ChildState.UP):
        return on_exit(tree, id, CRASH, now)[0]
    if what == "sleep" and state is ChildState.UP:
        return slept(tree, id, now)[0]
    if what == "awake" and state is ChildState.UP:
        return on_connection(tree, id, StayingAwake(), now)[0]
    if what == "wake":
        return on_wake(tree, id, WakeCause.NOTIFICATION, now)[0]
    if what == "want" and state is ChildState.UP:
        return on_connection(tree, id, ConnectionWanted(), now)[0]
    if what == "return" and state is ChildState.UP:
        return on_connection(tree, id, ConnectionReturned(), now)[0]
    return tree
