"""Decisions of the supervisor: each pure rule of docs/background/supervision.md."""

from __future__ import annotations

import pytest
from support.covers import covers
from support.trees import (
    CANNOT,
    CRASH,
    REPLACE,
    before,
    due_of,
    ended,
    names,
    on_discovered,
    on_exit,
    on_message,
    on_stop,
    on_tick,
    on_waiting,
    orders,
    ready,
    records,
    restarts_counted,
    running,
    starting,
    state_of,
    worker,
)

from pgflowd.core.messages import Drain, Failed, Leaving
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.decide import next_due
from pgflowd.core.supervision.kinds import DISCOVERY
from pgflowd.core.supervision.reload import BrokenEntry
from pgflowd.core.supervision.transition import (
    RESTARTED,
    Announce,
    End,
    KillChild,
    LogChild,
    SendToChild,
    StartChild,
)
from pgflowd.core.supervision.tree import (
    MOVES,
    Announcement,
    ChildSpec,
    DaemonPhase,
    ExitKind,
    Policy,
    classify_exit,
    move,
    new_tree,
)
from pgflowd.errors import Bug

PARKED, GAVE_UP = "child.parked", "supervisor.gave_up"

# Start


@covers("rule 1")
def test_two_children_with_one_id_are_refused():
    with pytest.raises(ValueError, match="two children worker a"):
        new_tree(Policy(), [worker("a"), worker("a")])


@covers("rule 1")
def test_another_kind_is_refused():
    with pytest.raises(ValueError, match="no discovery belongs to the tree"):
        ChildSpec(DISCOVERY)


@covers("rule 4")
def test_each_child_starts_after_the_one_before_is_ready_and_the_group_together():
    tree, first = on_discovered(before(), [worker("a"), worker("b")], [], 0)
    tree, second = ready(tree, "listener")
    tree, third = ready(tree, "worker a")
    tree, fourth = ready(tree, "worker b")

    assert orders(first) == ["start listener"]
    assert orders(second) == ["start worker a", "start worker b"]
    assert orders(third) == []
    assert orders(fourth) == ["start sweeper"]


@covers("rule 4")
def test_the_group_is_up_when_a_worker_failed_its_first_start():
    tree, _ = ready(starting("a", "b"), "listener", "worker a")

    _, actions = on_exit(tree, "worker b", CRASH, 1.0)

    assert "start sweeper" in orders(actions)


@covers("rule 5")
def test_a_child_that_is_not_ready_in_time_is_killed_once():
    tree = starting("a", start_timeout_s=60)

    tree, actions = on_tick(tree, 60.0)
    tree, again = on_tick(tree, 61.0)

    assert actions == [KillChild("listener", "was not ready within 60 s")]
    assert again == []


@covers("rule 5")
def test_waiting_for_the_database_stops_the_clock():
    tree = starting("a", start_timeout_s=60, startup_wait_s=1000, hang_timeout_s=200)

    tree, _ = on_waiting(tree, "listener", "database", 50.0)
    tree, _ = on_waiting(tree, "listener", None, 150.0)
    tree, early = on_tick(tree, 159.0)
    tree, late = on_tick(tree, 160.0)

    assert early == []
    assert names(late) == ["KillChild"]


@covers("rule 5")
def test_the_first_start_waits_for_the_database_only_so_long_and_exits_69():
    tree, _ = on_waiting(starting("a", startup_wait_s=300), "listener", "database", 10.0)
    assert next_due(tree) == 70.0  # its silence; the wait ends at 310
    tree, _ = on_message(tree, "listener", 300.0)

    tree, actions = on_tick(tree, 310.0)
    tree, last = ended(tree, "listener", now=311)

    assert orders(actions) == ["stop listener"]
    assert last == [End(69)]


@covers("rule 5")
def test_a_stop_while_the_database_is_waited_for_leaves_nothing_due_again_and_again():
    tree, _ = on_waiting(starting("a", startup_wait_s=5), "listener", "database", 0.0)
    tree, _ = on_stop(tree, 1.0, drain=True, within_s=60)

    tree, _ = on_tick(tree, 5.0)

    assert next_due(tree) > 5.0


@covers("rule 5")
def test_with_no_startup_wait_the_daemon_fails_at_once():
    _, actions = on_waiting(starting("a", startup_wait_s=0), "listener", "database", 1.0)

    assert orders(actions) == ["stop listener"]


