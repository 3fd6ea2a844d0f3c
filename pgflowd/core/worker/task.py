"""A claimed task, and the report of what came of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pgflowd.core.backoff import doubled_s
from pgflowd.core.output_stream import KeptOutput
from pgflowd.core.statuses import Outcome
from pgflowd.core.sweeper import larger, smaller
from pgflowd.core.traces import MAP_SPANS, ORDINARY, SpanName, TaskTrace, Trace, attempt_span
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

    @property
    def span(self) -> SpanName | None:
        """That of this attempt, if those of its run are exported."""
        trace = self.trace
        if trace is None or not trace.is_sampled:
            return None
        return SpanName(trace.id_for(self.run_id), attempt_span(*self.key, self.token))

    @property
    def trace_for_runner(self) -> TaskTrace | None:
        """What the runner is told, unless it is what each runner takes for granted. The handler of
        an element whose attempt gets no span writes none either."""
        trace, is_first = self.trace, self.task_index < MAP_SPANS
        if trace is None or (trace is ORDINARY and is_first):
            return None
        return TaskTrace(trace.trace_id, trace.state, trace.is_sampled and is_first)

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

    @property
    def may_end_run(self) -> bool:
        """Whether step or run may end by it."""
        is_unspent = self.outcome in (Outcome.RELEASED, Outcome.SUSPENDED)
        return not is_unspent or self.at_most_s is not None

    @property
    def has_more(self) -> bool:
        """Whether something is to be kept besides its outcome."""
        return self.progress is not None or self.printed is not None


# What the parts of a worker's state are made of.
NEVER = float("inf")


class Word(StrEnum):
    """A string that code compares. It hashes as fast as a string does."""

    __hash__ = str.__hash__


class Part:
    """A part of the state; a transition changes a copy of it."""

    def copy(self) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__ = self.__dict__.copy()  # in a fifth of the time of copy.copy
        return copied


# What handlers have told of their progress, on its way to the database.
#
# Of each task only the last value counts. All that are new are written at most once a second, by
# one side call (`core.worker.connections`). A value that is not known to be in the database goes
# with the report of its task. Whatever is lost or refused disturbs nobody.
PAUSE_S = 1.0  # between two writes
NO_VALUES: Mapping[int, bytes] = MappingProxyType({})


class ProgressValues(NamedTuple):
    """The values, as JSON, by token; never changed, but replaced."""

    new: Mapping[int, bytes] = NO_VALUES
    writing: Mapping[int, bytes] = NO_VALUES  # by the call under way
    write_from: float = 0.0

    @property
    def due_at(self) -> float:
        """When to write, if a connection is free."""
        return self.write_from if self.new and not self.writing else NEVER

    def told(self, token: int, value: bytes) -> ProgressValues:
        return self._replace(new={**self.new, token: value})

    def begin(self, tokens: set[int], now: float) -> ProgressValues:
        """Write those of these tasks; others have ended without a report."""
        wanted = {token: value for token, value in self.new.items() if token in tokens}
        return ProgressValues(writing=wanted, write_from=now + PAUSE_S)

    def written(self, stored: Collection[int]) -> ProgressValues:
        """The call under way has ended: what it has not stored is as new as before."""
        again = {token: value for token, value in self.writing.items() if token not in stored}
        return self._replace(new={**again, **self.new}, writing=NO_VALUES)

    def get(self, token: int) -> bytes | None:
        """The last value of a task, unless the database has it."""
        return self.new.get(token) or self.writing.get(token)

    def without(self, token: int) -> ProgressValues:
        new = {key: value for key, value in self.new.items() if key != token}
        writing = {key: value for key, value in self.writing.items() if key != token}
        return self._replace(new=new, writing=writing)


NO_PROGRESS = ProgressValues()


# How the turns of a worker go, and so how large the next one may be.
#
# A turn is one call on the main connection: reports, and a claim. After a turn that another try
# alone does not mend, reports and claims travel apart, so that no outcome waits for a claim that
# fails. Reports that failed are sent again in halves; a claim that failed is tried again with one
# task, after a growing pause. Each success doubles the sizes again.
MAX_REPORTS = 200  # of one call
MAX_BYTES = 16 * 1024 * 1024  # of the outputs of one call; a larger one goes alone
MAX_TASKS = 1_000_000  # no limit: `batch_size` is one
SERIOUS_FROM = 3  # failures in a row, of whatever kind
MAX_TRIES = 3  # of a single report that takes too long


class Suspect(IntEnum):
    """What made the last turns fail."""

    NOTHING = 0
    REPORTS = 1
    CLAIM = 2  # perhaps: there was one


class TurnError(NamedTuple):
    """What went wrong last, and with which task, if that is known."""

    text: str
    sqlstate: str | None = None
    run_id: str | None = None
    task: str | None = None


class FailedTurn(NamedTuple):
    """A turn that failed: how large it was, and whether another try alone may mend it."""

    reports: int
    had_claim: bool
    is_serious: bool


class Turns(NamedTuple):
    """How the last turns went. Without any failure it is HEALTHY."""

    failures: int = 0  # in a row, attempts to connect included
    failing_since: float = 0.0
    error: TurnError | None = None
    suspect: Suspect = Suspect.NOTHING
    most_reports: int = MAX_REPORTS
    most_tasks: int = MAX_TASKS
    claims_from: float = 0.0  # no claim before that moment; 0: at any time
    claim_pause_s: float = 0.0
    slow_token: int = 0  # of the report that took too long alone
    slow_tries: int = 0

    def count_failure(self, began: float, error: TurnError) -> Turns:
        """After a call that failed. `began`: when it was sent."""
        since = self.failing_since if self.failures else began
        return self._replace(failures=self.failures + 1, failing_since=since, error=error)

    def after_failure(self, turn: FailedTurn, now: float, min_s: float, max_s: float) -> Turns:
        """After a turn that failed, and was counted."""
        if not turn.is_serious and self.failures < SERIOUS_FROM:
            return self
        turns = self
        if turn.reports:
            turns = turns._replace(most_reports=smaller(turn.reports))
        if not turn.had_claim:
            return turns._replace(suspect=max(turns.suspect, Suspect.REPORTS))
        turns = turns._replace(suspect=Suspect.CLAIM, most_tasks=1)
        if turn.reports:  # perhaps the claim is innocent
            return turns
        pause_s = doubled_s(turns.claim_pause_s, min_s, max_s)
        return turns._replace(claims_from=now + pause_s, claim_pause_s=pause_s)

    def after_slow_report(self, token: int) -> Turns:
        """After a report took too long, although it was alone."""
        tries = self.slow_tries + 1 if token == self.slow_token else 1
        return self._replace(slow_token=token, slow_tries=tries)

    def after_success(self, *, had_reports: bool, claimed: int, is_all_done: bool) -> Turns:
        """After a turn that the database answered. `claimed`: for how many tasks it asked."""
        turns = self
        if had_reports:
            most = larger(turns.most_reports, MAX_REPORTS)
            turns = turns._replace(most_reports=most, slow_token=0, slow_tries=0)
        if claimed:
            most = larger(turns.most_tasks, MAX_TASKS)
            turns = turns._replace(most_tasks=most, claims_from=0.0, claim_pause_s=0.0)
        if claimed or turns.suspect is Suspect.REPORTS:
            turns = turns._replace(suspect=Suspect.NOTHING)
        if is_all_done and turns.suspect is Suspect.NOTHING:
            turns = turns._replace(failures=0, failing_since=0.0, error=None)
        return turns


HEALTHY = Turns()
