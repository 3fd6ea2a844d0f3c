"""
`run_flow`: a whole flow in this process, without database, daemon or waiting.

    run = run_flow(flow, {"url": "x"}, mock={"website": {}}, fail={"summary": [TimeoutError, None]})
    assert run.steps["summary"].attempts == 2

The engine decides as the SQL does. Time is virtual, so a retry or the end of a sleep due in an hour
happens at once, and no timeout of a step is enforced. Tasks run one after the other. Each handler
gets its own copies of all values, as from the database, so it changes no other's.

    mock        a step's output, or a function to call instead of its handler, with those of the
                handler's arguments that it names
    fail        the exceptions that a step's attempts raise: a list for the first attempts, with
                None for one that raises nothing, or one exception for all attempts
    signals     for each name a payload, a list of payloads, or `(seconds, payload)`
    children    for each flow that handlers start a flow, or a function from input to output
    labels, scheduled_for
                what `ctx.labels` and `ctx.scheduled_for` return
    now         when the run begins; the time by the calendar goes on from there in virtual time
    connection  what `ctx.conn()` returns: it is never committed, and the work of an attempt that
                did not complete its task is rolled back unless it is in autocommit

A run is undone as in the database: a task is undone if it completed, though the run had failed
before; with `on="attempted"` also if its handler was called at all.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from pgflowd.core.definition.schedule import labels_of, singleton_of
from pgflowd.core.definition.shape import FlowPlan, plan_of
from pgflowd.core.definition.spec import CTX, FlowSpec, StepSpec, arguments_for, undo_arguments
from pgflowd.core.failure import failure_of
from pgflowd.core.json import as_stored, deep_copy
from pgflowd.core.statuses import RunStatus, TaskStatus
from pgflowd.core.text import did_you_mean
from pgflowd.core.typed.codec import stored_value
from pgflowd.core.undo import FAILURE_MARK, Original, Undo
from pgflowd.core.waiting import RESERVED_PREFIXES, Suspended, Wait, suspension_of, swallowed
from pgflowd.flow import Flow
from pgflowd.processes.runner.execution import traceback_of
from pgflowd.processes.runner.handler import Resources
from pgflowd.testing.context import ATTEMPT, TestedChildren, TestedContext, sent_signals
from pgflowd.testing.engine import Engine
from pgflowd.testing.engine_rows import (
    ClaimedRecord,
    EngineRun,
    Key,
    TaskRow,
    element_of,
    json_null,
    waiting,
)
from pgflowd.testing.result import FlowRun, result_of, runs_of_test

if TYPE_CHECKING:
    from psycopg import Connection

Raised = BaseException | type[BaseException] | None

# of one task: a test with more of them would never end
MAX_ATTEMPTS = 100_000
MAX_WAITS = 1000  # each begins the handler again, which passes all before it


class TaskQueue(Protocol):
    """The part of the engine that `execute_tasks` calls; a test records these calls."""

    def claim(self) -> list[ClaimedRecord]: ...
    def complete(self, key: Key, output: Any) -> TaskRow | None: ...
    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> Any: ...
    def release(self, key: Key, delay_s: float, at_most_s: float) -> bool: ...
    def suspend(self, key: Key, wait: Wait) -> Any: ...
    def advance_to_next(self) -> bool: ...


def run_flow(
    flow: Flow | Callable[..., Any],
    input: Any = None,
    *,
    mock: Mapping[str, Any] | None = None,
    fail: Mapping[str, Raised | Sequence[Raised]] | None = None,
    signals: Mapping[str, Any] | None = None,
    children: Mapping[str, Any] | None = None,
    labels: Mapping[str, str] | None = None,
    scheduled_for: datetime | None = None,
    connection: Connection[Any] | None = None,
    now: datetime | None = None,
) -> FlowRun:
    """
    Execute a flow, or a job, to its end. A failed run is a value, not an exception.

    RuntimeError if a task waits for a signal that nothing sends.
    """
    of_job = getattr(flow, "flow", None)
    if isinstance(of_job, Flow):
        flow = of_job
    if not isinstance(flow, Flow):
        raise TypeError(f"run_flow takes a Flow or a job, not {flow!r}")
    engine = Engine(flow.shape(), flow.slug)
    run = engine.start(stored_value(input, what="input"))
    for signal in sent_signals({} if signals is None else signals):
        engine.signal(run.run_id, signal)
    handlers = TestedHandlers(
        flow, run, {} if mock is None else mock, {} if fail is None else fail, connection
    )
    handlers.wish(labels or {}, scheduled_for)
    handlers.children = TestedChildren({} if children is None else children)
    handlers.began_at = _checked_now(now)
    result = _executed(engine, handlers)
    if run.status is RunStatus.FAILED and flow.shape()["options"].get("onFailure") == "undo":
        result = _undone(result, handlers)
    runs_of_test.append(result)
    _refuse_unanswered(handlers.run)
    return result


def _executed(engine: Engine, handlers: TestedHandlers) -> FlowRun:
    """Execute the run of these handlers to its end."""
    handlers.now = lambda: engine.now
    with handlers.lifespan():
        execute_tasks(engine, handlers)
    started = tuple(handlers.children.started.values())
    return result_of(engine, handlers.run, handlers.tracebacks, started)


def _undone(result: FlowRun, handlers: TestedHandlers) -> FlowRun:
    """Undo a run that has failed; signals that nobody has got are for its undo."""
    flow, undone = handlers.undo_flow, handlers.undone
    assert flow is not None
    given = undone.undo_input(handlers.flow.spec)
    if not given["plan"]:
        return replace(result, status=str(RunStatus.UNDONE))
    engine = Engine(flow.shape(), flow.slug)
    run = engine.start(given, f"undo-of-{undone.run.run_id}")
    for signal in undone.run.signals:
        if signal.receiver is None:
            sent_at = max(0.0, signal.sent_at - result.took_s)
            engine.signal(run.run_id, replace(signal, sent_at=sent_at))
    handlers.flow, handlers.run = flow, run
    handlers.labels, handlers.scheduled_for = {}, None
    handlers.children = TestedChildren(handlers.children.given)
    undo = _executed(engine, handlers)
    return replace(result, status=str(status_after(run)), undo=undo)


def execute_tasks(queue: TaskQueue, handlers: TestedHandlers) -> None:
    """Execute the tasks of a started run in the order of the queue, until none is left."""
    while True:
        records = queue.claim()
        for record in records:
            try:
                output = handlers.execute(record)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                _fail(queue, handlers, record, error)
            except (Suspended, BaseExceptionGroup) as error:
                if suspended := suspension_of(error):
                    _refuse_endless_waits(handlers.run, record)
                    queue.suspend(record.key, suspended.wait)
                elif isinstance(error, BaseExceptionGroup) and error.subgroup(Suspended):
                    _fail(queue, handlers, record, error)
                else:
                    raise
            else:
                task = queue.complete(record.key, output)
                if task is None or task.status is not TaskStatus.COMPLETED:
                    handlers.undone.late[record.key] = output
                    _undo_attempt(handlers.connection)
        if not records and not queue.advance_to_next():
            return


def _fail(
    queue: TaskQueue, handlers: TestedHandlers, record: ClaimedRecord, error: BaseException
) -> None:
    _refuse_endless(record)
    handlers.tracebacks[record.key] = traceback_of(error)
    failure = failure_of(error, is_last=record.attempt >= record.max_attempts)
    delay_s, at_most_s = failure.delay_s, failure.at_most_s
    if delay_s is not None and at_most_s is not None:
        if not queue.release(record.key, delay_s, at_most_s):
            queue.fail(record.key, failure.message, delay_s=delay_s)
        return
    queue.fail(record.key, failure.message, retry=failure.retry, delay_s=delay_s)


class TestedHandlers:
    """The handlers of a flow, with the mocks and failures of a test."""

    __test__ = False  # pytest takes the name for a class of tests

    def __init__(
        self,
        flow: Flow,
        run: EngineRun,
        mock: Mapping[str, Any],
        fail: Mapping[str, Raised | Sequence[Raised]],
        connection: Connection[Any] | None = None,
    ) -> None:
        self.flow, self.undo_flow, self.run = flow, flow.undo_flow, run
        self.steps = {**flow.steps, **(self.undo_flow.steps if self.undo_flow else {})}
        self.undone = UndoneRun(run, plan_of(flow.shape()))
        self.mock, self.fail, self.connection = mock, fail, connection
        self.labels: Mapping[str, str] = {}
        self.scheduled_for: datetime | None = None
        self.began_at: datetime | None = None
        self.children = TestedChildren({})
        self.now: Callable[[], float] = lambda: 0.0  # virtual time
        self.tracebacks: dict[Key, str] = {}  # of each task's last failure
        self.resources = Resources()
        self._refuse_unknown("mock", mock)
        self._refuse_unknown("fail", fail)
        for slug, raised in fail.items():
            _refuse_not_raisable(slug, raised)
        for slug, mocked in mock.items():
            if callable(mocked):
                refuse_unknown_parameters(self.steps[slug], mocked)

    def wish(self, labels: Mapping[str, str], scheduled_for: datetime | None) -> None:
        """What a start asks for, and what the flow says of each. E432 where that cannot be."""
        given, options = self.run.input, self.flow.options
        self.labels, self.scheduled_for = labels_of(options, given) | dict(labels), scheduled_for
        singleton_of(self.flow.slug, options, given)

    @contextmanager
    def lifespan(self) -> Iterator[None]:
        """Enter the flow's lifespan, as a runner does."""
        self.resources = Resources(self.flow.spec.lifespan)
        apart(self.resources.enter)
        try:
            yield
        finally:
            apart(self.resources.leave)

    def execute(self, record: ClaimedRecord) -> Any:
        """Return the output of one attempt as the database would store it, or raise."""
        step = self.steps[record.step_slug]
        context = self._context(record)
        given = self._arguments(step, record, context)
        if given is None:
            return None
        arguments = {
            name: value if name == CTX else deep_copy(value) for name, value in given.items()
        }
        if step.codec is not None:
            arguments = step.codec.decoded(arguments)
        self.undone.begun.add(record.key)
        raised = self.fail.get(step.slug)
        if isinstance(raised, Sequence):
            raised = raised[record.attempt - 1] if record.attempt <= len(raised) else None
        if raised is not None:
            raise raised
        with _undone_if_failed(self.connection):
            output = copy_context().run(self._call, step, arguments)
            if context.suspended:
                raise swallowed(context.suspended)
            return as_stored(output if step.codec is None else step.codec.encoded(output))

    def _arguments(
        self, step: StepSpec, record: ClaimedRecord, context: TestedContext
    ) -> dict[str, Any] | None:
        """The arguments of a handler; None if it has nothing to undo."""
        if step.undoes is None:
            return arguments_for(step, record, lambda: self.run.input, context)
        original = self.undone.original(self.run.input, step.undoes, record.task_index)
        if original is not None:
            context.undo, context.run_input = original.undo, self.undone.run.input
        return undo_arguments(step, original, context)

    def _call(self, step: StepSpec, arguments: dict[str, Any]) -> Any:
        handler = self.mock.get(step.slug, step.handler)
        if not callable(handler):
            return handler
        if step.slug in self.mock:
            arguments = named_by(handler, arguments)
        output = handler(**arguments)
        return awaited(output, self.resources) if inspect.iscoroutine(output) else output

    def _context(self, record: ClaimedRecord) -> TestedContext:
        return TestedContext(
            run=self.run,
            tested_children=self.children,
            now=self.now(),
            moment=self.moment(),
            version=self.steps[record.step_slug].options.get("version", 1),
            run_id=record.run_id,
            flow_slug=self.flow.slug,
            step_slug=record.step_slug,
            task_index=record.task_index,
            attempt=record.attempt,
            max_attempts=record.max_attempts,
            token=record.attempt,
            resources=self.resources.value,
            caps=self.run.states[record.step_slug].tasks[record.task_index].caps,
            deadline=self.moment() + timedelta(seconds=record.timeout_s),
            labels=self.labels,
            scheduled_for=self.scheduled_for,
            run_input=self.run.input,
            steps=self.flow.steps,
            step_outputs={
                state.slug: json_null(state.output) for state in self.run.states.values()
            },
            connection=self.connection,
        )

    def moment(self) -> datetime:
        """The time by the calendar: virtual, if the test has said when it begins."""
        if self.began_at is None:
            return datetime.now(UTC)  # as handlers read it that ask the clock
        return self.began_at + timedelta(seconds=self.now())

    def _refuse_unknown(self, argument: str, by_slug: Mapping[str, Any]) -> None:
        if not isinstance(by_slug, Mapping):
            raise TypeError(
                f"{argument} must be a dict with slugs of steps as keys, not {by_slug!r}"
            )
        for name in by_slug:
            if not isinstance(name, str):
                raise TypeError(f"{argument} names {name!r}; write the slug of the step")
            if name not in self.steps:
                hint = did_you_mean(name, self.steps)
                text = f"{argument} names '{name}', which is not a step of {self.flow.slug}"
                raise ValueError(f"{text}; {hint}" if hint else text)