@covers("rule 6")
@pytest.mark.parametrize(("exit", "code"), [(CANNOT, 78), (CRASH, 1)])
def test_a_sweeper_that_fails_its_first_start_ends_the_daemon(exit, code):
    tree, _ = ready(starting("a"), "listener", "worker a")

    tree, first = on_exit(tree, "sweeper", exit, 1.0)
    tree, second = ended(tree, "worker a", now=2.0)
    tree, third = ended(tree, "listener", now=3.0)

    assert orders(first) == ["stop worker a"]
    assert orders(second) == ["stop listener"]
    assert third == [End(code)]
    said = [each.fields["reason"] for each in records(first, GAVE_UP)]
    assert said == ([f"before the daemon was ready: {exit.reason}"] if code == 1 else [])


@covers("rule 7")
def test_the_daemon_is_ready_when_its_last_child_is():
    tree, actions = ready(starting("a"), "listener", "worker a")
    assert Announce(Announcement.READY) not in actions

    _, actions = ready(tree, "sweeper")
    assert actions == [Announce(Announcement.READY)]


@covers("rule 7")
def test_it_is_not_ready_before_a_worker_is_up():
    tree, _ = ready(starting("a"), "listener")
    tree, _ = on_exit(tree, "worker a", CRASH, 0.0)

    tree, before_worker = ready(tree, "sweeper")
    tree, after_worker = ready(tree, "worker a")

    assert before_worker == []
    assert after_worker == [Announce(Announcement.READY)]


@covers("rule 7")
@pytest.mark.parametrize(("last", "code"), [(CANNOT, 78), (CRASH, 1)])
def test_a_first_start_that_ends_with_every_worker_parked_is_final(last, code):
    tree = on_discovered(before(), [worker("a"), worker("b", max_restarts=0)], [], 0)[0]
    tree, _ = ready(tree, "listener")
    tree, _ = on_exit(tree, "worker a", CANNOT, 0)

    tree, _ = on_exit(tree, "worker b", last, 0)
    tree, _ = ended(tree, "sweeper")
    tree, actions = ended(tree, "listener")

    assert actions == [End(code)]


@covers("rule 7")
def test_nothing_is_started_when_no_entry_can_be_served():
    _, actions = on_discovered(before(), [], [BrokenEntry("shop", "E210", "no pandas")], 0)

    assert orders(actions) == []
    assert actions[-1] == End(78)


# Exits


@covers("rule 9")
def test_an_unrequested_exit_with_0_is_a_crash():
    assert classify_exit(0, None).kind is ExitKind.CRASH


@covers("rule 9")
@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (10, Leaving("deprecated"), ExitKind.REPLACE),
        (10, None, ExitKind.CRASH),
        (78, Failed("E306", "x"), ExitKind.CANNOT_START),
        (78, None, ExitKind.CRASH),
        (78, Leaving("x"), ExitKind.CRASH),
        (70, Failed("E901", "x"), ExitKind.CRASH),
        (-9, None, ExitKind.CRASH),
        (1, None, ExitKind.CRASH),
    ],
)
def test_only_10_and_78_differ_and_only_with_their_message(status, said, kind):
    assert classify_exit(status, said).kind is kind


def test_the_text_of_a_crash_names_signal_or_exit_code():
    assert classify_exit(-9, None).reason == "killed by SIGKILL, perhaps out of memory"
    assert classify_exit(3, None).reason == "exit code 3"
    assert (
        classify_exit(-9, None, kill_reason="said nothing for 60 s").reason
        == "said nothing for 60 s"
    )


@covers("rule 10")
def test_the_exit_of_an_unknown_child_is_ignored():
    tree = running("a")

    assert on_exit(tree, "worker z", CRASH, 1.0) == (tree, [])


@covers("rule 13")
def test_a_crash_restarts_the_child_and_everything_started_after_it():
    tree = running("a", "b")

    tree, down = on_exit(tree, "listener", CRASH, 100.0)
    assert orders(down) == ["stop sweeper"]  # last started, first stopped
    tree, down = ended(tree, "sweeper", now=100)
    assert orders(down) == ["stop worker a", "stop worker b"]
    tree, none = ended(tree, "worker a", now=100)
    assert orders(none) == []  # all are stopped before the first is started
    tree, up = ended(tree, "worker b", now=100)
    assert orders(up) == ["start listener"]
    tree, up = ready(tree, "listener", now=100)
    assert orders(up) == ["start worker a", "start worker b"]
    tree, up = ready(tree, "worker a", "worker b", now=100)
    assert orders(up) == ["start sweeper"]


