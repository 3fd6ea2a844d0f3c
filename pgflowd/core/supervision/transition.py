"""
The transition of the tree at one event: the changed copy, and the actions collected so far, which
the supervisor performs in their order.

An event changes children by its methods, and calls `advance`, which keeps the order of starts and
stops (docs/background/supervision.md, rules 4, 13 and 28): it starts every child that may start,
and asks the highest position that is alive to end. The next position is asked when it has ended.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.messages import ConnectionGranted, Drain, QuickStop, SleepIfIdle
from pgflowd.core.statuses import ChildState
from pgflowd.core.supervision.tree import (
    ASK_AGAIN_S,
    EXIT_CANNOT,
    GROUP,
    LAST,
    OBSERVERS,
    Announcement,
    ChildEntry,
    ChildExit,
    ChildSpec,
    DaemonPhase,
    ReloadState,
    Tree,
    move,
    new_child,
)

RESTARTED = "child.restarted"  # the record that is also counted


@dataclass(frozen=True)
class Action:
    """The base of all actions."""


@dataclass(frozen=True)
class StartChild(Action):
    """Fork this child."""

    id: str


@dataclass(frozen=True)
class SendToChild(Action):
    """Ask this child to end, or for its place, or grant it one."""

    id: str
    how: Drain | QuickStop | SleepIfIdle | ConnectionGranted


@dataclass(frozen=True)
class KillChild(Action):
    """Kill this child and its Unix session: it has exceeded a limit."""

    id: str
    why: str


@dataclass(frozen=True)
class Discover(Action):
    """Import all flows in processes of their own, and report the result."""


@dataclass(frozen=True)
class LogChild(Action):
    """Write a log record about a child."""

    level: str
    event: str
    id: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Announce(Action):
    """Report to the log and to the service manager."""

    what: Announcement


@dataclass(frozen=True)
class ReportReload(Action):
    """Log and answer what a reload did to each flow."""

    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    retried: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class End(Action):
    """All children have ended: end the daemon with this exit code."""

    code: int


# docs/background/supervision.md, rules 29 and 2
STOP_LIMIT_S = 5.0  # of listener and sweeper; of a worker, beyond its kill_grace
STARTING_STOP_LIMIT_S = 1.0  # of a listener or sweeper that is still starting
_OF_A_PROCESS: dict[str, Any] = {
    **dict.fromkeys(("due_at", "deadline_at", "waiting_for", "kill_reason", "ready_at")),
    "sleep": None,
    "asleep_at": None,
    "is_woken": False,
}
# Workers that start at once: each imports its flow and opens connections, so that more of them
# would hardly be ready any earlier, and would take what the application's own clients need.
MAX_STARTING = 8


class TreeTransition:
    """A changing tree."""

    def __init__(self, tree: Tree, now: float) -> None:
        self.tree = tree
        self.now = now
        self.actions: list[Action] = []

    def do(self, action: Action) -> None:
        self.actions.append(action)

    def log(self, level: str, event: str, child: ChildEntry, **fields: Any) -> None:
        self.do(LogChild(level, event, child.id, fields))

    def set(self, **changes: Any) -> None:
        self.tree = replace(self.tree, **changes)

    def change(
        self, child: ChildEntry, state: ChildState | None = None, **changes: Any
    ) -> ChildEntry:
        """Change a child; a new state must be an allowed move.

        Limits and moments of a process do not outlive it: a state that begins another one, or has
        none, resets them.
        """
        if state is not None and state is not child.state:
            begins_anew = state is ChildState.STARTING or not state.is_alive
            fresh = _OF_A_PROCESS if begins_anew else {}
            changes = {**fresh, **changes, "state": move(child.state, state)}
        changed = replace(child, **changes)
        self.tree = self.tree.put(changed)
        return changed

    def start(self, child: ChildEntry) -> None:
        """Start a child; a worker for which there is no place waits in line."""
        if child.spec.is_worker and not self.tree.has_place:
            if child.state is not ChildState.IDLE:
                self.change(child, ChildState.IDLE, is_woken=child.is_woken)
            return
        self.change(
            child,
            ChildState.STARTING,
            is_woken=child.is_woken,
            last_message_at=self.now,
            deadline_at=self.now + self.tree.policy.start_timeout_s,
        )
        self.do(StartChild(child.id))

    def quick_stop(self, child: ChildEntry) -> None:
        """Ask a child to end at once, unless it was asked before."""
        if child.state is ChildState.STOPPING:
            return
        grace = child.spec.limits.kill_grace_s
        if child.state is ChildState.STARTING:
            limit_s = grace if child.spec.is_worker else min(grace, STARTING_STOP_LIMIT_S)
        else:
            limit_s = grace + STOP_LIMIT_S if child.spec.is_worker else STOP_LIMIT_S
        self.change(child, ChildState.STOPPING, deadline_at=self.now + limit_s)
        self.do(SendToChild(child.id, QuickStop()))

    def drain(self, child: ChildEntry, within_s: float | None) -> None:
        """Ask a worker to finish its tasks; others, and those not up yet, stop quickly."""
        if not child.spec.is_worker or child.state is ChildState.STARTING:
            self.quick_stop(child)
        elif child.state is ChildState.UP:
            self._send_drain(child, within_s)

    def limit_drain(self, within_s: float) -> None:
        """Limit a drain that had no limit."""
        self.set(drain_s=within_s)
        for child in self.tree.children:
            if child.state is ChildState.DRAINING:
                self._send_drain(child, within_s)

    def _send_drain(self, child: ChildEntry, within_s: float | None) -> None:
        limit_s = child.spec.limits.kill_grace_s + STOP_LIMIT_S
        deadline = None if within_s is None else self.now + within_s + limit_s
        self.change(child, ChildState.DRAINING, deadline_at=deadline)
        self.do(SendToChild(child.id, Drain(within_s)))

    def end(self, child: ChildEntry) -> None:
        """A child that was to end has ended."""
        if child.is_leaving:
            self.remove(child)
        elif child.next_spec is not None:
            self.replace(child, child.next_spec)
        else:
            self.change(child, ChildState.IDLE, is_start_over=False)

    def park(self, child: ChildEntry, exit: ChildExit, retry_at: float | None = None) -> None:
        """Let a child stay without a process, and perhaps try it again later."""
        exit = replace(exit, code=exit.code or ("E412" if exit.is_crash else "E901"))
        changes = {"parked_at": self.now, "error": exit, "due_at": retry_at}
        self.change(child, ChildState.PARKED, is_start_over=True, **changes)
        self.log("error", "child.parked", child, code=exit.code, error=exit.text)

    def new(self, spec: ChildSpec) -> ChildEntry:
        return new_child(spec, self.tree.policy.max_period_s)

    def replace(self, child: ChildEntry, spec: ChildSpec) -> None:
        """Put a child that was not started yet in place of one that has no process."""
        self.tree = self.tree.put(replace(self.new(spec), restarts=child.restarts))

    def remove(self, child: ChildEntry) -> None:
        children = tuple(each for each in self.tree.children if each.id != child.id)
        self.set(children=children)

    def stop_all(self, code: int, *, drain: bool = False, within_s: float | None = None) -> None:
        """Begin to end the daemon; delayed restarts are cancelled."""
        self.set(
            phase=DaemonPhase.STOPPING,
            exit_code=code,
            is_draining=drain,
            drain_s=within_s,
            due_at=None,
        )
        self._cancel_restarts(0)
        self.do(Announce(Announcement.DRAINING if drain else Announcement.STOPPING))

    def give_up(self, child: ChildEntry, when: str = "") -> None:
        """End with exit 1: restarting `child` would not help."""
        reason = child.exits[-1] if child.exits else "unknown"
        fields = {"code": "E413", "reason": f"{when}{reason}", "exits": list(child.exits)}
        self.log("error", "supervisor.gave_up", child, **fields)
        self.stop_all(1)

    def restart_from(self, position: int, delay_s: float) -> None:
        """Stop the children from this position on, then start them in order."""
        lowest = (
            min(position, self.tree.position)
            if self.tree.phase is DaemonPhase.RESTARTING
            else position
        )
        due = max(self.now + delay_s, self.tree.due_at or 0.0)
        self.set(phase=DaemonPhase.RESTARTING, position=lowest, due_at=due)
        self._cancel_restarts(position + 1)

    def advance(self) -> None:
        """Start and stop every child that may start or stop now."""
        if self.tree.phase is DaemonPhase.DISCOVERING:
            self._start_idle()
            return
        if self.tree.phase is DaemonPhase.RESTARTING and not self._stop_highest(self.tree.position):
            if self.tree.due_at is not None and self.now < self.tree.due_at:
                self._start_idle()
                return
            self.set(phase=DaemonPhase.STARTING, due_at=None)
            self._cancel_restarts(self.tree.position)
        if self.tree.phase is DaemonPhase.STOPPING:
            if not self._stop_highest(OBSERVERS):
                self.set(phase=DaemonPhase.ENDED)
                self.do(End(self.tree.exit_code))
            return
        self._start_idle()
        while self.tree.phase is DaemonPhase.STARTING and self._is_start_over(self.tree.position):
            if self.tree.position == LAST:
                self.set(phase=DaemonPhase.RUNNING, is_first_start=False)
            else:
                self.set(position=self.tree.position + 1)
            self._start_idle()
        # a reload is over when every drain is; then the next one may begin
        pending = any(each.next_spec or each.is_leaving for each in self.tree.children)
        if self.tree.reload is ReloadState.APPLIED and not pending:
            self.set(reload=ReloadState.NONE)
            if self.tree.reload_again:
                self.set(reload=ReloadState.ASKED, reload_again=False)
                self.do(Discover())
        # announce that the daemon is ready, or end it when no worker can start any more
        tree = self.tree
        workers = [each for each in tree.workers if each.state is not ChildState.DISABLED]
        crashed = [each for each in workers if each.error and each.error.is_crash]
        if all(each.state is ChildState.PARKED for each in workers):
            if crashed:
                self.give_up(crashed[-1])
                self.advance()
            elif not tree.was_ready:
                self.stop_all(EXIT_CANNOT)
                self.advance()
        elif (
            tree.phase is DaemonPhase.RUNNING
            and not tree.was_ready
            and any(each.state in {ChildState.UP, ChildState.ASLEEP} for each in workers)
        ):
            self.set(was_ready=True)
            self.do(Announce(Announcement.READY))

    def _start_idle(self) -> None:
        for child in self.tree.children:
            is_free = child.spec.position <= self.tree.free_up_to
            if child.state is ChildState.IDLE and is_free and not child.spec.is_worker:
                self.start(child)
        self.start_line()

    def start_line(self) -> None:
        """Start the workers that wait, as many as there are places; ask others for theirs."""
        starting = sum(each.state is ChildState.STARTING for each in self.tree.workers)
        line = self.tree.line
        if line and all(each.queued_at is None for each in line):
            self.set(granted_at=self.now)
        for child in line:
            if starting < MAX_STARTING and self.tree.has_place:
                starting += 1
                self.set(granted_at=self.now)
                self.start(child)
            elif child.queued_at is None:
                self.change(child, queued_at=self.now)
        # ask workers that are up; a line that stands still holds up the start of nothing else
        for child in self.tree.to_ask(self.now):
            self.change(child, asked_at=self.now, is_asked=True)
            self.do(SendToChild(child.id, SleepIfIdle()))
        waiting = self.tree.waiting
        self.set(ask_at=self.now + ASK_AGAIN_S if waiting else None)
        if waiting and self.tree.stands_still(self.now):
            for child in waiting:
                self.change(child, is_start_over=True)
        while worker := self.tree.to_grant():
            self.change(worker, wants_second=False, has_second=True)
            self.do(SendToChild(worker.id, ConnectionGranted()))

    def _is_start_over(self, position: int) -> bool:
        children = self.tree.at_position(position)
        if position == GROUP:
            return all(child.is_start_over or child.state is ChildState.UP for child in children)
        return all(child.state is ChildState.UP for child in children)

    def _stop_highest(self, lowest: int) -> bool:
        """Ask the highest position that is alive to end; False when none is."""
        for position in range(LAST, lowest - 1, -1):
            alive = [each for each in self.tree.at_position(position) if each.state.is_alive]
            for child in alive:
                if self.tree.phase is DaemonPhase.STOPPING and self.tree.is_draining:
                    self.drain(child, self.tree.drain_s)
                else:
                    self.quick_stop(child)
            if alive:
                return True
        return False

    def _cancel_restarts(self, lowest: int) -> None:
        """Let children from this position on start with their position, not after a delay."""
        for child in self.tree.children:
            if child.spec.position >= lowest and child.state is ChildState.RESTARTING:
                self.change(child, ChildState.IDLE, is_start_over=False)