def _checked_now(now: datetime | None) -> datetime | None:
    if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
        raise TypeError(f"now must be a datetime with a time zone, not {now!r}")
    return now


@contextmanager
def _undone_if_failed(connection: Connection[Any] | None) -> Iterator[None]:
    """Roll back what a failed attempt did on the connection of the test."""
    if connection is None or connection.autocommit:
        yield
        return
    connection.execute(f"savepoint {ATTEMPT}")
    try:
        yield
    except BaseException:
        _undo_attempt(connection)
        raise


def _undo_attempt(connection: Connection[Any] | None) -> None:
    """Roll back the work of an attempt that did not complete its task."""
    if connection is None or connection.autocommit:
        return
    try:
        connection.execute(f"rollback to savepoint {ATTEMPT}")
    except connection.Error:  # the handler has ended the transaction
        connection.rollback()


def _refuse_not_raisable(slug: str, raised: Raised | Sequence[Raised]) -> None:
    for one in raised if isinstance(raised, Sequence) and not isinstance(raised, str) else [raised]:
        is_type = isinstance(one, type) and issubclass(one, BaseException)
        if one is not None and not is_type and not isinstance(one, BaseException):
            raise TypeError(f"fail has {one!r} for step {slug}; give exceptions, or None for none")


def _refuse_endless(record: ClaimedRecord) -> None:
    if record.attempt >= MAX_ATTEMPTS:
        raise RuntimeError(
            f"step {record.step_slug} has failed {record.attempt} attempts of"
            f" {record.max_attempts}; let one succeed, by mock= or a list in fail="
        )