@covers("rule 14")
@pytest.mark.parametrize("id", ["sweeper", "worker a"])
def test_sweeper_and_worker_restart_alone(id):
    tree, actions = on_exit(running("a", "b"), id, CRASH, 1.0)

    assert orders(actions) == [f"start {id}"]
    assert sum(child.state is ChildState.UP for child in tree.children) == 3


@covers("rule 15")
def test_a_stop_for_a_restart_is_quick_and_limited():
    tree, _ = on_exit(running("a"), "listener", CRASH, 0.0)
    tree, _ = ended(tree, "sweeper")

    tree, early = on_tick(tree, 6.9)
    tree, late = on_tick(tree, 7.0)

    assert early == []
    assert late == [KillChild("worker a", "did not end when asked")]


@covers("rule 16")
def test_a_restart_of_many_counts_once_for_the_root_and_never_for_a_worker():
    tree, _ = on_exit(running("a", "b"), "listener", CRASH, 0.0)
    tree, _ = ended(tree, "sweeper", "worker a", "worker b")

    assert restarts_counted(tree, 0) == 1
    assert all(restarts_counted(tree, 0, child.id) == 0 for child in tree.workers)


@covers("rule 16")
def test_an_exit_that_was_asked_for_is_not_why_a_worker_was_restarted():
    tree, _ = on_exit(running("a"), "worker a", CRASH, 0.0)
    tree, _ = ready(tree, "worker a", now=0.1)
    tree, _ = on_exit(tree, "listener", CRASH, 0.2)
    tree, _ = ended(tree, "sweeper", "worker a", now=0.3)

    assert tree.child("worker a").exits == ("killed by SIGKILL",)


@covers("rule 17")
def test_the_earlier_handled_first_takes_the_later_along():
    tree, _ = on_exit(running("a"), "listener", CRASH, 0.0)
    tree, _ = on_exit(tree, "sweeper", CRASH, 0.0)

    assert restarts_counted(tree, 0) == 1


@covers("rule 17")
def test_the_later_handled_first_counts_two_and_each_ends_with_one_process():
    tree, one = on_exit(running("a"), "sweeper", CRASH, 0.0)
    tree, two = on_exit(tree, "listener", CRASH, 0.0)
    tree, three = ended(tree, "sweeper")
    tree, four = ended(tree, "worker a")
    tree, five = ready(tree, "listener", "worker a", "sweeper", now=1)

    assert restarts_counted(tree, 0) == 2
    done = orders(one + two + three + four + five)
    assert done == [
        "start sweeper",
        "stop sweeper",
        "stop worker a",
        "start listener",
        "start worker a",
        "start sweeper",
    ]


@covers("rule 18")
def test_only_the_child_that_fails_to_come_back_is_tried_again():
    tree, _ = on_exit(running("a"), "listener", CRASH, 0.0)
    tree, _ = ended(tree, "sweeper", "worker a")
    tree, _ = ready(tree, "listener", "worker a")

    tree, actions = on_exit(tree, "sweeper", CRASH, 0.0)

    assert orders(actions) == ["start sweeper"]
    assert state_of(tree, "listener") is ChildState.UP
    assert state_of(tree, "worker a") is ChildState.UP


@covers("rule 19")
def test_parked_workers_stay_parked_through_a_restart_of_the_group():
    tree, _ = on_exit(running("a", "b"), "worker b", CANNOT, 0.0)
    tree, _ = on_exit(tree, "listener", CRASH, 0.0)
    tree, _ = ended(tree, "sweeper", "worker a")

    tree, actions = ready(tree, "listener")

    assert orders(actions) == ["start worker a"]
    assert state_of(tree, "worker b") is ChildState.PARKED


# Budgets


def crash_until_it_ends(tree, id, times, step):
    now, done = 0.0, []
    for _ in range(times):
        now += step
        tree, actions = on_exit(tree, id, CRASH, now)
        done += actions
        tree, actions = on_tick(tree, now + 30)
        tree, _ = ready(tree, id, now=now)
    return tree, done


@covers("rule 20")
def test_the_21st_restart_of_the_root_within_the_period_gives_up():
    tree, actions = crash_until_it_ends(running("a", hang_timeout_s=1e6), "sweeper", 21, 0.1)

    assert names(actions).count(RESTARTED) == 20
    assert tree.phase is DaemonPhase.STOPPING


