"""A claimed task, and the report of what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pgflowd.core.kept_output import KeptOutput
from pgflowd.core.statuses import Outcome
from pgflowd.core.traces import Trace
from pgflowd.core.waiting import Wait


class Task(NamedTuple):
    """A claimed task: one attempt, and what its handler gets, as JSON texts."""

    run_id: str
    step: str
    task_index: int
    token: int
    attempt: int
    max_attempts: int
    timeout_s: float
    input: bytes
    flow_input: bytes | None  # None: SQL null
    waited_s: float | None = None  # for its claim; of first attempts
    trace: Trace | None = None  # None: there are no traces
    original: bytes | None = None  # what an undo handler undoes, if it was read already

    @property
    def key(self) -> tuple[str, str, int]:
        """What names the task, whichever attempt it is."""
        return self.run_id, self.step, self.task_index

    def for_runner(self) -> tuple[dict[str, Any], bytes]:
        """Head and body of what a runner is sent."""
        head = {
            "token": self.token,
            "run": self.run_id,
            "step": self.step,
            "index": self.task_index,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "timeout": self.timeout_s,
            "split": None if self.flow_input is None else len(self.input),
            "is_original": self.original is not None,
        }
        return head, self.original or self.input + (self.flow_input or b"")


@dataclass(slots=True)
class TaskReport:
    """What the database is to record of an attempt."""

    task: Task
    outcome: Outcome
    output: bytes | None = None
    error_message: str | None = None  # of a release: the reason
    error_type: str | None = None
    traceback: str | None = None
    retry: bool = True
    delay_s: float | None = None
    at_most_s: float | None = None  # of a release: how long its handler may ask for others
    wait: Wait | None = None  # of a suspended task: for what
    cpu_s: float | None = None
    peak_kb: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    is_final: bool = False  # replaces a report that the server refused; not replaced again
    may_be_recorded: bool = False  # its runner may have completed the task by itself
    took_s: float | None = None  # from the sending of the task, where a log record shows it
    progress: bytes | None = None  # the last value, as JSON, unless the database has it
    printed: KeptOutput | None = None  # the last lines of its output
    pid: int | None = None  # of its runner
    began_at: float | None = None  # with `ended_at`, if its span is written
    ended_at: float | None = None

    @property
    def may_end_run(self) -> bool:
        """Whether step or run may end by it."""
        is_unspent = self.outcome in (Outcome.RELEASED, Outcome.SUSPENDED)
        return not is_unspent or self.at_most_s is not None

    @property
    def has_more(self) -> bool:
        """Whether something is to be kept besides its outcome."""
        return self.progress is not None or self.printed is not None
