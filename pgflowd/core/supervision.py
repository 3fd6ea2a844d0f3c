"""
Supervision: what to do when a child is ready, ends, or says nothing, and when we are told to stop.

Each `on_…` takes the tree, an event and the time, and returns the changed tree with the
actions to take, in order. The numbered rules are those of the design page "Supervision"; how
starts and stops follow each other is `core.turn`, reloading is `core.reloading`. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from pgflowd.core.actions import Action, Kill, Parked, Restarting
from pgflowd.core.backoff import restart_delay_s
from pgflowd.core.lifecycle import Phase, State
from pgflowd.core.patience import may_try, patience
from pgflowd.core.tree import Child, Tree
from pgflowd.core.turn import Turn
from pgflowd.core.verdicts import Exit, Kind
from pgflowd.core.waiting import count_waiting, judge_waiting, note_waiting

KEPT_EXITS = 6

Result = tuple[Tree, list[Action]]


def on_ready(tree: Tree, id: str, now: float) -> Result:
    """A child is up."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is not None and child.state is State.STARTING:
        count_waiting(turn)
        turn.change(
            child,
            State.UP,
            settled=True,
            up_since=now,
            heard=now,
            deadline=None,
            waiting_for=None,
        )
        note_waiting(turn)
        turn.settle()
    return turn.result()


def on_heard(tree: Tree, id: str, now: float) -> Result:
    """A child said something, so it lives."""
    child = tree.child(id)
    return (tree.put(replace(child, heard=now)) if child else tree), []


def on_exit(tree: Tree, id: str, exit: Exit, now: float) -> Result:
    """A child has ended, its Unix session is killed, and its pipe is read."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is None or not child.state.is_alive:
        return turn.result()
    count_waiting(turn)
    child = turn.change(child, waiting_for=None)
    note_waiting(turn)
    if child.state in {State.DRAINING, State.STOPPING} or _is_taken_along(tree, child):
        turn.bury(child)
    else:
        _end_unasked(turn, child, exit)
    turn.settle()
    return turn.result()


def on_stop(tree: Tree, now: float, *, drain: bool, within_s: float | None = None) -> Result:
    """We are told to stop. A quick stop overtakes a drain, never the other way round."""
    turn = Turn(tree, now)
    if tree.phase is Phase.ENDED or (tree.phase is Phase.STOPPING and not tree.is_draining):
        return turn.result()
    if tree.phase is not Phase.STOPPING:
        turn.stop_all(0, drain=drain, within_s=within_s)
    elif not drain:
        turn.set(is_draining=False)
    elif tree.drain_s is None and within_s is not None:
        turn.limit_drain(within_s)
    turn.settle()
    return turn.result()


def on_tick(tree: Tree, now: float) -> Result:
    """Time has passed: begin what is due, kill whose patience is over."""
    turn = Turn(tree, now)
    for child in tree.children:
        until, why = patience(tree, child)
        if until is not None and until <= now:
            turn.change(child, killed=why)
            turn.do(Kill(child.id, why))
        elif child.due is not None and child.due <= now:
            _try_again(turn, child)
    if tree.phase not in {Phase.DISCOVERING, Phase.ENDED}:
        turn.settle()
    judge_waiting(turn)
    return turn.result()


def _end_unasked(turn: Turn, child: Child, exit: Exit) -> None:
    """Remember why, unless it only wants a successor; then restart it, park it or give up."""
    if exit.kind is not Kind.REPLACE:
        child = turn.change(child, exits=(*child.exits, exit.reason)[-KEPT_EXITS:])
    if child.spec.is_worker:
        _end_of_worker(turn, child, exit)
    else:
        _end_of_root(turn, child, exit)


def _is_taken_along(tree: Tree, child: Child) -> bool:
    """Whether it ended while its position goes down anyway (rules 17, 30)."""
    if tree.phase is Phase.STOPPING:
        return True
    return tree.phase is Phase.WINDING and child.spec.position >= tree.at


def _end_of_root(turn: Turn, child: Child, exit: Exit) -> None:
    """Listener or sweeper ended unasked (rules 6, 13, 14, 20)."""
    if turn.tree.first and child.state is State.STARTING and not child.restarts:
        child = turn.change(child, State.IDLE, settled=False)
        if exit.kind is Kind.CANNOT:  # it has said why
            turn.stop_all(78)
        else:
            turn.give_up(child, "before the daemon was ready: ")
        return
    policy = turn.tree.policy
    if exit.kind is Kind.REPLACE and child.state is State.UP:
        turn.change(child, State.RESTARTING)
        turn.wind_down(child.spec.position, 0.0)
        return
    budget, allowed = turn.tree.budget.spend(turn.now)
    turn.set(budget=budget)
    child = _renewed(turn, child)
    if not allowed:
        child = turn.change(child, State.IDLE, settled=False)
        turn.give_up(child)
        return
    delay_s = restart_delay_s(child.streak, policy.backoff_min_s, policy.backoff_max_s)
    count = budget.count(turn.now)
    turn.change(child, State.RESTARTING, streak=child.streak + 1, restarts=child.restarts + 1)
    turn.do(Restarting(child.id, exit.reason, count, delay_s))
    turn.wind_down(child.spec.position, delay_s)


def _end_of_worker(turn: Turn, child: Child, exit: Exit) -> None:
    """A worker ended unasked (rules 9, 14, 22 to 25)."""
    if exit.kind is Kind.REPLACE and child.state is State.UP:
        child = turn.change(child, State.RESTARTING, settled=True)
        turn.start(child)
        return
    if exit.kind is Kind.CANNOT:
        _park(turn, child, "definition", exit, retry_s=0)
        return
    budget, allowed = child.budget.spend(turn.now)
    child = _renewed(turn, turn.change(child, budget=budget))
    if not allowed or child.on_trial:
        _park(turn, child, "crashing", exit, retry_s=child.spec.parked_retry_s)
        return
    delay_s = restart_delay_s(child.streak, child.spec.backoff_min_s, child.spec.backoff_max_s)
    child = turn.change(
        child,
        State.RESTARTING,
        settled=True,
        streak=child.streak + 1,
        restarts=child.restarts + 1,
        due=turn.now + delay_s,
    )
    turn.do(Restarting(child.id, exit.reason, child.budget.count(turn.now), delay_s))
    if delay_s == 0:
        turn.start(child)


def _renewed(turn: Turn, child: Child) -> Child:
    """A child that was ready for a whole period begins anew (rule 22)."""
    lived_s = turn.now - child.up_since if child.up_since is not None else 0.0
    if lived_s >= turn.tree.policy.max_period_s:
        return turn.change(child, streak=0, on_trial=False)
    return child


def _park(turn: Turn, child: Child, why: str, exit: Exit, retry_s: float) -> None:
    code = exit.code or ("E412" if why == "crashing" else "E901")
    turn.change(
        child,
        State.PARKED,
        settled=True,
        parked_for=why,
        parked_at=turn.now,
        error=(code, exit.reason),
        due=turn.now + retry_s if retry_s else None,
        deadline=None,
        up_since=None,
    )
    turn.do(Parked(child.id, code, exit.reason))


def _try_again(turn: Turn, child: Child) -> None:
    """Its delay is over, or its time as a parked one (rule 23)."""
    if not may_try(turn.tree, child):
        return
    if child.state is State.PARKED:
        child = turn.change(child, on_trial=True, parked_for=None, error=None)
    turn.start(child)