def _refuse_endless_waits(run: EngineRun, record: ClaimedRecord) -> None:
    task = run.states[record.step_slug].tasks[record.task_index]
    ended = sum(name.startswith(RESERVED_PREFIXES) for name in task.saved)
    if ended + task.hand_ons >= MAX_WAITS:
        raise RuntimeError(
            f"step {record.step_slug} has waited {MAX_WAITS} times; let it end, by mock= or by what"
            " its handler reads"
        )


def _refuse_unanswered(run: EngineRun) -> None:
    """Raise if the run goes no further, since a task waits for a signal that nothing sends."""
    first = min(waiting(run), key=lambda each: each[1].nr, default=None)
    if first:
        task, wait = first
        unused = {signal.name for signal in run.signals if signal.receiver is None}
        remedy = did_you_mean(str(wait.name), unused) or f"give signals={{'{wait.name}': …}}"
        text = f"step {task.step_slug} waits for signal '{wait.name}', which nothing sends"
        raise RuntimeError(f"{text}; {remedy}")


def awaited(coroutine: Coroutine[Any, Any, Any], resources: Resources) -> Any:
    """What an async handler returns; it gets a new event loop, unless the lifespan has one."""

    def execute() -> Any:
        if resources.loop is not None:
            return resources.run(coroutine, lambda task: None)
        # a factory, since `asyncio.run` would take away the thread's own loop
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(coroutine)

    return apart(execute)


