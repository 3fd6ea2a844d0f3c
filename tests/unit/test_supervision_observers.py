"""Observers: they start first, stop last, restart alone, and disturb nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.covers import covers
from support.trees import (
    ASKED,
    CANNOT,
    CRASH,
    before,
    due_of,
    ended,
    names,
    on_begin,
    on_discovered,
    on_exit,
    on_ready,
    on_reload,
    on_stop,
    on_tick,
    orders,
    restarts_counted,
    running,
    singles,
    state_of,
    worker,
)

from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.tree import DaemonPhase

UP, PARKED, RESTARTING = ChildState.UP, ChildState.PARKED, ChildState.RESTARTING
IN_USE = replace(CANNOT, code="E504", reason="127.0.0.1:7461 is in use")


def reloaded(tree, *, observers: bool, mark: str = ""):
    tree, _ = on_reload(tree, 5.0)
    specs = [worker("a"), *singles(observers)]
    specs = [replace(each, fingerprint=mark) if each.is_observer else each for each in specs]
    return on_discovered(tree, specs, [], 5.0)


@covers("rule 50")
def test_an_observer_starts_before_discovery_and_is_waited_for_by_nobody():
    tree, actions = on_begin(before(observers=True), 0.0)
    assert orders(actions) == ["start http"]

    tree, actions = on_discovered(tree, [worker("a")], [], 1.0)
    assert orders(actions) == ["start listener"]

    tree, actions = on_ready(tree, "http", 2.0)
    assert (orders(actions), state_of(tree, "http")) == ([], UP)


@covers("rule 50")
def test_an_observer_stops_after_all_others():
    tree, actions = on_stop(running("a", observers=True), 1.0, drain=True, within_s=60.0)
    assert orders(actions) == ["stop sweeper"]
    for id, then in (("sweeper", "drain worker a"), ("worker a", "stop listener")):
        tree, actions = ended(tree, id, now=2.0)
        assert orders(actions) == [then]

    tree, actions = ended(tree, "listener", now=3.0)
    assert orders(actions) == ["stop http"]
    tree, actions = ended(tree, "http", now=4.0)
    assert names(actions) == ["End"]


@covers("rule 50")
def test_a_stop_before_the_first_discovery_ends_the_observer_too():
    tree, _ = on_begin(before(observers=True), 0.0)

    tree, actions = on_stop(tree, 1.0, drain=True, within_s=60.0)
    assert orders(actions) == ["stop http"]
    tree, actions = ended(tree, "http", now=2.0)

    assert (names(actions), tree.exit_code) == (["End"], 0)


@covers("rule 51")
def test_a_crash_restarts_the_observer_alone_with_growing_delays_and_no_budget():
    tree = running("a", observers=True, max_restarts=0)

    tree, actions = on_exit(tree, "http", CRASH, 1.0)
    assert (orders(actions), restarts_counted(tree, 1.0)) == (["start http"], 0)
    for delay_s in (0.1, 0.2, 0.4, 0.8):
        tree, actions = on_exit(tree, "http", ASKED, 1.0)
        assert (orders(actions), state_of(tree, "http")) == ([], RESTARTING)
        assert due_of(tree, "http") == pytest.approx(1.0 + delay_s)
        tree, actions = on_tick(tree, 1.0 + delay_s)
        assert orders(actions) == ["start http"]

    assert tree.phase is DaemonPhase.RUNNING


@covers("rule 51")
def test_a_restart_of_all_others_leaves_the_observer_alone():
    tree, actions = on_exit(running("a", observers=True), "listener", CRASH, 1.0)
    assert orders(actions) == ["stop sweeper"]
    tree, actions = ended(tree, "sweeper", "worker a", now=2.0)

    assert state_of(tree, "http") is UP
    assert orders(actions) == ["stop worker a", "start listener"]


@covers("rule 51")
def test_while_the_daemon_stops_a_crashed_observer_comes_back_as_long_as_others_are_there():
    tree, _ = on_stop(running("a", observers=True), 1.0, drain=True, within_s=None)

    tree, actions = on_exit(tree, "http", CRASH, 2.0)
    assert orders(actions) == ["start http"]
    tree, _ = on_exit(tree, "http", CRASH, 2.0)
    tree, actions = ended(tree, "sweeper", "worker a", "listener", now=2.01)

    assert (names(actions)[-1], state_of(tree, "http")) == ("End", RESTARTING)


@covers("rule 52")
def test_an_observer_that_cannot_start_is_parked_and_tried_again():
    tree, actions = on_exit(running("a", observers=True), "http", IN_USE, 1.0)
    assert (names(actions), state_of(tree, "http")) == (["child.parked"], PARKED)
    assert (tree.phase, due_of(tree, "http")) == (DaemonPhase.RUNNING, 301.0)

    heard = tuple(replace(each, last_message_at=301.0) for each in tree.children)
    later, actions = on_tick(replace(tree, children=heard), 301.0)
    assert orders(actions) == ["start http"]
    assert state_of(on_exit(later, "http", IN_USE, 302.0)[0], "http") is PARKED

    _, actions = reloaded(tree, observers=True)
    assert orders(actions) == ["start http"]


@covers("rule 52", "rule 53")
def test_a_reload_starts_replaces_and_ends_an_observer():
    tree = running("a")
    assert state_of(tree, "http") is ChildState.DISABLED

    tree, actions = reloaded(tree, observers=True)
    assert orders(actions) == ["start http"]
    tree, _ = on_ready(tree, "http", 6.0)
    tree, actions = reloaded(tree, observers=True, mark="2")
    assert orders(actions) == ["stop http"]
    tree, actions = ended(tree, "http", now=7.0)
    assert orders(actions) == ["start http"]
    tree, _ = on_ready(tree, "http", 8.0)
    tree, actions = reloaded(tree, observers=False, mark="2")
    assert orders(actions) == ["stop http"]
    tree, actions = ended(tree, "http", now=9.0)

    assert (orders(actions), state_of(tree, "http")) == ([], ChildState.DISABLED)
