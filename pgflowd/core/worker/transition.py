"""
Thought: a state being changed: a copy of it, the time, and the actions so far.

The old state stays as it is. Runners move by the table `MOVES`; whoever sets a deadline notes it
with `by` or `passed`, so that the worker knows how long it may nap.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.worker.state import (
    MOVES,
    NEVER,
    RunnerPhase,
    RunnerState,
    Task,
    TaskReport,
    WorkerState,
)
from pgflowd.errors import Bug


class WorkerTransition:
    """A state being changed. The old one stays as it is."""

    def __init__(self, state: WorkerState, now: float) -> None:
        self.state = object.__new__(WorkerState)  # a copy, in a fifth of the time of copy.copy
        self.state.__dict__.update(state.__dict__)
        self.state.runners = dict(state.runners)
        self.state.zygote = dict(state.zygote)
        self.state.idle = state.idle[:]
        self.state.held = state.held[:]
        self.state.reports = state.reports[:]
        self.now = now
        self.actions: list[Any] = []

    def do(self, action: Any) -> None:
        self.actions.append(action)

    def by(self, moment: float) -> float:
        """Note a deadline, and return it."""
        self.state.alarm = min(self.state.alarm, moment)
        return moment

    def passed(self, moment: float) -> bool:
        """Whether a moment has come; if not, it is noted as a deadline."""
        if self.now >= moment:
            return True
        self.state.alarm = min(self.state.alarm, moment)
        return False

    def move(
        self, runner: RunnerState, phase: RunnerPhase, due_at: float = NEVER, **changes: Any
    ) -> RunnerState:
        """Put a runner into another phase."""
        if phase not in MOVES[runner.phase]:
            raise Bug(f"a runner cannot go from {runner.phase.value} to {phase.value}", code="E902")
        state = self.state
        if runner.phase is RunnerPhase.IDLE and state.idle[-1] == runner.id:
            state.idle.pop()
        elif runner.phase is RunnerPhase.IDLE:
            state.idle.remove(runner.id)
        elif runner.phase is RunnerPhase.STARTING:
            state.starting -= 1
        moved = runner._replace(phase=phase, due_at=self.by(due_at), **changes)
        state.runners[runner.id] = moved
        if phase is RunnerPhase.IDLE:
            state.idle.append(runner.id)
        return moved

    def report(self, report: TaskReport) -> None:
        """Keep an outcome until the database has it."""
        if not self.state.reports:
            self.state.reports_since = self.now
        self.state.reports.append(report)

    def look_at(self, moment: float, reason: str) -> None:
        """Look for tasks then, or earlier."""
        if moment < self.state.look_at:
            self.state.look_at, self.state.look_reason = self.by(moment), reason

    def release(self, task: Task, reason: str, delay_s: float = 0.0) -> None:
        """Give a task back, its attempt unspent."""
        fields = {"error_message": reason, "delay_s": delay_s}
        self.report(TaskReport(task, "released", None, fields))
