"""
The `ctx` of a handler that a test calls.

    assert website({"url": "x"}, fake_context(attempt=2)) == …
    assert order({}, fake_context(saved={"charge": 7}, signals={"paid": {"amount": 12}})) == …

Neither `cancelled` nor `stopping` is set, and there is no database. Checkpoints are in `saved`. No
wait takes time: a sleep is over at once, and a wait for a signal gets what `signals` has, or ends
with its timeout. Child runs are those of `children`, as `run_flow` takes them, and end likewise.

`TestedContext` is that of a handler that `run_flow` calls: its checkpoints and waits are in the
engine. Both refuse what is too much for the database with its default settings.

Signals are a payload, a list of payloads, or `(seconds, payload)`, for each name:

    {"approve": {"approved": True}, "page": [1, 2], "paid": (3600, {"amount": 12})}

Those without seconds are there from the beginning. A list as a payload stands in a list. Child runs
are for each flow that handlers start a flow, or a function of its input:

    children={"invoice": invoice_flow, "mail": lambda given: {"send": "sent"}}

A function returns the output of the run, or raises what the run fails with. A flow is executed by
`run_flow`, in virtual time, with the same children. Keys of singletons have no effect.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pgflowd.core.context import Context, refuse_unknown_step
from pgflowd.core.failure import failure_of
from pgflowd.core.json import as_stored, deep_copy, dumps
from pgflowd.core.progress import Document
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import did_you_mean
from pgflowd.core.typed.codec import stored_value
from pgflowd.core.undo import Undo
from pgflowd.core.waiting import (
    Checkpoint,
    Keep,
    Wait,
    WaitKind,
    check_signal_name,
    seconds_of,
)
from pgflowd.core.wishes import CheckedWishes, ChildRun, ChildStart, Moment
from pgflowd.errors import BadDependency, LeaseLost, RunError, TooLarge
from pgflowd.flow import Flow
from pgflowd.testing.engine import Engine, SentSignal, TaskRow

if TYPE_CHECKING:
    from psycopg import Connection

MAX_BYTES = 1 << 20  # of a checkpoint or a signal: the setting `checkpoint_max`
MAX_CHECKPOINTS = 10_000  # of a task
MAX_BYTES_IN_ALL = 64 << 20  # which they have together


def refuse_too_large(value: Any, what: str) -> None:
    """Raise E424 for a value that no checkpoint can keep."""
    size = _size(value)
    if size > MAX_BYTES:
        text = f"{what} has {size} bytes, and {MAX_BYTES} are allowed"
        raise TooLarge(text, next="store it elsewhere, and keep a reference to it")


def _size(value: Any) -> int:
    return len(dumps(value).encode())


class Room:
    """What a task may keep beside these checkpoints of it."""

    def __init__(self, saved: Iterable[Checkpoint]) -> None:
        self._sizes = {each.name: _size(each.data) for each in saved}
        self._bytes = sum(self._sizes.values())

    def take(self, checkpoint: Checkpoint) -> None:
        """Raise E424 for a checkpoint that is too large, or one too many."""
        name = checkpoint.name
        refuse_too_large(checkpoint.data, f"checkpoint '{name}'")
        if name not in self._sizes and len(self._sizes) >= MAX_CHECKPOINTS:
            text = f"the task has {MAX_CHECKPOINTS} checkpoints already"
            raise TooLarge(text, next="save many values under one name, or drop some")
        size = _size(checkpoint.data)
        others = self._bytes - self._sizes.get(name, 0)
        if others + size > MAX_BYTES_IN_ALL:
            text = f"the checkpoints of the task have {others} bytes already"
            text += f", and {MAX_BYTES_IN_ALL} are allowed in all"
            raise TooLarge(text, next="save references to the data, or drop some")
        self._sizes[name], self._bytes = size, others + size

    def give_back(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name)


def sent_signals(signals: Mapping[str, Any]) -> list[SentSignal]:
    """The signals in the order of sending."""
    if not isinstance(signals, Mapping):
        raise TypeError(f"signals must be a dict with names of signals as keys, not {signals!r}")
    sent = []
    for name, given in signals.items():
        for each in given if isinstance(given, list) else [given]:
            check_signal_name(name)
            is_timed = isinstance(each, tuple) and len(each) == 2
            seconds, payload = each if is_timed else (0.0, each)
            sent_at = seconds_of(seconds, f"the time of signal '{name}'")
            stored = stored_value(payload, what=f"signal '{name}'")
            refuse_too_large(stored, f"signal '{name}'")
            sent.append(SentSignal(name, stored, sent_at))
    return sorted(sent, key=attrgetter("sent_at"))


class StartedChild(NamedTuple):
    """A child run that a handler has started, and how it ended."""

    step: str
    flow: str
    input: Any
    run_id: str
    status: RunStatus
    output: Any
    error: str | None


End = tuple[RunStatus, Any, str | None]  # of a run: status, output and error


class TestedChildren:
    """Those that the handlers of a test may start, and those that they have started."""

    __test__ = False  # pytest takes the name for a class of tests

    def __init__(self, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"children must be a dict with slugs of flows as keys, not {given!r}")
        for slug, child in given.items():
            if not isinstance(slug, str) or not (callable(child) or isinstance(child, Flow)):
                raise TypeError(f"children has {child!r} for {slug!r}; give a flow or a function")
        self.given = given
        self.started: dict[str, StartedChild] = {}  # by run id
        self.ends: dict[str, float] = {}  # when they end, likewise

    def start(self, child: ChildStart, step: str, now: float, moment: datetime) -> None:
        """Start a child now, which is this moment, and know at once how it will end."""
        if child.flow not in self.given:
            hint = did_you_mean(child.flow, self.given) or f"give children={{'{child.flow}': …}}"
            text = f"step {step} starts flow {child.flow}, which the test does not know"
            raise RuntimeError(f"{text}; {hint}")
        wishes = child.wishes or CheckedWishes()
        begins_at = now + _in_s(wishes.begins, moment, 0.0)
        expires_at = now + _in_s(wishes.expires, moment, math.inf)
        end: End
        end, took_s = (RunStatus.EXPIRED, None, "its time is over"), 0.0
        if begins_at < expires_at:
            found, took_s = self._end_of(child)
            end = found if begins_at + took_s < expires_at else end
        self.ends[child.run_id] = min(begins_at + took_s, expires_at)
        self.started[child.run_id] = StartedChild(step, child.flow, child.input, child.run_id, *end)

    def ended_at(self, run_ids: Sequence[str]) -> float:
        """When the last of these runs ends. E409 for one that no handler has started."""
        for run_id in run_ids:
            if run_id not in self.ends:
                text = f"there is no run {run_id}: no handler of this test has started it"
                raise RunError(text, code="E409")
        return max(self.ends[run_id] for run_id in run_ids)

    def _end_of(self, child: ChildStart) -> tuple[End, float]:
        """How it ends, and after how many seconds."""
        given = self.given[child.flow]
        of_job = getattr(given, "flow", None)
        flow = of_job if isinstance(of_job, Flow) else given
        if isinstance(flow, Flow):
            from pgflowd.testing.run_flow import run_flow  # which has children, too

            run = run_flow(flow, child.input, children=self.given)
            error = next((step.error for step in run.steps.values() if step.error), None)
            return (RunStatus(run.status), run.output, error), run.took_s
        try:
            output = stored_value(given(deep_copy(child.input)), what=f"the output of {child.flow}")
        except Exception as error:
            return (RunStatus.FAILED, None, failure_of(error).message), 0.0
        return (RunStatus.COMPLETED, output, None), 0.0


def _in_s(given: Moment, moment: datetime, default: float) -> float:
    """The seconds from this moment to the given one; the default if none is given."""
    if given.at is not None:
        return max(0.0, (given.at - moment).total_seconds())
    return default if given.in_s is None else given.in_s


@dataclass
class FakeContext(Context):
    """The context of a handler that a test calls by itself."""

    run_id: str = "00000000-0000-7000-8000-000000000000"
    flow_slug: str = "flow"
    step_slug: str = "step"
    task_index: int = 0
    attempt: int = 1
    max_attempts: int = 3
    token: int = 1
    deadline: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=60))
    caps: frozenset[str] = frozenset()
    resources: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduled_for: datetime | None = None
    traceparent: str | None = None
    undo: Undo | None = None  # of an undo handler
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("pgflowd.handler"))
    cancelled: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    run_input: Any = None  # returned by flow_input()
    step_outputs: Mapping[str, Any] = field(default_factory=dict)
    steps: Collection[str] = ()  # of the flow; unless empty, step_output() refuses other slugs
    connection: Connection[Any] | None = None  # returned by conn()
    saved: dict[str, Any] = field(default_factory=dict)  # by the names of `save` and `memo`
    signals: Mapping[str, Any] = field(default_factory=dict)  # as `run_flow` takes them
    children: Mapping[str, Any] = field(default_factory=dict)  # likewise
    waited_s: float = 0.0  # in virtual time
    progress_told: list[dict[str, Any]] = field(default_factory=list)  # by `progress`

    _version = 1

    def _tell_progress(self, told: Document) -> None:
        self.progress_told.append(as_stored(told, what="progress"))

    def conn(self) -> Connection[Any]:
        if self.connection is None:
            raise RuntimeError(
                "a fake context has no database; mock the step, or give run_flow or fake_context a"
                " connection=…"
            )
        return self.connection

    def _moment(self) -> datetime:
        return datetime.now(UTC)

    def _read_input(self) -> Any:
        return deep_copy(self.run_input)

    def _read_output(self, slug: str) -> Any:
        if self.steps:
            refuse_unknown_step(slug, self.steps, self.flow_slug)
        return deep_copy(self.step_outputs.get(slug))

    def _read_children(self) -> Mapping[str, str]:
        return {run_id: run_id for run_id in self._tested_children.started}

    def _start_child(self, child: ChildStart) -> str:
        if child.wishes and self.run_id in map(str, child.wishes.after):
            text = f"run {child.run_id} cannot begin after run {self.run_id}, which is its parent"
            raise BadDependency(text, next="leave it out; see docs/guides/child-runs.md")
        self._tested_children.start(child, self.step_slug, self.waited_s, self._moment())
        return child.run_id

    def _read_runs(self, run_ids: Sequence[str]) -> list[ChildRun]:
        return [
            ChildRun(each.run_id, each.status, deep_copy(each.output), each.error)
            for each in map(self._tested_children.started.__getitem__, run_ids)
        ]

    @cached_property
    def _tested_children(self) -> TestedChildren:
        return TestedChildren(self.children)

    @cached_property
    def _room(self) -> Room:
        return Room(self._saved.values())

    @cached_property
    def _unused(self) -> list[SentSignal]:
        return sent_signals(self.signals)

    def _read_checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint(name, 1, as_stored(value)) for name, value in self.saved.items()]

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._room.take(checkpoint)
        self.saved[checkpoint.name] = checkpoint.data

    def _forget(self, name: str) -> None:
        self._room.give_back(name)
        del self.saved[name]

    def _from_now(self, wait: Wait) -> Wait:
        """The wait with its seconds from now, where it has a moment."""
        if wait.until is None:
            return wait
        left_s = (wait.until - self._moment()).total_seconds()
        return replace(wait, in_s=max(0.0, left_s), until=None)

    def _end_of(self, wait: Wait) -> Any:
        """End the wait now, since nobody lets the handler begin again."""
        name = str(wait.checkpoint)
        if name not in self._saved:
            self._saved[name] = Checkpoint(name, 1, self._ended_now(self._from_now(wait)))
        return super()._end_of(wait)

    def _ended_now(self, wait: Wait) -> dict[str, Any]:
        ends_at = math.inf if wait.in_s is None else self.waited_s + wait.in_s
        if wait.kind is WaitKind.SIGNAL:
            signal = next((each for each in self._unused if each.name == wait.name), None)
            if signal and signal.sent_at <= ends_at:
                self._unused.remove(signal)
                self.waited_s = max(self.waited_s, signal.sent_at)
                return {"got": signal.payload}
            if wait.in_s is None:
                raise RuntimeError(
                    f"step {self.step_slug} waits for signal '{wait.name}', which nothing sends;"
                    f" give the context signals={{'{wait.name}': …}}"
                )
        elif wait.kind is WaitKind.RUNS:
            ended_at = self._tested_children.ended_at(wait.runs or ())
            if ended_at <= ends_at:
                self.waited_s = max(self.waited_s, ended_at)
                return {"ended": True}
        else:
            self.waited_s += wait.in_s or 0.0
            return {"slept": True}
        self.waited_s = ends_at
        return {"timeout": True}


def fake_context(**values: Any) -> FakeContext:
    """A context with these values, such as `attempt=2` or `run_input={"url": "x"}`."""
    return FakeContext(**values)


ATTEMPT = "pgflowd_attempt"  # the savepoint to which a failed attempt is undone


@dataclass
class TestedContext(FakeContext):
    """The context of one attempt, whose checkpoints and waits are in the engine."""

    __test__ = False  # pytest takes the name for a class of tests

    engine: Engine = field(kw_only=True)
    task: TaskRow = field(kw_only=True)
    started_children: TestedChildren = field(kw_only=True)
    moment: datetime = field(kw_only=True)  # by the calendar
    version: int = 1  # the option of the step

    def __post_init__(self) -> None:
        self._version, self._tested_children = self.version, self.started_children
        self.progress_told, self.waited_s = self.task.progress_told, self.engine.now

    def _tell_progress(self, told: Document) -> None:
        self.progress_told.clear()  # the last value is what counts
        super()._tell_progress(told)

    def _moment(self) -> datetime:
        return self.moment

    def _read_checkpoints(self) -> list[Checkpoint]:
        return list(self.task.saved.values())

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._refuse_if_over()
        self._room.take(checkpoint)
        self.task.saved[checkpoint.name] = checkpoint

    def _forget(self, name: str) -> None:
        self._refuse_if_over()
        self._room.give_back(name)
        del self.task.saved[name]

    def _refuse_if_over(self) -> None:
        """Raise if a task beside this one has ended the run or the step."""
        if not self.engine.is_going_on(self.task.state):
            raise LeaseLost("the run or the step has ended, so nothing is kept for it")

    def _end_of(self, wait: Wait) -> Any:
        if wait.runs:
            self.engine.ended_at[wait.runs] = self._tested_children.ended_at(wait.runs)
        return Context._end_of(self, self._from_now(wait))

    @contextmanager
    def _work_of_memo(self) -> Iterator[Keep]:
        """Keep what the function did on the connection with its result, or undo both."""
        if self.connection is None or self.connection.autocommit:
            yield self._keep
            return
        self.connection.execute("savepoint pgflowd_memo")
        try:
            yield self._keep_with_work
        except BaseException:
            with suppress(self.connection.Error):  # the function has ended the transaction
                self.connection.execute("rollback to savepoint pgflowd_memo")
            raise

    def _keep_with_work(self, checkpoint: Checkpoint) -> None:
        self.conn().execute(f"savepoint {ATTEMPT}")  # if the attempt fails, it is undone to here
        self._keep(checkpoint)
