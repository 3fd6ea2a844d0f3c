"""
Actions: what the engine of a worker wants done.

Each action is started at once and never waited for: its end is an event. Actions and events are
not changed once they are made; they are not frozen, as to make a frozen one takes thrice as long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pgflowd.core.messages import Message
from pgflowd.core.metrics.definitions import Metric
from pgflowd.core.statuses import Outcome
from pgflowd.core.worker.doorbell import DoorbellCall
from pgflowd.core.worker.state import ConnectionName, FetchRequest, WorkerExit, WorkerState
from pgflowd.core.worker.task import Task, TaskReport


class WorkerAction:
    """What the engine wants done."""

    __slots__ = ()


@dataclass(slots=True)
class Connect(WorkerAction):
    connection: ConnectionName


@dataclass(slots=True)
class CloseConnection(WorkerAction):
    """Close a connection on which nothing is under way."""

    connection: ConnectionName


@dataclass(slots=True)
class SendMessage(WorkerAction):
    """Send the supervisor a message."""

    message: Message


@dataclass(slots=True)
class CutConnection(WorkerAction):
    """Shut a connection's socket down: its call takes too long."""

    connection: ConnectionName


@dataclass(slots=True)
class ReportAndClaim(WorkerAction):
    """Report these and claim so many tasks, in one round trip and one transaction.

    `changes_of`: runs whose changes by these reports the log wants. `writers`: of the open
    transactions only these count. `kept`: reports of which output or progress is to be kept; the
    database may have had some of them before.
    """

    reports: tuple[TaskReport, ...]
    claim: int
    changes_of: tuple[str, ...] = ()
    doorbell: DoorbellCall = DoorbellCall.NONE
    writers: tuple[str, ...] | None = None
    kept: tuple[TaskReport, ...] = ()


@dataclass(slots=True)
class ReadNextDue(WorkerAction):
    """Read when the next message becomes visible."""


@dataclass(slots=True)
class SideAction(WorkerAction):
    """A call that either connection may take."""

    connection: ConnectionName


@dataclass(slots=True)
class RenewLeases(SideAction):
    """Renew the worker's row and these leases."""

    tokens: tuple[int, ...]


@dataclass(slots=True)
class Fetch(SideAction):
    """Read or write what a handler asked for, and send the answer to its runner."""

    request: FetchRequest


class PublishOutput(SideAction):
    """Send waiting output of handlers to the followers of their runs."""


@dataclass(slots=True)
class WriteProgress(SideAction):
    """Write what handlers have told, by the tokens of their attempts."""

    values: Mapping[int, bytes]


class AddMinute(SideAction):
    """Add what was done since the last time to the statistics."""


@dataclass(slots=True)
class SignOff(SideAction):
    """Mark the worker's row stopped, and take its doorbell down, unless it only sleeps."""

    keeps_doorbell: bool = False


@dataclass(slots=True)
class RunnerAction(WorkerAction):
    """What is to be done with a runner."""

    id: int


class ForkRunner(RunnerAction):
    """Have the zygote fork a runner."""


@dataclass(slots=True)
class SendTask(RunnerAction):
    task: Task
    is_shared: bool = False  # it may share the runner's event loop


@dataclass(slots=True)
class CancelTask(RunnerAction):
    """Ask one of the tasks that share a runner to end."""

    token: int


class PingRunner(RunnerAction):
    """Ask the event loop that tasks share for an answer."""


class AnnounceStop(RunnerAction):
    """Send the runner a frame that says that the daemon stops."""


@dataclass(slots=True)
class ReadResult(RunnerAction):
    """Read what lies in the runner's socket; then send Done, Ponged or NoResultYet."""

    token: int


@dataclass(slots=True)
class TakeResult(RunnerAction):
    """Read the large result that the runner has announced."""

    token: int


class TerminateRunner(RunnerAction):
    """SIGTERM to the runner's process group."""


class KillRunner(RunnerAction):
    """Stop and kill the runner's whole tree."""


class CloseRunner(RunnerAction):
    """Close the runner's socket, so that it ends by itself."""


class ReapRunner(RunnerAction):
    """Have the zygote reap a runner that has ended."""


@dataclass(slots=True)
class KillZygote(WorkerAction):
    pass


@dataclass(slots=True)
class WriteLog(WorkerAction):
    """Write one log record."""

    level: str
    event: str
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Count(WorkerAction):
    """Add to a counter. Labels are those of the metric, without the flow."""

    metric: Metric
    labels: tuple[str, ...]
    count: int = 1


@dataclass(slots=True)
class Observe(WorkerAction):
    """Add observations to a histogram."""

    metric: Metric
    labels: tuple[str, ...]
    seconds: tuple[float, ...]
    outcome: Outcome | None = None  # of the task that took so long


@dataclass(slots=True)
class Leave(WorkerAction):
    """Exit."""

    code: int
    why: str = ""
    failure: tuple[str, str] | None = None


# Transition: a copy of the state that is being changed, the time, and the actions so far.
#
# The old state stays as it is. What more than one part of the engine does stands here: to log, to
# count, and to put a report into the outbox.
class WorkerTransition:
    """A state that is being changed."""

    def __init__(self, state: WorkerState, now: float) -> None:
        self.state = state.copy()
        self.now = now
        self.actions: list[WorkerAction] = []

    def do(self, action: WorkerAction) -> None:
        self.actions.append(action)

    def send(self, message: Message) -> None:
        self.actions.append(SendMessage(message))

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
        if not (report.outcome.is_failure or self.state.options.keep_output == "all"):
            report.printed = None

    def release(self, task: Task, reason: str, delay_s: float = 0.0) -> None:
        """Give a task back, its attempt unspent."""
        self.report(TaskReport(task, Outcome.RELEASED, error_message=reason, delay_s=delay_s))

    def will_exit(self, code: int, why: str, failure: tuple[str, str] | None = None) -> None:
        self.state.exit = WorkerExit(code, why, failure)


MAX_REMEMBERED = 200  # texts that the log says once
