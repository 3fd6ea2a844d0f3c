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
from pgflowd.core.tree import Child, Tree
from pgflowd.core.turn import Turn
from pgflowd.core.verdicts import Exit, Kind

KEPT_EXITS = 6
UNREACHABLE = 69

Result = tuple[Tree, list[Action]]


def on_ready(tree: Tree, id: str, now: float) -> Result:
    """A child is up."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is not None and child.state is State.STARTING:
        _count_waiting(turn)
        turn.change(
            child,
            State.UP,
            settled=True,
            up_since=now,
            heard=now,
            deadline=None,
            waiting_for=None,
        )
        _note_waiting(turn)
        turn.settle()
    return turn.result()


def on_heard(tree: Tree, id: str, now: float) -> Result:
    """A child said something, so it lives."""
    child = tree.child(id)
    return (tree.put(replace(child, heard=now)) if child else tree), []


def on_waiting(tree: Tree, id: str, what: str | None, now: float) -> Result:
    """A child waits for the database, so its start's clock stands still; None: it goes on."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is None or child.state is not State.STARTING:
        return turn.result()
    _count_waiting(turn)
    if what and child.waiting_for is None:
        left = max(0.0, (child.deadline or now) - now)
        turn.change(child, waiting_for=what, left_s=left, deadline=None, heard=now)
    elif not what and child.waiting_for is not None:
        turn.change(child, waiting_for=None, deadline=now + child.left_s, heard=now)
    _note_waiting(turn)
    _judge_waiting(turn)
    return turn.result()


def on_exit(tree: Tree, id: str, exit: Exit, now: float) -> Result:
    """A child has ended, its Unix session is killed, and its pipe is read."""
    turn = Turn(tree, now)
    child = tree.child(id)
    if child is None or not child.state.is_alive:
        return turn.result()
    _count_waiting(turn)
    child = turn.change(child, waiting_for=None, exits=(*child.exits, exit.reason)[-KEPT_EXITS:])
    _note_waiting(turn)
    if child.state in {State.DRAINING, State.STOPPING} or _is_taken_along(tree, child):
        turn.bury(child)
    elif child.spec.is_worker:
        _end_of_worker(turn, child, exit)
    else:
        _end_of_root(turn, child, exit)
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
        over = _overdue(turn, child)
        if over:
            turn.change(child, killed=over)
            turn.do(Kill(child.id, over))
        elif child.due is not None and child.due <= now:
            _try_again(turn, child)
    if tree.phase not in {Phase.DISCOVERING, Phase.ENDED}:
        turn.settle()
    _judge_waiting(turn)
    return turn.result()


def next_due(tree: Tree) -> float | None:
    """Return when `on_tick` has something to do next, or None if never."""
    moments = [_patience(tree, child)[0] for child in tree.children]
    moments += [child.due for child in tree.children if _may_try(tree, child)]
    moments.append(tree.due)
    if tree.waiting_since is not None:
        left = tree.policy.startup_wait_s - tree.waited_s
        moments.append(tree.waiting_since + left)
    return min((moment for moment in moments if moment is not None), default=None)


def _is_taken_along(tree: Tree, child: Child) -> bool:
    """Whether it ended while its position goes down anyway (rules 17, 30)."""
    if tree.phase is Phase.STOPPING:
        return True
    return tree.phase is Phase.WINDING and child.spec.position >= tree.at


def _end_of_root(turn: Turn, child: Child, exit: Exit) -> None:
    """Listener or sweeper ended unasked (rules 6, 13, 14, 20)."""
    if turn.tree.first and child.state is State.STARTING and not child.restarts:
        turn.change(child, State.IDLE, settled=False)
        turn.stop_all(78 if exit.kind is Kind.CANNOT else 1)
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


def _may_try(tree: Tree, child: Child) -> bool:
    return child.due is not None and child.spec.position <= tree.free_up_to


def _try_again(turn: Turn, child: Child) -> None:
    """Its delay is over, or its time as a parked one (rule 23)."""
    if not _may_try(turn.tree, child):
        return
    if child.state is State.PARKED:
        child = turn.change(child, on_trial=True, parked_for=None, error=None)
    turn.start(child)


def _patience(tree: Tree, child: Child) -> tuple[float | None, str]:
    """Until when we wait for a child, and what it then is."""
    if not child.state.is_alive or child.killed:
        return None, ""
    silent = child.heard + tree.policy.hang_timeout_s
    if child.state is State.UP or child.waiting_for:
        return silent, f"said nothing for {tree.policy.hang_timeout_s:g} s"
    if child.state is State.STARTING:
        return child.deadline, f"was not ready within {tree.policy.start_timeout_s:g} s"
    if child.state is State.DRAINING and (child.deadline is None or silent < child.deadline):
        return silent, f"said nothing for {tree.policy.hang_timeout_s:g} s"
    return child.deadline, "did not end when asked"


def _overdue(turn: Turn, child: Child) -> str | None:
    until, why = _patience(turn.tree, child)
    return why if until is not None and until <= turn.now else None


def _count_waiting(turn: Turn) -> None:
    """Add the time that the first start has waited for the database so far."""
    tree = turn.tree
    if tree.waiting_since is not None:
        turn.set(waited_s=tree.waited_s + turn.now - tree.waiting_since, waiting_since=None)


def _note_waiting(turn: Turn) -> None:
    tree = turn.tree
    waiting = any(child.waiting_for for child in tree.children)
    starting = tree.first and tree.phase is Phase.STARTING
    turn.set(waiting_since=turn.now if waiting and starting else None)


def _judge_waiting(turn: Turn) -> None:
    """The first start waits at most `startup_wait`, then the exit is 69 (rule 5)."""
    tree = turn.tree
    if tree.waiting_since is None or tree.phase is not Phase.STARTING:
        return
    if tree.waited_s + turn.now - tree.waiting_since >= tree.policy.startup_wait_s:
        turn.set(waiting_since=None)
        turn.stop_all(UNREACHABLE)
        turn.settle()
