"""
Until when the supervisor waits for each child, and when it has something to do next.

A start may take `start_timeout`, silence `hang_timeout`, and a stop what
docs/background/supervision.md, rule 29, allows. Rule 5: `start_timeout` does not run while a child
waits for the database. The whole first start waits at most `startup_wait`; then all stop, and
the exit is 69. Pure.
"""

from __future__ import annotations

from pgflowd.core.supervision import places
from pgflowd.core.supervision.actions import Action
from pgflowd.core.supervision.exits import EXIT_UNREACHABLE
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import ChildEntry, Tree


def next_due(tree: Tree) -> float | None:
    """Return when `on_tick` has something to do next, or None if never."""
    moments = [deadline_of(tree, child)[0] for child in tree.children]
    moments += [child.due_at for child in tree.children if may_start(tree, child)]
    is_stopping = any(c.state.is_alive and c.spec.position >= tree.position for c in tree.children)
    moments += [None if is_stopping else tree.due_at, tree.ask_at if places.line(tree) else None]
    if tree.waiting_from is not None and tree.phase is DaemonPhase.STARTING:
        left = tree.policy.startup_wait_s - tree.waited_s
        moments.append(tree.waiting_from + left)
    return min((moment for moment in moments if moment is not None), default=None)


def may_start(tree: Tree, child: ChildEntry) -> bool:
    return child.due_at is not None and child.spec.position <= tree.free_up_to


def deadline_of(tree: Tree, child: ChildEntry) -> tuple[float | None, str]:
    """Return until when the supervisor waits for a child, and the reason of the kill after it."""
    if not child.state.is_alive or child.kill_reason:
        return None, ""
    hang_timeout_s, end_at = tree.policy.hang_timeout_s, child.deadline_at
    silent_at = child.last_message_at + hang_timeout_s
    silent = silent_at, f"said nothing for {hang_timeout_s:g} s"
    if child.state is ChildState.UP or child.waiting_for:
        return silent
    if child.state is ChildState.STARTING:
        return end_at, f"was not ready within {tree.policy.start_timeout_s:g} s"
    if child.state is ChildState.DRAINING and (end_at is None or silent_at < end_at):
        return silent
    return end_at, "did not end when asked"


def on_waiting(tree: Tree, id: str, what: str | None, now: float) -> tuple[Tree, list[Action]]:
    """A child waits for the database (`what`), or goes on (None)."""
    transition = TreeTransition(tree, now)
    child = tree.child(id)
    if child is None:
        return transition.result()
    if child.state is not ChildState.STARTING:  # its clock stands still anyway, and it has spoken
        transition.change(child, last_message_at=now)
    elif what and child.waiting_for is None:
        left = max(0.0, (child.deadline_at or now) - now)
        transition.change(
            child, waiting_for=what, start_left_s=left, deadline_at=None, last_message_at=now
        )
    elif not what and child.waiting_for is not None:
        transition.change(
            child, waiting_for=None, deadline_at=now + child.start_left_s, last_message_at=now
        )
    count_waiting(transition)
    limit_waiting(transition)
    return transition.result()


def count_waiting(transition: TreeTransition) -> None:
    """Add the time that the first start has waited so far, and count on while a child waits."""
    tree, now = transition.tree, transition.now
    waited_s = tree.waited_s + (now - tree.waiting_from if tree.waiting_from is not None else 0.0)
    is_first = tree.is_first_start and tree.phase is DaemonPhase.STARTING
    is_waiting = is_first and any(child.waiting_for for child in tree.children)
    transition.set(waited_s=waited_s, waiting_from=now if is_waiting else None)


def limit_waiting(transition: TreeTransition) -> None:
    """End a first start that has waited for `startup_wait`."""
    tree = transition.tree
    if tree.waiting_from is None or tree.phase is not DaemonPhase.STARTING:
        return
    if tree.waited_s + transition.now - tree.waiting_from >= tree.policy.startup_wait_s:
        transition.set(waiting_from=None)
        transition.stop_all(EXIT_UNREACHABLE)
        transition.advance()
