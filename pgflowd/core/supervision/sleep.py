"""
Lets a worker without work sleep, and wakes it when there may be work.

A worker that falls asleep says so, signs off and ends. A wake that comes meanwhile is noted, and
the worker starts again as soon as it has ended. Whether a message came in between that nobody
announced is for the sweeper to see, which looks at the queue after the worker has ended
(docs/background/supervision.md, rules 54 and 55). Pure.
"""

from __future__ import annotations

from enum import StrEnum

from pgflowd.core.messages import FallingAsleep
from pgflowd.core.supervision.actions import Action, LogWake
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import ChildEntry, Tree

Result = tuple[Tree, list[Action]]


class WakeCause(StrEnum):
    """Why a sleeping worker is started."""

    NOTIFICATION = "notification"
    DUE = "due"  # a hidden message becomes visible
    FOUND = "found"  # the sweeper saw a message that no notification had announced
    COMMAND = "command"  # `pgflowd wake`


def on_falling_asleep(tree: Tree, id: str, message: FallingAsleep, now: float) -> Result:
    """A worker that is up signs off and ends, since it has nothing to do."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.UP:
        transition.change(child, sleep=message)
    return transition.result()


def on_wake(tree: Tree, id: str, cause: WakeCause, now: float) -> Result:
    """There may be work for a worker that sleeps, or is about to."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None or tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return transition.result()
    if child.state is ChildState.ASLEEP:
        wake(transition, child, cause)
        transition.advance()
    elif child.state is ChildState.UP and child.sleep is not None:
        transition.change(child, is_woken=True)
    return transition.result()


def on_next_due(tree: Tree, id: str, at: float, now: float) -> Result:
    """The sweeper has seen when the next message of a sleeping worker becomes visible."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is not None and child.state is ChildState.ASLEEP:
        transition.change(child, due_at=at)
    return transition.result()


def fall_asleep(transition: TreeTransition, child: ChildEntry, message: FallingAsleep) -> None:
    """A worker has ended as it said it would; one that was woken meanwhile starts again."""
    was_woken = child.is_woken
    child = transition.change(
        child,
        ChildState.ASLEEP,
        is_start_over=True,
        sleep=message,
        asleep_at=transition.now,
        due_at=message.next_due_at,
    )
    if was_woken:
        wake(transition, child, WakeCause.NOTIFICATION)


def wake(transition: TreeTransition, child: ChildEntry, cause: WakeCause) -> None:
    """Let a sleeping worker start, as soon as not too many others do."""
    transition.change(child, ChildState.IDLE, is_woken=True)
    transition.do(LogWake(child.id, cause))
