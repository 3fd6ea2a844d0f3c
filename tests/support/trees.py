"""Trees for tests: `running("a", "b")` has listener, sweeper and these workers, all up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgflowd.core.messages import Drain, FallingAsleep
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision import decide, reload
from pgflowd.core.supervision.kinds import HTTP, SINGLE_KINDS, WORKER
from pgflowd.core.supervision.transition import (
    Action,
    LogChild,
    SendToChild,
    StartChild,
    TreeTransition,
)
from pgflowd.core.supervision.tree import ChildExit, ChildSpec, ExitKind, Policy, Tree, new_tree

CRASH = ChildExit(ExitKind.CRASH, "killed by SIGKILL")
ASKED = ChildExit(ExitKind.CRASH, "exit code 0")
REPLACE = ChildExit(ExitKind.REPLACE, "deprecated")
ASLEEP = ChildExit(ExitKind.ASLEEP, "asleep")
CANNOT = ChildExit(ExitKind.CANNOT_START, "no step 'refund'", "E306")


def _at(event: Callable[..., None]) -> Callable[..., tuple[Tree, list[Action]]]:
    """An event as a function of a tree, the event's arguments and the time."""

    def happen(tree: Tree, *given: Any, **options: Any) -> tuple[Tree, list[Action]]:
        *arguments, now = given
        transition = TreeTransition(tree, now)
        event(transition, *arguments, **options)
        return transition.tree, transition.actions

    return happen


on_begin, on_ready, on_message = _at(decide.on_begin), _at(decide.on_ready), _at(decide.on_message)
on_exit, on_stop, on_tick = _at(decide.on_exit), _at(decide.on_stop), _at(decide.on_tick)
on_waiting, on_wake = _at(decide.on_waiting), _at(decide.on_wake)
on_falling_asleep, on_next_due = _at(decide.on_falling_asleep), _at(decide.on_next_due)
on_connection = _at(decide.on_connection)
on_connections_left = _at(decide.on_connections_left)
on_reload, on_reload_refused = _at(reload.on_reload), _at(reload.on_reload_refused)
on_discovered, on_versions = _at(reload.on_discovered), _at(reload.on_versions)


def worker(slug: str, **changes: Any) -> ChildSpec:
    limits = {key: changes.pop(key) for key in vars(WorkerSettings()) if key in changes}
    values = {"name": slug, "entry": f"flows.{slug}", "fingerprint": "1", **changes}
    return ChildSpec(WORKER, limits=WorkerSettings(**limits), **values)


def singles(observers: bool = False, **changes: Any) -> list[ChildSpec]:
    """The children that are not in a group; observers are off, as without [http], or it is one."""
    return [
        ChildSpec(kind, enabled=not kind.is_observer or (observers and kind is HTTP), **changes)
        for kind in SINGLE_KINDS
    ]


def before(observers: bool = False, **policy: Any) -> Tree:
    """A tree that waits for its discovery."""
    return new_tree(Policy(**policy), singles(observers))


def starting(*slugs: str, now: float = 0.0, **policy: Any) -> Tree:
    """A tree whose listener is being started."""
    return on_discovered(before(**policy), [worker(slug) for slug in slugs], [], now)[0]


def running(*slugs: str, now: float = 0.0, **policy: Any) -> Tree:
    """A tree that is ready."""
    tree = starting(*slugs, now=now, **policy)
    for child in list(tree.children):
        tree, _ = on_ready(tree, child.id, now)
    assert tree.was_ready
    return tree


def ready(tree: Tree, *ids: str, now: float = 0.0) -> tuple[Tree, list[Action]]:
    done: list[Action] = []
    for id in ids:
        tree, actions = on_ready(tree, id, now)
        done += actions
    return tree, done


def ended(
    tree: Tree, *ids: str, now: float = 0.0, exit: ChildExit = ASKED
) -> tuple[Tree, list[Action]]:
    done: list[Action] = []
    for id in ids:
        tree, actions = on_exit(tree, id, exit, now)
        done += actions
    return tree, done


def sleeping(*slugs: str, now: float = 0.0, due_at: float | None = None, **policy: Any) -> Tree:
    """A tree that is ready, whose workers sleep."""
    tree = running(*slugs, now=now, **policy)
    for slug in slugs:
        tree, _ = on_falling_asleep(tree, f"worker {slug}", FallingAsleep(30.0, due_at), now)
        tree, _ = on_exit(tree, f"worker {slug}", ASLEEP, now)
    return tree


def state_of(tree: Tree, id: str) -> ChildState:
    child = tree.child(id)
    assert child is not None
    return child.state


def due_of(tree: Tree, id: str) -> float | None:
    """When a child without a process is started or tried again."""
    child = tree.child(id)
    assert child is not None
    return child.due_at


def restarts_counted(tree: Tree, now: float, id: str | None = None) -> int:
    """The restarts that count at this moment, of the whole tree or of a worker."""
    child = tree.child(id) if id else None
    return (child or tree).budget.count(now)


def orders(actions: list[Action]) -> list[str]:
    """The children that are started, drained and stopped, in order, as short texts."""
    return [text for text in map(_text, actions) if text]


def names(actions: list[Action]) -> list[str]:
    """What each action is; of a record, its event."""
    return [each.event if isinstance(each, LogChild) else type(each).__name__ for each in actions]


def records(actions: list[Action], event: str) -> list[LogChild]:
    return [each for each in actions if isinstance(each, LogChild) and each.event == event]


def _text(action: Action) -> str | None:
    if isinstance(action, StartChild):
        return f"start {action.id}"
    if isinstance(action, SendToChild):
        return f"{'drain' if isinstance(action.how, Drain) else 'stop'} {action.id}"
    return None
