"""
Transition: a copy of the state that is being changed, the time, and the actions so far.

The old state stays as it is. What more than one part of the engine does stands here: to log, to
count, and to put a report into the outbox.
"""

from __future__ import annotations

from typing import Any

from pgflowd.core.metrics.definitions import Metric
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.actions import Count, WorkerAction, WriteLog
from pgflowd.core.worker.state import WorkerExit, WorkerState
from pgflowd.core.worker.task import Task, TaskReport


class WorkerTransition:
    """A state that is being changed."""

    def __init__(self, state: WorkerState, now: float) -> None:
        self.state = state.copy()
        self.now = now
        self.actions: list[WorkerAction] = []

    def do(self, action: WorkerAction) -> None:
        self.actions.append(action)

    def log(self, level: str, event: str, **fields: Any) -> None:
        if level != "debug" or self.state.options.is_debug:
            self.actions.append(WriteLog(level, event, fields))

    def log_problem(self, level: str, error: str, **fields: Any) -> None:
        self.log(level, "worker.error", error=error, **fields)

    def is_first(self, text: str) -> bool:
        """Whether the log has yet to say this, which it says once."""
        if text in self.state.logged:
            return False
        self.state.logged = (*self.state.logged[-MAX_REMEMBERED + 1 :], text)
        return True

    def count(self, metric: Metric, *labels: str, count: int = 1) -> None:
        self.actions.append(Count(metric, labels, count))

    def report(self, report: TaskReport) -> None:
        """Keep a report until the database has it."""
        self.complete(report)
        outbox = self.state.outbox
        if not outbox.reports:
            outbox.waiting_since = self.now
        outbox.reports.append(report)

    def complete(self, report: TaskReport) -> None:
        """Let a report have the last progress, and of the output what is to be kept."""
        connections, token = self.state.connections, report.task.token
        if value := connections.progress.get(token):
            report.progress = value
            connections.progress = connections.progress.without(token)
        if not (report.outcome.is_failure or self.state.options.keeps_all_output):
            report.printed = None

    def release(self, task: Task, reason: str, delay_s: float = 0.0) -> None:
        """Give a task back, its attempt unspent."""
        self.report(TaskReport(task, Outcome.RELEASED, error_message=reason, delay_s=delay_s))

    def will_exit(self, code: int, why: str, failure: tuple[str, str] | None = None) -> None:
        self.state.exit = WorkerExit(code, why, failure)


MAX_REMEMBERED = 200  # texts that the log says once
