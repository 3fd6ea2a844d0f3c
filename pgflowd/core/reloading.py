"""
Reloading: what discovery found, at the start and after each HUP, becomes part of the tree.

Rule 43, per flow: same fingerprint, kept; changed, drained and started anew; new, added; gone,
drained and removed; parked, tried again with a full budget; broken, the running worker is kept
or the entry parked under its name. Rule 45: a stop goes first, and a second reload waits for
the first. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from pgflowd.core.actions import Action, Discover, Parked, Reloaded
from pgflowd.core.lifecycle import Phase, State
from pgflowd.core.settings import Settings
from pgflowd.core.tree import Child, Policy, Spec, Tree, new_child
from pgflowd.core.turn import Turn

Result = tuple[Tree, list[Action]]
CANNOT = 78


@dataclass(frozen=True)
class Broken:
    """An entry of the config that cannot be served."""

    entry: str
    code: str
    text: str

    @property
    def id(self) -> str:
        return worker_id(self.entry)


def worker_id(name: str) -> str:
    """Return the id of a flow's worker in the tree; no flow can be named like it."""
    return f"worker {name}"


def on_reload(tree: Tree, now: float) -> Result:
    """We are told to reload."""
    if tree.phase in {Phase.STOPPING, Phase.ENDED}:
        return tree, []
    if tree.phase is Phase.DISCOVERING or tree.reload:
        return replace(tree, reload_again=True), []
    return replace(tree, reload="asked"), [Discover()]


def on_reload_refused(tree: Tree, now: float) -> Result:
    """The file has an error, or discovery could not be done: nothing changes."""
    turn = Turn(tree, now)
    if tree.reload == "asked":
        turn.set(reload="applied")
        turn.settle()
    return turn.result()


def on_discovered(
    tree: Tree, wanted: Sequence[Spec], broken: Sequence[Broken], now: float
) -> Result:
    """Discovery has answered: begin the start, or apply the reload.

    Among `wanted`, listener and sweeper may stand as well; a changed one is replaced alone.
    """
    turn = Turn(tree, now)
    roots = [spec for spec in wanted if not spec.is_worker]
    wanted = [spec for spec in wanted if spec.is_worker]
    if tree.phase is Phase.DISCOVERING:
        _begin(turn, wanted, broken)
    elif tree.reload == "asked" and tree.phase is not Phase.STOPPING:
        turn.set(reload="applied")
        turn.do(_apply(turn, wanted, broken))
        for spec in roots:
            _replace_root(turn, spec)
        turn.settle()
    return turn.result()


def with_policy(tree: Tree, policy: Policy) -> Tree:
    """Return the tree with another policy; what was spent of a budget stays spent."""
    budget = replace(tree.budget, most=policy.max_restarts, period_s=policy.max_period_s)
    children = tuple(
        replace(child, budget=replace(child.budget, period_s=policy.max_period_s))
        for child in tree.children
    )
    return replace(tree, policy=policy, budget=budget, children=children)


def needs_restart(old: Settings, new: Settings) -> list[str]:
    """The keys that were changed and cannot be reloaded (rule 44)."""
    changed = [
        f"[database] {each.name}"
        for each in fields(old.database)
        if getattr(old.database, each.name) != getattr(new.database, each.name)
    ]
    if old.pgflowd.name != new.pgflowd.name:
        changed.append("[pgflowd] name")
    if old.supervisor.control != new.supervisor.control:
        changed.append("[supervisor] control")
    return [key.removesuffix("_s") for key in changed]


def _begin(turn: Turn, wanted: Sequence[Spec], broken: Sequence[Broken]) -> None:
    for spec in wanted:
        _add(turn, spec)
    for each in broken:
        _park_entry(turn, each)
    turn.set(phase=Phase.STARTING, at=0)
    if turn.tree.reload_again:
        turn.set(reload="applied")
    if all(child.state in {State.PARKED, State.DISABLED} for child in turn.tree.workers):
        turn.stop_all(CANNOT)
    turn.settle()


def _apply(turn: Turn, wanted: Sequence[Spec], broken: Sequence[Broken]) -> Reloaded:
    entries = {each.entry for each in broken}
    done: dict[str, list[str]] = {each.name: [] for each in fields(Reloaded)}
    for spec in wanted:
        child = turn.tree.child(spec.id)
        done[_renew(turn, spec, child)].append(spec.name)
    ids = {spec.id for spec in wanted}
    for child in turn.tree.workers:
        if child.id not in ids and not (child.spec.entry in entries and child.spec.fingerprint):
            _remove(turn, child)
            if child.spec.fingerprint:
                done["gone"].append(child.spec.name)
    for each in broken:
        if not any(child.spec.entry == each.entry for child in turn.tree.workers):
            _park_entry(turn, each)
        done["broken"].append(each.entry)
    return Reloaded(**{name: tuple(names) for name, names in done.items()})


def _renew(turn: Turn, spec: Spec, child: Child | None) -> str:
    """Bring one flow's child to its new specification; return what that amounts to."""
    if child is None:
        _add(turn, spec)
        return "new"
    if child.state is State.PARKED:
        _replace(turn, child, spec)
        return "retried"
    if child.spec == spec:
        return "kept"
    if child.state.is_alive:
        child = turn.change(child, successor=spec)
        turn.drain(child, turn.tree.policy.drain_timeout_s)
    else:
        _replace(turn, child, spec)
    return "changed"


def _replace_root(turn: Turn, spec: Spec) -> None:
    """Replace listener or sweeper if it would be different; no other child is concerned."""
    child = turn.tree.child(spec.id)
    if child is None or child.spec == spec:
        return
    if child.state.is_alive:
        turn.quick_stop(turn.change(child, successor=spec))
    else:
        turn.tree = turn.tree.put(replace(child, spec=spec))


def _remove(turn: Turn, child: Child) -> None:
    if child.state.is_alive:
        child = turn.change(child, removed=True)
        turn.drain(child, turn.tree.policy.drain_timeout_s)
    else:
        turn.forget(child)


def _add(turn: Turn, spec: Spec) -> None:
    _insert(turn, new_child(spec, turn.tree.policy.max_period_s))


def _replace(turn: Turn, child: Child, spec: Spec) -> None:
    fresh = new_child(spec, turn.tree.policy.max_period_s)
    turn.tree = turn.tree.put(replace(fresh, restarts=child.restarts))


def _park_entry(turn: Turn, broken: Broken) -> None:
    spec = Spec(broken.id, "worker", name=broken.entry, entry=broken.entry)
    child = replace(
        new_child(spec, turn.tree.policy.max_period_s),
        state=State.PARKED,
        settled=True,
        parked_for="definition",
        parked_at=turn.now,
        error=(broken.code, broken.text),
    )
    _insert(turn, child)
    turn.do(Parked(child.id, broken.code, broken.text))


def _insert(turn: Turn, child: Child) -> None:
    """Add a child at the end of its position; an id that is taken gives way to the new one."""
    others = [each for each in turn.tree.children if each.id != child.id]
    children = sorted([*others, child], key=lambda each: each.spec.position)
    turn.set(children=tuple(children))
