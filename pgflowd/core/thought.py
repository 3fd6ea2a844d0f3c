"""
Thought: a mind being changed: a copy of it, the time, and the actions so far.

The old mind stays as it is. Runners move by the table `MOVES`; whoever sets a deadline notes it
with `by` or `passed`, so that the worker knows how long it may nap.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.mind import MOVES, NEVER, Mind, Phase, Report, Runner, Task
from pgflowd.errors import Bug


class Thought:
    """A mind being changed. The old one stays as it is."""

    def __init__(self, mind: Mind, now: float) -> None:
        self.mind = object.__new__(Mind)  # a copy, in a fifth of the time of copy.copy
        self.mind.__dict__.update(mind.__dict__)
        self.mind.runners = dict(mind.runners)
        self.mind.zygote = dict(mind.zygote)
        self.mind.idle = mind.idle[:]
        self.mind.held = mind.held[:]
        self.mind.reports = mind.reports[:]
        self.now = now
        self.actions: list[Any] = []

    def do(self, action: Any) -> None:
        self.actions.append(action)

    def by(self, moment: float) -> float:
        """Note a deadline, and return it."""
        self.mind.alarm = min(self.mind.alarm, moment)
        return moment

    def passed(self, moment: float) -> bool:
        """Whether a moment has come; if not, it is noted as a deadline."""
        if self.now >= moment:
            return True
        self.mind.alarm = min(self.mind.alarm, moment)
        return False

    def move(self, runner: Runner, phase: Phase, due_at: float = NEVER, **changes: Any) -> Runner:
        """Put a runner into another phase."""
        if phase not in MOVES[runner.phase]:
            raise Bug(f"a runner cannot go from {runner.phase.value} to {phase.value}", code="E902")
        mind = self.mind
        if runner.phase is Phase.IDLE and mind.idle[-1] == runner.id:
            mind.idle.pop()
        elif runner.phase is Phase.IDLE:
            mind.idle.remove(runner.id)
        elif runner.phase is Phase.STARTING:
            mind.starting -= 1
        moved = runner._replace(phase=phase, due_at=self.by(due_at), **changes)
        mind.runners[runner.id] = moved
        if phase is Phase.IDLE:
            mind.idle.append(runner.id)
        return moved

    def report(self, report: Report) -> None:
        """Keep an outcome until the database has it."""
        if not self.mind.reports:
            self.mind.reports_since = self.now
        self.mind.reports.append(report)

    def look_at(self, moment: float, reason: str) -> None:
        """Look for tasks then, or earlier."""
        if moment < self.mind.look_at:
            self.mind.look_at, self.mind.look_reason = self.by(moment), reason

    def release(self, task: Task, reason: str, delay_s: float = 0.0) -> None:
        """Give a task back, its attempt unspent."""
        fields = {"error_message": reason, "delay_s": delay_s}
        self.report(Report(task, "released", None, fields))
