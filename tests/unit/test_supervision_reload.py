"""Reload, decided without a process."""

from __future__ import annotations

from dataclasses import replace

from support.covers import covers
from support.trees import (
    CANNOT,
    CRASH,
    ended,
    names,
    on_discovered,
    on_exit,
    on_reload,
    on_reload_refused,
    on_stop,
    on_waiting,
    orders,
    ready,
    restarts_counted,
    running,
    state_of,
    worker,
)

from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import Ref
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.kinds import LISTENER
from pgflowd.core.supervision.reload import (
    BrokenEntry,
    is_over,
    needs_restart,
    reloaded_flows,
    with_policy,
)
from pgflowd.core.supervision.transition import Discover, End, ReportReload
from pgflowd.core.supervision.tree import ChildSpec, DaemonPhase, Policy


def reloaded(tree, *wanted, broken=(), now=1.0):
    tree, asked = on_reload(tree, now)
    assert asked == [Discover()]
    return on_discovered(tree, list(wanted), list(broken), now)


def answer(actions):
    return next(action for action in actions if isinstance(action, ReportReload))


@covers("rule 43")
def test_an_unchanged_flow_is_kept():
    tree = running("a")

    after, actions = reloaded(tree, worker("a"))

    assert actions == [ReportReload(kept=("a",))]
    assert after == tree


@covers("rule 43")
def test_a_changed_flow_is_drained_and_started_anew():
    tree, first = reloaded(running("a", "b"), worker("a", fingerprint="2"), worker("b"))
    tree, second = ended(tree, "worker a")

    assert orders(first) == ["drain worker a"]
    assert answer(first) == ReportReload(kept=("b",), changed=("a",))
    assert orders(second) == ["start worker a"]
    assert tree.child("worker a").spec.fingerprint == "2"


@covers("rule 43")
def test_a_new_flow_is_added_and_one_that_is_gone_is_drained_and_removed():
    tree, first = reloaded(running("a"), worker("b"))
    tree, second = ended(tree, "worker a")

    assert orders(first) == ["drain worker a", "start worker b"]
    assert answer(first) == ReportReload(new=("b",), gone=("a",))
    assert second == []
    assert tree.child("worker a") is None


@covers("rule 43")
def test_a_parked_worker_is_tried_again_with_a_full_budget():
    tree, _ = on_exit(running("a", "b"), "worker a", CANNOT, 0.0)

    tree, actions = reloaded(tree, worker("a"), worker("b"))

    assert orders(actions) == ["start worker a"]
    assert answer(actions) == ReportReload(kept=("b",), retried=("a",))
    assert restarts_counted(tree, 1.0, "worker a") == 0


@covers("rule 43")
def test_a_broken_entry_keeps_its_running_worker():
    tree, actions = reloaded(
        running("a", "b"), worker("b"), broken=[BrokenEntry("flows.a", "E210", "")]
    )

    assert orders(actions) == []
    assert answer(actions) == ReportReload(kept=("b",), broken=("flows.a",))
    assert state_of(tree, "worker a") is ChildState.UP


@covers("rule 43")
def test_a_new_broken_entry_is_parked_under_its_name_until_it_is_mended():
    tree, actions = reloaded(
        running("a"), worker("a"), broken=[BrokenEntry("shop", "E210", "no pandas")]
    )
    parked = tree.child("worker shop")
    assert (parked.state, parked.error.code, parked.error.reason) == (
        ChildState.PARKED,
        "E210",
        "no pandas",
    )

    tree, actions = reloaded(tree, worker("a"), worker("order", entry="shop"))

    assert answer(actions) == ReportReload(kept=("a",), new=("order",))
    assert tree.child("worker shop") is None


@covers("rule 43")
def test_a_flow_that_is_disabled_is_drained_and_stays_in_the_tree():
    tree, _ = reloaded(running("a", "b"), worker("a", enabled=False), worker("b"))
    tree, actions = ended(tree, "worker a")

    assert orders(actions) == []
    assert state_of(tree, "worker a") is ChildState.DISABLED

    tree, actions = reloaded(tree, worker("a"), worker("b"))
    assert answer(actions) == ReportReload(kept=("b",), new=("a",))


@covers("newcomer 18")
def test_the_answer_waits_for_drains_and_starts():
    tree, first = reloaded(running("a", "b"), worker("a", fingerprint="2"), worker("c"))
    report = answer(first)

    def results(tree):
        flows = reloaded_flows(tree, report)
        return {flow.flow: flow.result.value for flow in flows}, is_over(flows)

    assert results(tree) == ({"a": "draining", "b": "draining", "c": "starting"}, False)
    tree, _ = ended(tree, "worker a", "worker b")
    assert results(tree) == ({"a": "starting", "b": "removed", "c": "starting"}, False)
    tree, _ = ended(tree, "worker a", exit=CANNOT)
    tree, _ = on_waiting(tree, "worker c", "database", 1.0)
    assert results(tree) == ({"a": "parked", "b": "removed", "c": "starting"}, True)
    tree, _ = ready(tree, "worker c")
    assert results(tree) == ({"a": "parked", "b": "removed", "c": "started"}, True)
    for _ in range(2):  # the first restart has no delay
        tree, _ = ended(tree, "worker c", exit=CRASH)
    assert results(tree) == ({"a": "parked", "b": "removed", "c": "restarting"}, True)