def apart(execute: Callable[[], Any]) -> Any:
    """Call a function that runs an event loop: in a thread where one is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return execute()
    with ThreadPoolExecutor(1, "async handler") as thread:
        return thread.submit(copy_context().run, execute).result()


def named_by(mocked: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a mock has parameters for; all of them if it takes any."""
    names = parameters_of(mocked)
    return arguments if names is None else {n: v for n, v in arguments.items() if n in names}


def parameters_of(mocked: Callable[..., Any]) -> set[str] | None:
    """The names of a mock's parameters; None if it takes any, or does not tell."""
    try:
        parameters = inspect.signature(mocked).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return {each.name for each in parameters if each.kind is not each.VAR_POSITIONAL}


def refuse_unknown_parameters(step: StepSpec, mocked: Callable[..., Any]) -> None:
    known = {each.name for each in step.parameters}
    for name in sorted((parameters_of(mocked) or set()) - known):
        parameter = inspect.signature(mocked).parameters[name]
        if parameter.default is parameter.empty:
            hint = did_you_mean(name, known) or f"it has {', '.join(sorted(known)) or 'none'}"
            text = f"mock of step {step.slug} takes '{name}', which its handler does not take"
            raise ValueError(f"{text}; {hint}")


@dataclass
class UndoneRun:
    """A run, and what its undo has to know about it."""

    run: EngineRun
    plan: FlowPlan
    begun: set[Key] = field(default_factory=set)  # tasks whose handler was called
    late: dict[Key, Any] = field(default_factory=dict)  # outputs that came when the run had ended

    def undo_input(self, flow: FlowSpec) -> dict[str, Any]:
        """The input of the run that undoes this one."""
        found = {
            undo.step: [
                task.index
                for task in self.run.states[undo.step].tasks
                if self._has_completed(task)
                or (undo.options["on"] == "attempted" and task.key in self.begun)
            ]
            for undo in flow.undos
            if undo.step in self.run.states
        }
        plan = {slug: indexes for slug, indexes in found.items() if indexes}
        cause = next(each.error for each in self.run.events if each.type == "run:failed")
        return {"run_id": self.run.run_id, "generation": 1, "cause": cause, "plan": plan}

    def original(self, given: Mapping[str, Any], step: str, nr: int) -> Original | None:
        """The task that the one with this number undoes, if there is one in the plan."""
        indexes = given["plan"].get(step, [])
        if nr >= len(indexes):
            return None
        task = self.run.states[step].tasks[indexes[nr]]
        parts: dict[str, Any] = {"run": self.run.input}
        if self._has_completed(task):
            output = task.output if task.status is TaskStatus.COMPLETED else self.late[task.key]
            parts["output"] = json_null(output)
        if self.plan.steps[step].is_map:
            parts["item"] = element_of(self.run, self.plan.steps[step], task.index)
        undo = Undo(self.run.run_id, task.index, given["cause"], given["generation"])
        return Original(undo, deep_copy(parts))

    def _has_completed(self, task: TaskRow) -> bool:
        return task.status is TaskStatus.COMPLETED or task.key in self.late


def status_after(undo: EngineRun) -> RunStatus:
    """The status of a run when its undo has ended."""
    outputs = [task.output for state in undo.states.values() for task in state.tasks]
    has_failed = any(isinstance(output, dict) and FAILURE_MARK in output for output in outputs)
    is_undone = undo.status is RunStatus.COMPLETED and not has_failed
    return RunStatus.UNDONE if is_undone else RunStatus.UNDO_FAILED
