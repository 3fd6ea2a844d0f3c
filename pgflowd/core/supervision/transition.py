"""
Turn: one event's way through the tree: the changed copy, and the actions collected so far.

`core.supervision` makes a Turn, changes children with the verbs below, calls `settle`, and
returns tree and actions. `settle` is where the order of starts and stops lives (rules 4, 13,
28): it starts whatever may be started, and asks the highest position that is still alive to
end, each gone before the next is asked. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pgflowd.core.messages import Drain, QuickStop
from pgflowd.core.supervision.actions import (
    Action,
    Announce,
    Discover,
    End,
    Forget,
    GaveUp,
    SendToChild,
    StartChild,
)
from pgflowd.core.supervision.lifecycle import ChildState, DaemonPhase, move
from pgflowd.core.supervision.tree import GROUP, LAST, ChildEntry, Tree, new_child

STOP_S = 5.0  # listener and sweeper; for a worker, beyond its kill_grace (rule 29)
NOT_UP_YET_S = 1.0  # patience with a listener or sweeper that is only starting (rule 2)


class TreeTransition:
    """A tree in the making."""

    def __init__(self, tree: Tree, now: float) -> None:
        self.tree = tree
        self.now = now
        self.actions: list[Action] = []

    def result(self) -> tuple[Tree, list[Action]]:
        return self.tree, self.actions

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def set(self, **changes: Any) -> None:
        self.tree = replace(self.tree, **changes)

    def change(
        self, child: ChildEntry, state: ChildState | None = None, **changes: Any
    ) -> ChildEntry:
        """Change a child; a new state must be an allowed move."""
        if state is not None and state is not child.state:
            changes["state"] = move(child.state, state)
        changed = replace(child, **changes)
        self.tree = self.tree.put(changed)
        return changed

    def start(self, child: ChildEntry) -> None:
        patience = self.tree.policy.start_timeout_s
        self.change(
            child,
            ChildState.STARTING,
            heard=self.now,
            deadline=self.now + patience,
            due=None,
            up_since=None,
            waiting_for=None,
            killed=None,
        )
        self.do(StartChild(child.id))

    def quick_stop(self, child: ChildEntry) -> None:
        """Ask a child to end at once, unless it was asked before."""
        if child.state is ChildState.STOPPING:
            return
        grace = child.spec.kill_grace_s
        if child.state is ChildState.STARTING:
            patience = grace if child.spec.is_worker else min(grace, NOT_UP_YET_S)
        else:
            patience = grace + STOP_S if child.spec.is_worker else STOP_S
        self.change(child, ChildState.STOPPING, deadline=self.now + patience)
        self.do(SendToChild(child.id, QuickStop()))

    def drain(self, child: ChildEntry, within_s: float | None) -> None:
        """Ask a worker to finish its tasks; others, and those not up yet, stop quickly."""
        if not child.spec.is_worker or child.state is ChildState.STARTING:
            self.quick_stop(child)
        elif child.state is ChildState.UP:
            patience = child.spec.kill_grace_s + STOP_S
            deadline = None if within_s is None else self.now + within_s + patience
            self.change(child, ChildState.DRAINING, deadline=deadline)
            self.do(SendToChild(child.id, Drain(within_s)))

    def limit_drain(self, within_s: float) -> None:
        """Give a drain that may take as long as it likes a limit."""
        self.set(drain_s=within_s)
        for child in self.tree.children:
            if child.state is ChildState.DRAINING:
                patience = within_s + child.spec.kill_grace_s + STOP_S
                self.change(child, deadline=self.now + patience)
                self.do(SendToChild(child.id, Drain(within_s)))

    def bury(self, child: ChildEntry) -> None:
        """A child that was asked to end, or that others took along, has ended."""
        if child.removed:
            self.forget(child)
        elif child.successor is not None:
            fresh = new_child(child.successor, self.tree.policy.max_period_s)
            self.tree = self.tree.put(replace(fresh, restarts=child.restarts))
        else:
            self.change(
                child,
                ChildState.IDLE,
                settled=False,
                due=None,
                deadline=None,
                waiting_for=None,
                killed=None,
                up_since=None,
            )

    def forget(self, child: ChildEntry) -> None:
        children = tuple(each for each in self.tree.children if each.id != child.id)
        self.set(children=children)
        self.do(Forget(child.id))

    def stop_all(self, code: int, *, drain: bool = False, within_s: float | None = None) -> None:
        """Begin to end the daemon; what waits for a restart is not waited for."""
        self.set(
            phase=DaemonPhase.STOPPING, ending=code, is_draining=drain, drain_s=within_s, due=None
        )
        self._cancel_waits(0)
        self.do(Announce("draining" if drain else "stopping"))

    def give_up(self, child: ChildEntry, when: str = "") -> None:
        """End with exit 1: restarting `child` would not help (rules 6 and 27)."""
        reason = child.exits[-1] if child.exits else "unknown"
        self.do(GaveUp(child.id, f"{when}{reason}", child.exits))
        self.stop_all(1)

    def wind_down(self, position: int, delay_s: float) -> None:
        """Take everything from this position on down, then start it in order (rule 13)."""
        lowest = min(position, self.tree.at) if self.tree.phase is DaemonPhase.WINDING else position
        due = max(self.now + delay_s, self.tree.due or 0.0)
        self.set(phase=DaemonPhase.WINDING, at=lowest, due=due)
        self._cancel_waits(position + 1)

    def settle(self) -> None:
        """Do everything that is possible now."""
        if self.tree.phase is DaemonPhase.WINDING and not self._take_down(self.tree.at):
            if self.tree.due is not None and self.now < self.tree.due:
                self._start_idle()
                return
            self.set(phase=DaemonPhase.STARTING, due=None)
            self._cancel_waits(self.tree.at)
        if self.tree.phase is DaemonPhase.STOPPING:
            if not self._take_down(0):
                self.set(phase=DaemonPhase.ENDED)
                self.do(End(self.tree.ending))
            return
        self._start_idle()
        while self.tree.phase is DaemonPhase.STARTING and self._is_settled(self.tree.at):
            if self.tree.at == LAST:
                self.set(phase=DaemonPhase.RUNNING, first=False)
            else:
                self.set(at=self.tree.at + 1)
            self._start_idle()
        self._judge_reload()
        self._judge_workers()

    def _start_idle(self) -> None:
        for child in self.tree.children:
            if child.state is ChildState.IDLE and child.spec.position <= self.tree.free_up_to:
                self.start(child)

    def _is_settled(self, position: int) -> bool:
        children = self.tree.at_position(position)
        if position == GROUP:
            return all(child.settled or child.state is ChildState.UP for child in children)
        return all(child.state is ChildState.UP for child in children)

    def _take_down(self, lowest: int) -> bool:
        """Ask the highest living position to end; False when nothing lives any more."""
        for position in range(LAST, lowest - 1, -1):
            living = [each for each in self.tree.at_position(position) if each.state.is_alive]
            for child in living:
                if self.tree.phase is DaemonPhase.STOPPING and self.tree.is_draining:
                    self.drain(child, self.tree.drain_s)
                else:
                    self.quick_stop(child)
            if living:
                return True
        return False

    def _cancel_waits(self, lowest: int) -> None:
        """Children without a process from this position on wait for their turn instead."""
        for child in self.tree.children:
            if child.spec.position >= lowest and child.state is ChildState.RESTARTING:
                self.change(child, ChildState.IDLE, settled=False, due=None)

    def _judge_reload(self) -> None:
        """A reload is over when every drain is; then the next one may begin (rule 45)."""
        pending = any(each.successor or each.removed for each in self.tree.children)
        if self.tree.reload == "applied" and not pending:
            self.set(reload="")
            if self.tree.reload_again:
                self.set(reload="asked", reload_again=False)
                self.do(Discover())

    def _judge_workers(self) -> None:
        """Announce that the daemon is ready, or see that it never will be (rules 7, 26)."""
        tree = self.tree
        workers = [each for each in tree.workers if each.state is not ChildState.DISABLED]
        crashed = [each for each in workers if each.parked_for == "crashing"]
        if all(each.state is ChildState.PARKED for each in workers):
            if crashed:
                self.give_up(crashed[-1])
                self.settle()
            elif not tree.was_ready and _group_had_its_turn(tree):
                self.stop_all(78)
                self.settle()
        elif tree.phase is DaemonPhase.RUNNING and not tree.was_ready and _any_up(workers):
            self.set(was_ready=True)
            self.do(Announce("ready"))


def _group_had_its_turn(tree: Tree) -> bool:
    return (
        tree.phase is DaemonPhase.RUNNING
        or tree.at >= GROUP
        or all(child.state in {ChildState.PARKED, ChildState.DISABLED} for child in tree.workers)
    )


def _any_up(workers: list[ChildEntry]) -> bool:
    return any(each.state is ChildState.UP for each in workers)