@covers("newcomer 18")
def test_a_disabled_flow_of_a_broken_entry_has_no_old_code_to_keep():
    disabled = worker("b", enabled=False, entry="shop")
    tree, _ = reloaded(running("a", "b"), worker("a", entry="shop"), disabled)
    tree, _ = ended(tree, "worker a", "worker b")
    tree, _ = ready(tree, "worker a")

    tree, actions = reloaded(tree, broken=[BrokenEntry("shop", "E210", "no pandas")])

    flows = reloaded_flows(tree, answer(actions))
    assert [(flow.flow, flow.result.value) for flow in flows] == [
        ("a", "kept_old"),
        ("b", "disabled"),
    ]


@covers("rule 43")
def test_an_error_in_the_file_changes_nothing():
    tree, _ = on_reload(running("a"), 1.0)

    tree, actions = on_reload_refused(tree, 1.0)

    assert actions == []
    assert tree == running("a")


@covers("rule 45")
def test_a_second_reload_waits_for_the_first():
    tree, _ = reloaded(running("a"), worker("a", fingerprint="2"))

    tree, second = on_reload(tree, 2.0)
    tree, actions = ended(tree, "worker a")

    assert second == []
    assert actions == [*actions[:-1], Discover()]


@covers("rule 45")
def test_a_stop_during_a_reload_goes_first():
    tree, _ = on_reload(running("a"), 1.0)
    tree, _ = on_stop(tree, 1.0, drain=False)

    tree, none = on_discovered(tree, [worker("a"), worker("b")], [], 2.0)
    tree, rest = ended(tree, "sweeper", "worker a", "listener")

    assert none == []
    assert orders(rest) == ["stop worker a", "stop listener"]
    assert rest[-1] == End(0)


@covers("rule 45")
def test_a_stop_while_a_changed_worker_drains_does_not_start_it_anew():
    tree, _ = reloaded(running("a"), worker("a", fingerprint="2"))
    tree, _ = on_stop(tree, 1.0, drain=False)

    tree, actions = ended(tree, "sweeper", "worker a", "listener")

    assert orders(actions) == ["stop worker a", "stop listener"]


def test_a_restart_of_the_group_during_a_reload_starts_the_reloaded_children():
    tree, _ = reloaded(running("a", "b"), worker("a", fingerprint="2"), worker("c"))
    tree, _ = on_exit(tree, "listener", CRASH, 1.0)
    tree, _ = ended(tree, "sweeper", "worker a", "worker b", "worker c", now=1.0)

    tree, actions = ready(tree, "listener", now=1.0)

    assert orders(actions) == ["start worker a", "start worker c"]
    assert tree.phase is DaemonPhase.STARTING


@covers("rule 43")
def test_a_listener_with_other_settings_is_replaced_alone():
    tree, first = reloaded(running("a"), ChildSpec(LISTENER, fingerprint="2"), worker("a"))
    tree, second = ended(tree, "listener", now=1.0)

    assert orders(first) == ["stop listener"]
    assert orders(second) == ["start listener"]
    assert restarts_counted(tree, 1.0) == 0
    assert state_of(tree, "worker a") is ChildState.UP


@covers("rule 43")
def test_the_root_takes_a_new_policy_and_what_is_spent_stays_spent():
    tree, _ = on_exit(running("a"), "sweeper", CRASH, 0.0)

    tree = with_policy(tree, Policy(max_restarts=1, max_period_s=60))
    tree, _ = ready(tree, "sweeper")
    tree, actions = on_exit(tree, "sweeper", CRASH, 1.0)

    assert "supervisor.gave_up" in names(actions)


@covers("rule 44")
def test_database_name_and_control_need_a_restart():
    old = Settings()
    new = replace(
        old,
        database=replace(old.database, url=Ref("postgresql://x"), connect_timeout_s=1.0),
        pgflowd=replace(old.pgflowd, name="shop"),
        supervisor=replace(old.supervisor, control="/x", drain_timeout_s=1.0),
    )

    assert needs_restart(old, new) == [
        "[database] url",
        "[database] connect_timeout",
        "[pgflowd] name",
        "[supervisor] control",
    ]
    assert needs_restart(old, old) == []
