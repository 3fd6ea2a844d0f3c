"""Workers that sleep, in the supervisor's tree: docs/background/supervision.md, rules 54 and 55."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.covers import covers
from support.trees import (
    ASLEEP,
    CRASH,
    ended,
    names,
    on_discovered,
    on_exit,
    on_falling_asleep,
    on_next_due,
    on_ready,
    on_reload,
    on_stop,
    on_tick,
    on_wake,
    orders,
    ready,
    records,
    restarts_counted,
    running,
    sleeping,
    starting,
    state_of,
    worker,
)

from pgflowd.core.documents.daemon_status import state_of as daemon_state
from pgflowd.core.messages import FallingAsleep
from pgflowd.core.statuses import ChildState, DaemonState
from pgflowd.core.supervision.decide import WakeCause, next_due
from pgflowd.core.supervision.reload import BrokenEntry, ReloadResult, reloaded_flows
from pgflowd.core.supervision.transition import MAX_STARTING
from pgflowd.core.supervision.tree import ExitKind, classify_exit

ID = "worker a"
HOUR_S = 3600.0


def falling(tree, id=ID, now=1.0, due_at=None):
    return on_falling_asleep(tree, id, FallingAsleep(30.0, due_at), now)[0]


def woken(tree, id=ID, now=2.0):
    return on_wake(tree, id, WakeCause.NOTIFICATION, now)


def reloaded(tree, specs, broken=()):
    tree, _ = on_reload(tree, 3.0)
    return on_discovered(tree, specs, broken, 3.0)


@covers("rule 54")
def test_a_worker_that_said_so_and_exits_11_sleeps_and_costs_no_restart():
    tree, actions = on_exit(falling(running("a")), ID, ASLEEP, 2.0)

    assert state_of(tree, ID) is ChildState.ASLEEP
    assert actions == []
    assert restarts_counted(tree, 2.0, ID) == 0
    assert tree.child(ID).exits == ()
    assert next_due(tree) == 60.0  # of listener and sweeper


@covers("rule 54")
def test_an_exit_11_counts_only_after_its_message():
    assert classify_exit(11, FallingAsleep(30.0)).kind is ExitKind.ASLEEP
    assert classify_exit(11, None).kind is ExitKind.CRASH
    assert classify_exit(-9, FallingAsleep(30.0)).kind is ExitKind.CRASH
    assert classify_exit(1, FallingAsleep(30.0)).kind is ExitKind.CRASH


@covers("rule 54")
def test_a_worker_that_is_killed_while_it_falls_asleep_is_restarted():
    tree, actions = on_exit(falling(running("a")), ID, CRASH, 2.0)

    assert orders(actions) == [f"start {ID}"]
    assert restarts_counted(tree, 2.0, ID) == 1
    assert tree.child(ID).sleep is None


@covers("rule 55")
def test_a_wake_starts_a_sleeping_worker():
    tree, actions = woken(sleeping("a"))

    assert records(actions, "child.woken")[0].fields == {"reason": WakeCause.NOTIFICATION}
    assert orders(actions) == [f"start {ID}"]
    assert daemon_state(tree) is DaemonState.HEALTHY


@covers("rule 55")
def test_a_wake_while_a_worker_falls_asleep_is_noted_and_starts_it_when_it_has_ended():
    tree, before = woken(falling(running("a")))
    tree, after = on_exit(tree, ID, ASLEEP, 3.0)

    assert orders(before) == []
    assert orders(after) == [f"start {ID}"]


def test_a_wake_before_it_falls_asleep_is_the_matter_of_the_worker():
    tree, _ = woken(running("a"), now=0.5)
    tree, actions = on_exit(falling(tree), ID, ASLEEP, 3.0)

    assert orders(actions) == []


@covers("rule 55")
def test_a_sleeping_worker_starts_when_its_next_message_is_due():
    tree = sleeping("a", due_at=40.0)

    tree, early = on_tick(tree, 39.9)
    assert next_due(tree) == 40.0
    tree, late = on_tick(tree, 40.0)

    assert orders(early) == []
    assert records(late, "child.woken")[0].fields == {"reason": WakeCause.DUE}
    assert orders(late) == [f"start {ID}"]


@covers("rule 55")
def test_the_sweeper_knows_better_when_the_next_message_is_due():
    tree, _ = on_next_due(sleeping("a", due_at=500.0), ID, 40.0, 1.0)

    assert next_due(tree) == 40.0


@covers("rule 55")
def test_a_reload_starts_a_sleeping_flow_that_changed_and_no_other():
    tree = sleeping("a", "b")

    tree, actions = reloaded(tree, [worker("a", fingerprint="2"), worker("b")])

    assert orders(actions) == [f"start {ID}"]
    assert state_of(tree, "worker b") is ChildState.ASLEEP
    results = {flow.flow: flow.result for flow in reloaded_flows(tree, actions[0])}
    assert results == {"a": ReloadResult.STARTING, "b": ReloadResult.UNCHANGED}


def test_a_reload_removes_a_sleeping_flow_that_is_gone():
    tree, actions = reloaded(sleeping("a", "b"), [worker("b")])

    assert tree.child(ID) is None
    assert orders(actions) == []


@covers("rule 43")
def test_a_reload_parks_a_sleeping_flow_whose_code_is_broken():
    tree, actions = reloaded(
        sleeping("a", "b"), [worker("b")], [BrokenEntry("flows.a", "E210", "no pandas")]
    )

    assert state_of(tree, ID) is ChildState.PARKED
    assert names(actions) == ["child.parked", "ReportReload"]
    results = {flow.flow: flow.result for flow in reloaded_flows(tree, actions[1])}
    assert results == {"a": ReloadResult.PARKED, "b": ReloadResult.UNCHANGED}


@covers("rule 28")
@pytest.mark.parametrize("drain", [True, False])
def test_a_stop_waits_for_no_sleeping_worker_and_wakes_none(drain):
    tree, actions = on_stop(sleeping("a", due_at=5.0), 1.0, drain=drain, within_s=60)
    tree, _ = ended(tree, "sweeper", now=2.0)
    tree, nothing = woken(tree)
    tree, _ = on_tick(tree, 6.0)
    tree, last = ended(tree, "listener", now=7.0)

    assert orders(actions) == ["stop sweeper"]
    assert orders(nothing) == []
    assert names(last) == ["End"]


def test_a_stop_while_a_worker_falls_asleep_goes_first():
    tree, _ = on_stop(falling(running("a")), 2.0, drain=True, within_s=60)
    tree, _ = ended(tree, "sweeper", now=3.0)
    tree, actions = on_exit(tree, ID, ASLEEP, 4.0)

    assert state_of(tree, ID) is ChildState.IDLE
    assert orders(actions) == ["stop listener"]


@covers("rule 19")
def test_sleeping_workers_sleep_through_a_restart_of_the_group():
    tree, _ = on_exit(sleeping("a", "b"), "listener", CRASH, 1.0)
    tree, _ = ended(tree, "sweeper", now=1.0)
    tree, _ = woken(tree, "worker b")
    tree, actions = ready(tree, "listener", now=2.0)

    assert orders(actions) == ["start worker b", "start sweeper"]
    assert state_of(tree, ID) is ChildState.ASLEEP


@covers("rule 7")
def test_the_daemon_is_ready_when_its_only_worker_sleeps_already():
    tree, _ = ready(starting("a"), "listener", ID)
    tree, _ = on_exit(falling(tree), ID, ASLEEP, 2.0)

    tree, actions = ready(tree, "sweeper", now=3.0)

    assert "Announce" in names(actions)
    assert daemon_state(tree) is DaemonState.HEALTHY


@covers("rule 26")
def test_a_sleeping_worker_counts_as_up_when_the_other_is_parked_for_crashing():
    tree = sleeping("b", max_period_s=60)
    tree, _ = reloaded(tree, [worker("b"), worker("a", max_restarts=0, fingerprint="2")])
    tree, _ = ready(tree, ID, now=3.0)

    tree, actions = on_exit(tree, ID, CRASH, 4.0)

    assert state_of(tree, ID) is ChildState.PARKED
    assert orders(actions) == []
    assert tree.exit_code == 0


@covers("rule 4")
def test_workers_start_and_wake_a_few_at_a_time():
    slugs = [f"f{n:02}" for n in range(3 * MAX_STARTING)]
    tree, first = ready(starting(*slugs), "listener")
    tree, then = ready(tree, "worker f00")
    asleep = sleeping(*slugs)
    for slug in slugs:
        asleep, _ = woken(asleep, f"worker {slug}")

    assert len(orders(first)) == MAX_STARTING
    assert orders(then) == [f"start worker f{MAX_STARTING:02}"]
    states = [each.state for each in asleep.workers]
    assert states.count(ChildState.STARTING) == MAX_STARTING
    assert ChildState.ASLEEP not in states
    assert daemon_state(asleep) is DaemonState.HEALTHY


def test_the_delays_of_restarts_begin_anew_after_a_long_life():
    tree = running("a")
    tree, _ = on_exit(tree, ID, CRASH, 1.0)
    tree, _ = ready(tree, ID, now=2.0)
    tree, _ = on_exit(falling(tree, now=70.0), ID, ASLEEP, 71.0)

    assert tree.child(ID).restarts_in_row == 0


def test_a_day_with_one_start_an_hour_costs_a_day_of_sleep_and_no_restart():
    """Virtual time: each hour a notification; the worker is idle after a second, and sleeps."""
    tree, now, starts, awake_s = sleeping("a"), 0.0, 0, 0.0
    for _ in range(24):
        now += HOUR_S
        tree = replace(tree, children=tuple(replace(c, last_message_at=now) for c in tree.children))
        tree, _ = on_tick(tree, now)
        assert state_of(tree, ID) is ChildState.ASLEEP
        tree, actions = woken(tree, now=now)
        starts += orders(actions) == [f"start {ID}"]
        tree, _ = on_ready(tree, ID, now + 1)
        tree = falling(tree, now=now + 301)
        tree, _ = on_exit(tree, ID, ASLEEP, now + 302)
        awake_s += 302

    assert starts == 24
    assert restarts_counted(tree, now, ID) == 0
    assert (tree.child(ID).restarts, tree.child(ID).exits) == (0, ())
    assert awake_s < 24 * HOUR_S / 10
