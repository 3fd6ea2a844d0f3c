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

from pgflowd.core.settings.sections import Settings
from pgflowd.core.supervision.actions import Action, Discover, Parked, Reloaded
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase
from pgflowd.core.supervision.transition import TreeTransition
from pgflowd.core.supervision.tree import ChildEntry, ChildSpec, Policy, Tree, new_child

Result = tuple[Tree, list[Action]]
CANNOT = 78


@dataclass(frozen=True)
class BrokenEntry:
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
    if tree.phase in {DaemonPhase.STOPPING, DaemonPhase.ENDED}:
        return tree, []
    if tree.phase is DaemonPhase.DISCOVERING or tree.reload:
        return replace(tree, reload_again=True), []
    return replace(tree, reload="asked"), [Discover()]


def on_reload_refused(tree: Tree, now: float) -> Result:
    """The file has an error, or discovery could not be done: nothing changes."""
    transition = TreeTransition(tree, now)
    if tree.reload == "asked":
        transition.set(reload="applied")
        transition.settle()
    return transition.result()


def on_discovered(
    tree: Tree, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry], now: float
) -> Result:
    """Discovery has answered: begin the start, or apply the reload.

    Among `wanted`, listener and sweeper may stand as well; a changed one is replaced alone.
    """
    transition = TreeTransition(tree, now)
    roots = [spec for spec in wanted if not spec.is_worker]
    wanted = [spec for spec in wanted if spec.is_worker]
    if tree.phase is DaemonPhase.DISCOVERING:
        _begin(transition, wanted, broken)
    elif tree.reload == "asked" and tree.phase is not DaemonPhase.STOPPING:
        transition.set(reload="applied")
        transition.do(_apply(transition, wanted, broken))
        for spec in roots:
            _replace_root(transition, spec)
        transition.settle()
    return transition.result()


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


def _begin(
    transition: TreeTransition, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry]
) -> None:
    for spec in wanted:
        _add(transition, spec)
    for each in broken:
        _park_entry(transition, each)
    transition.set(phase=DaemonPhase.STARTING, at=0)
    if transition.tree.reload_again:
        transition.set(reload="applied")
    if all(
        child.state in {ChildState.PARKED, ChildState.DISABLED} for child in transition.tree.workers
    ):
        transition.stop_all(CANNOT)
    transition.settle()


def _apply(
    transition: TreeTransition, wanted: Sequence[ChildSpec], broken: Sequence[BrokenEntry]
) -> Reloaded:
    entries = {each.entry for each in broken}
    done: dict[str, list[str]] = {each.name: [] for each in fields(Reloaded)}
    for spec in wanted:
        child = transition.tree.child(spec.id)
        done[_renew(transition, spec, child)].append(spec.name)
    ids = {spec.id for spec in wanted}
    for child in transition.tree.workers:
        if child.id not in ids and not (child.spec.entry in entries and child.spec.fingerprint):
            _remove(transition, child)
            if child.spec.fingerprint:
                done["gone"].append(child.spec.name)
    for each in broken:
        if not any(child.spec.entry == each.entry for child in transition.tree.workers):
            _park_entry(transition, each)
        done["broken"].append(each.entry)
    return Reloaded(**{name: tuple(names) for name, names in done.items()})


def _renew(transition: TreeTransition, spec: ChildSpec, child: ChildEntry | None) -> str:
    """Bring one flow's child to its new specification; return what that amounts to."""
    if child is None:
        _add(transition, spec)
        return "new"
    if child.state is ChildState.PARKED:
        _replace(transition, child, spec)
        return "retried"
    if child.spec == spec:
        return "kept"
    if child.state.is_alive:
        child = transition.change(child, successor=spec)
        transition.drain(child, transition.tree.policy.drain_timeout_s)
    else:
        _replace(transition, child, spec)
    return "changed"


def _replace_root(transition: TreeTransition, spec: ChildSpec) -> None:
    """Replace listener or sweeper if it would be different; no other child is concerned."""
    child = transition.tree.child(spec.id)
    if child is None or child.spec == spec:
        return
    if child.state.is_alive:
        transition.quick_stop(transition.change(child, successor=spec))
    else:
        transition.tree = transition.tree.put(replace(child, spec=spec))


def _remove(transition: TreeTransition, child: ChildEntry) -> None:
    if child.state.is_alive:
        child = transition.change(child, removed=True)
        transition.drain(child, transition.tree.policy.drain_timeout_s)
    else:
        transition.forget(child)


def _add(transition: TreeTransition, spec: ChildSpec) -> None:
    _insert(transition, new_child(spec, transition.tree.policy.max_period_s))


def _replace(transition: TreeTransition, child: ChildEntry, spec: ChildSpec) -> None:
    fresh = new_child(spec, transition.tree.policy.max_period_s)
    transition.tree = transition.tree.put(replace(fresh, restarts=child.restarts))


def _park_entry(transition: TreeTransition, broken: BrokenEntry) -> None:
    spec = ChildSpec(broken.id, "worker", name=broken.entry, entry=broken.entry)
    child = replace(
        new_child(spec, transition.tree.policy.max_period_s),
        state=ChildState.PARKED,
        settled=True,
        parked_for="definition",
        parked_at=transition.now,
        error=(broken.code, broken.text),
    )
    _insert(transition, child)
    transition.do(Parked(child.id, broken.code, broken.text))


def _insert(transition: TreeTransition, child: ChildEntry) -> None:
    """Add a child at the end of its position; an id that is taken gives way to the new one."""
    others = [each for each in transition.tree.children if each.id != child.id]
    children = sorted([*others, child], key=lambda each: each.spec.position)
    transition.set(children=tuple(children))