@covers("rule 21")
def test_as_many_crashes_spread_over_more_than_the_period_are_forgiven():
    tree, actions = crash_until_it_ends(running("a", hang_timeout_s=1e6), "sweeper", 60, 3.1)

    assert names(actions).count(RESTARTED) == 60
    assert tree.phase is DaemonPhase.RUNNING


@covers("rule 22")
def test_delays_grow_and_a_child_that_was_ready_for_a_period_begins_anew():
    tree, now, delays = running("a", hang_timeout_s=1e9), 0.0, []
    for lived in (1, 1, 1, 61, 1):
        now += lived
        tree, actions = on_exit(tree, "worker a", CRASH, now)
        delays += [each.fields["delay_s"] for each in records(actions, RESTARTED)]
        tree, _ = on_tick(tree, now + delays[-1])
        now += delays[-1]
        tree, _ = ready(tree, "worker a", now=now)

    assert delays == [0.0, 0.1, 0.2, 0.0, 0.1]


@covers("rule 22")
def test_a_child_that_waits_is_shown_as_restarting_and_a_stop_cancels_the_wait():
    tree, _ = on_exit(running("a"), "sweeper", CRASH, 0.0)
    tree, _ = ready(tree, "sweeper")
    tree, actions = on_exit(tree, "sweeper", CRASH, 0.0)
    assert orders(actions) == []
    assert state_of(tree, "sweeper") is ChildState.RESTARTING
    assert next_due(tree) == pytest.approx(0.1)

    tree, actions = on_stop(tree, 0.05, drain=True, within_s=60)
    tree, rest = ended(tree, "worker a", "listener")

    assert orders(actions + rest) == ["drain worker a", "stop listener"]


@covers("rule 23", "E412")
def test_the_sixth_crash_parks_a_worker_with_its_last_exits():
    tree = running("a", "b")
    tree, actions = crash_until_it_ends(tree, "worker a", 6, 0.1)

    child = tree.child("worker a")
    assert child.state is ChildState.PARKED
    assert len(child.exits) == 6
    assert records(actions, PARKED)[-1].fields == {"code": "E412", "error": CRASH.text}


@covers("rule 23")
def test_a_parked_worker_is_tried_once_in_five_minutes():
    tree, _ = crash_until_it_ends(running("a", "b", hang_timeout_s=1e6), "worker a", 6, 0.1)
    due = due_of(tree, "worker a")

    tree, early = on_tick(tree, due - 1)
    tree, retry = on_tick(tree, due)
    tree, again = on_exit(tree, "worker a", CRASH, due + 1)

    assert orders(early) == []
    assert orders(retry) == ["start worker a"]
    assert names(again) == [PARKED]
    assert due_of(tree, "worker a") == due + 1 + 300


@covers("rule 24")
def test_a_worker_that_cannot_start_is_parked_at_once_until_a_reload():
    tree, actions = on_exit(running("a", "b"), "worker a", CANNOT, 0.0)

    fields = {"code": CANNOT.code, "error": CANNOT.text}
    assert actions == [LogChild("error", PARKED, "worker a", fields)]
    assert due_of(tree, "worker a") is None
    assert state_of(tree, "worker b") is ChildState.UP


@covers("rule 25")
def test_a_worker_that_asks_to_be_replaced_costs_nothing():
    tree, actions = on_exit(running("a"), "worker a", REPLACE, 0.0)

    assert actions == [StartChild("worker a")]
    assert restarts_counted(tree, 0, "worker a") == 0


@covers("rule 25")
def test_one_that_leaves_before_it_was_ready_is_a_crash():
    tree, _ = ready(starting("a", "b"), "listener")

    tree, _ = on_exit(tree, "worker a", REPLACE, 0.0)

    assert restarts_counted(tree, 0, "worker a") == 1


@covers("rule 26")
def test_with_no_worker_left_and_one_parked_for_crashing_the_daemon_gives_up():
    tree, _ = on_exit(running("a", "b"), "worker b", CANNOT, 0.0)

    tree, actions = crash_until_it_ends(tree, "worker a", 6, 0.1)
    tree, rest = ended(tree, "sweeper", "listener")

    assert [each.id for each in records(actions, GAVE_UP)] == ["worker a"]
    assert rest[-1] == End(1)


@covers("rule 26")
def test_with_all_parked_for_their_definition_it_stays():
    tree, _ = on_exit(running("a"), "worker a", CANNOT, 0.0)

    assert tree.phase is DaemonPhase.RUNNING


