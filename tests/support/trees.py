"""Trees for tests: `running("a", "b")` has listener, sweeper and these workers, all up."""

from __future__ import annotations

from typing import Any

from pgflowd.core.messages import Drain, FallingAsleep
from pgflowd.core.settings.sections import WorkerSettings
from pgflowd.core.supervision.actions import Action, SendToChild, StartChild
from pgflowd.core.supervision.decide import on_exit, on_falling_asleep, on_ready
from pgflowd.core.supervision.kinds import HTTP, SINGLE_KINDS, WORKER
from pgflowd.core.supervision.reload import on_discovered
from pgflowd.core.supervision.tree import (
    ChildExit,
    ChildSpec,
    ChildState,
    ExitKind,
    Policy,
    Tree,
    new_tree,
)

CRASH = ChildExit(ExitKind.CRASH, "killed by SIGKILL")
ASKED = ChildExit(ExitKind.CRASH, "exit code 0")
REPLACE = ChildExit(ExitKind.REPLACE, "deprecated")
ASLEEP = ChildExit(ExitKind.ASLEEP, "asleep")
CANNOT = ChildExit(ExitKind.CANNOT_START, "no step 'refund'", "E306")


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
    return [type(action).__name__ for action in actions]


def _text(action: Action) -> str | None:
    if isinstance(action, StartChild):
        return f"start {action.id}"
    if isinstance(action, SendToChild):
        return f"{'drain' if isinstance(action.how, Drain) else 'stop'} {action.id}"
    return None
