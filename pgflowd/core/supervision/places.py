"""
The budget of connections: which worker may have one, and which is asked for its own.

A *place* is the right to one connection. Listener, sweeper and exporter always have theirs. A
worker has one from its start until it is reaped, and a second one while it has long work. Workers
that find no place wait in line, first come first served. Meanwhile the workers that are up are
asked for theirs, some at once: one without work falls asleep, one with work gives its second
connection back and says that it stays awake (docs/background/supervision.md, rule 56). Pure.
"""

from __future__ import annotations

from math import inf

from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.kinds import EXPORTER
from pgflowd.core.supervision.tree import ChildEntry, DaemonPhase, Tree

SINGLES = 2  # listener and sweeper
MAX_ASKED = 8  # workers that are asked for their places at once: as many as may start at once
ASK_AGAIN_S = 0.5  # a worker that stayed awake, so that a place is free within a second
ANSWER_S = 2.0  # a worker that has not answered by then is not waited for
LONG_S = 10.0  # to wait in line for so long is a problem


def taken(tree: Tree) -> int:
    """How many connections the daemon has, or may open at any time."""
    exports = any(each.spec.kind is EXPORTER and each.spec.enabled for each in tree.observers)
    of_workers = sum(1 + each.has_second for each in tree.workers if each.state.is_alive)
    return SINGLES + exports + of_workers


def is_free(tree: Tree) -> bool:
    """Whether one more connection may be opened; always, as long as the budget is not known."""
    return tree.max_connections is None or taken(tree) < tree.max_connections


def line(tree: Tree) -> list[ChildEntry]:
    """The workers that would start now, in the order in which they came."""
    idle = [each for each in tree.workers if each.state is ChildState.IDLE]
    waiting = [each for each in idle if each.spec.position <= tree.free_up_to]
    return sorted(waiting, key=lambda each: inf if each.queued_at is None else each.queued_at)


def waiting(tree: Tree) -> list[ChildEntry]:
    """The workers that wait for a connection, and not only for the start of others."""
    return [] if is_free(tree) else line(tree)


def to_ask(tree: Tree, now: float) -> list[ChildEntry]:
    """The workers to be asked for their places: those that were not asked for longest."""
    up = [each for each in tree.workers if each.state is ChildState.UP and each.sleep is None]
    answering = sum(each.is_asked and now < _ask_at(each) for each in up)
    leaving = sum(each.sleep is not None for each in tree.workers if each.state.is_alive)
    count = min(len(waiting(tree)), MAX_ASKED) - answering - leaving
    candidates = [each for each in up if now >= _ask_at(each)]
    candidates.sort(key=lambda each: each.asked_at or 0.0)
    return candidates[: max(0, count)]


def to_grant(tree: Tree) -> ChildEntry | None:
    """The worker that gets a second connection, if nobody waits for a first one."""
    if line(tree) or not is_free(tree):
        return None
    wanting = (each for each in tree.workers if each.wants_second and each.state.is_alive)
    return next(wanting, None)


def stands_still(tree: Tree, now: float) -> bool:
    """Whether the line has not moved for long. Then the start of the others goes on without it."""
    return not is_free(tree) and now >= tree.granted_at + LONG_S


def long_waiting(tree: Tree, now: float) -> list[ChildEntry]:
    """The workers for which the budget is too small. While all start, the line may move long."""
    if tree.phase is not DaemonPhase.RUNNING and not stands_still(tree, now):
        return []
    queued = [each for each in waiting(tree) if each.queued_at is not None]
    return [each for each in queued if now >= (each.queued_at or now) + LONG_S]


def enough(tree: Tree) -> int:
    """The budget with which nobody would wait."""
    return taken(tree) + len(line(tree))


def _ask_at(child: ChildEntry) -> float:
    """When a worker may be asked, again or for the first time."""
    if child.asked_at is None:
        return 0.0
    return child.asked_at + (ANSWER_S if child.is_asked else ASK_AGAIN_S)