@covers("rule 27")
def test_giving_up_stops_the_others_in_reverse_and_exits_1():
    tree, actions = on_exit(running("a", max_restarts=0), "listener", CRASH, 5.0)
    tree, two = ended(tree, "sweeper")
    tree, three = ended(tree, "worker a")

    assert names(actions)[0] == GAVE_UP
    assert orders(actions + two + three) == ["stop sweeper", "stop worker a"]
    assert three[-1] == End(1)


# Stop


@covers("rule 28")
def test_a_stop_goes_in_reverse_order_and_the_group_together():
    tree, one = on_stop(running("a", "b"), 0.0, drain=True, within_s=60)
    tree, two = ended(tree, "sweeper")
    tree, none = ended(tree, "worker b")
    tree, three = ended(tree, "worker a")
    tree, four = ended(tree, "listener")

    assert orders(one) == ["stop sweeper"]
    assert orders(two) == ["drain worker a", "drain worker b"]
    assert orders(none) == []
    assert orders(three) == ["stop listener"]
    assert four == [End(0)]


@covers("rule 29")
def test_a_drain_is_limited_by_drain_timeout_and_kill_grace():
    tree, _ = on_stop(running("a", hang_timeout_s=1e6), 0.0, drain=True, within_s=60)
    tree, _ = ended(tree, "sweeper")

    assert on_tick(tree, 66.9)[1] == []
    assert names(on_tick(tree, 67.0)[1]) == ["KillChild"]


@covers("rule 30")
def test_a_child_that_ends_by_itself_during_the_stop_is_not_restarted():
    tree, _ = on_stop(running("a", "b"), 0.0, drain=True, within_s=60)

    tree, dies = on_exit(tree, "worker a", CRASH, 0.1)
    tree, rest = ended(tree, "sweeper", "worker b", "listener")

    assert orders(dies) == []
    assert orders(rest) == ["drain worker b", "stop listener"]


@covers("rule 32")
def test_a_quick_stop_overtakes_a_drain():
    tree, _ = on_stop(running("a"), 0.0, drain=True, within_s=60)
    tree, _ = ended(tree, "sweeper")

    tree, actions = on_stop(tree, 1.0, drain=False)

    assert orders(actions) == ["stop worker a"]
    assert names(on_tick(tree, 8.0)[1]) == ["KillChild"]


@covers("rule 32")
def test_a_drain_does_not_slow_down_a_quick_stop():
    tree, _ = on_stop(running("a"), 0.0, drain=False)

    assert on_stop(tree, 1.0, drain=True, within_s=60) == (tree, [])


@covers("rule 32")
def test_a_drain_by_command_has_no_limit_until_a_signal_gives_it_one():
    tree, _ = on_stop(running("a", hang_timeout_s=1e6), 0.0, drain=True)
    tree, _ = ended(tree, "sweeper")
    assert on_tick(tree, 5000.0)[1] == []

    tree, actions = on_stop(tree, 6000.0, drain=True, within_s=60)

    assert actions == [SendToChild("worker a", Drain(60))]


@covers("rule 2")
def test_a_stop_during_the_start_starts_nothing_more():
    tree, actions = on_stop(starting("a", startup_wait_s=100), 0.0, drain=True, within_s=60)
    tree, rest = ended(tree, "listener")

    assert orders(actions) == ["stop listener"]
    assert rest == [End(0)]
    assert next_due(on_stop(starting("a"), 0.0, drain=True)[0]) <= 1.0


@covers("rule 2")
def test_a_stop_during_discovery_ends_at_once():
    assert on_stop(before(), 0.0, drain=True)[1][-1] == End(0)


@covers("rule 42")
def test_a_silent_child_is_killed():
    tree = running("a", hang_timeout_s=60)
    for id in ("listener", "sweeper"):
        tree, _ = on_message(tree, id, 59.0)

    tree, actions = on_tick(tree, 60.0)

    assert actions == [KillChild("worker a", "said nothing for 60 s")]


@covers("rule 42")
def test_a_child_that_says_that_it_waits_for_the_database_is_not_silent():
    tree = running("a", hang_timeout_s=60)
    for id in ("listener", "sweeper"):
        tree, _ = on_waiting(tree, id, "database", 59.0)

    tree, actions = on_tick(tree, 60.0)

    assert actions == [KillChild("worker a", "said nothing for 60 s")]


# The table of moves


@covers("E902")
def test_a_move_that_the_table_lacks_is_refused():
    with pytest.raises(Bug, match="E902"):
        move(ChildState.IDLE, ChildState.UP)


def test_every_state_has_its_moves():
    assert set(MOVES) == set(ChildState)
