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
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgflowd.core.definition.schedule import labels_of, singleton_of
from pgflowd.core.definition.shape import FlowPlan
from pgflowd.core.definition.spec import CTX, StepSpec, arguments_for, undo_arguments
from pgflowd.core.documents.runs import TypedOutputs
from pgflowd.core.failure import failure_of, place_of
from pgflowd.core.graph import Graph, Node, draw
from pgflowd.core.json import as_stored, deep_copy
from pgflowd.core.statuses import RunStatus, StepStatus, TaskStatus
from pgflowd.core.text import did_you_mean
from pgflowd.core.typed.codec import stored_value
from pgflowd.core.undo import FAILURE_MARK, Original, Undo
from pgflowd.core.waiting import RESERVED_PREFIXES, Suspended, suspension_of
from pgflowd.flow import Flow
from pgflowd.processes.runner.context import traceback_of
from pgflowd.processes.runner.handler import Resources
from pgflowd.testing.context import (
    ATTEMPT,
    StartedChild,
    TestedChildren,
    TestedContext,
    sent_signals,
)
from pgflowd.testing.engine import ClaimedRecord, EndedWait, Engine, EngineStep, TaskRow, json_null

if TYPE_CHECKING:
    from psycopg import Connection

Raised = BaseException | type[BaseException] | None

# of one task: a test with more of them would never end
MAX_ATTEMPTS = 100_000
MAX_WAITS = 1000  # each begins the handler again, which passes all before it


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
    engine = Engine(flow.shape(), flow.slug).start(stored_value(input, what="input"))
    for signal in sent_signals({} if signals is None else signals):
        engine.signal(signal)
    handlers = TestedHandlers(
        flow, engine, {} if mock is None else mock, {} if fail is None else fail, connection
    )
    given = engine.input
    handlers.labels = labels_of(flow.options, given) | dict(labels or {})
    handlers.scheduled_for = scheduled_for
    singleton_of(flow.slug, flow.options, given)  # E432 where there can be none
    handlers.children = TestedChildren({} if children is None else children)
    if now is not None and (not isinstance(now, datetime) or now.utcoffset() is None):
        raise TypeError(f"now must be a datetime with a time zone, not {now!r}")
    handlers.began_at = now
    result = _executed(handlers)
    if engine.status is RunStatus.FAILED and flow.shape()["options"].get("onFailure") == "undo":
        result = _undone(result, handlers)
    runs_of_test.append(result)
    # raise if the run goes no further, since a task waits for a signal that nothing sends
    if first := min(handlers.engine.waiting(), key=lambda each: each[1].nr, default=None):
        task, wait = first
        unused = {each.name for each in handlers.engine.signals if each.receiver is None}
        remedy = did_you_mean(str(wait.name), unused) or f"give signals={{'{wait.name}': …}}"
        text = f"step {task.step_slug} waits for signal '{wait.name}', which nothing sends"
        raise RuntimeError(f"{text}; {remedy}")
    return result


def _executed(handlers: TestedHandlers) -> FlowRun:
    """Execute the run of these handlers to its end."""
    with handlers.lifespan():
        execute_tasks(handlers)
    return result_of(handlers.engine, tuple(handlers.children.started.values()))


def _undone(result: FlowRun, handlers: TestedHandlers) -> FlowRun:
    """Undo a run that has failed; signals that nobody has got are for its undo."""
    flow, failed = handlers.undo_flow, handlers.engine
    assert flow is not None
    found = {
        undo.step: [
            task.index
            for task in failed.states[undo.step].tasks
            if task.has_completed or (undo.options["on"] == "attempted" and task.has_begun)
        ]
        for undo in handlers.flow.spec.undos
        if undo.step in failed.states
    }
    plan = {slug: indexes for slug, indexes in found.items() if indexes}
    if not plan:
        return replace(result, status=str(RunStatus.UNDONE))
    cause = next(each.error for each in failed.events if each.type == "run:failed")
    given = {"run_id": failed.run_id, "generation": 1, "cause": cause, "plan": plan}
    engine = Engine(flow.shape(), flow.slug).start(given, f"undo-of-{failed.run_id}")
    for signal in failed.signals:
        if signal.receiver is None:
            engine.signal(replace(signal, sent_at=max(0.0, signal.sent_at - result.took_s)))
    handlers.flow, handlers.engine, handlers.undone = flow, engine, failed
    handlers.labels, handlers.scheduled_for = {}, None
    handlers.children = TestedChildren(handlers.children.given)
    undo = _executed(handlers)
    outputs = [task.output for state in engine.states.values() for task in state.tasks]
    has_failed = any(isinstance(output, dict) and FAILURE_MARK in output for output in outputs)
    is_undone = engine.status is RunStatus.COMPLETED and not has_failed
    status = RunStatus.UNDONE if is_undone else RunStatus.UNDO_FAILED
    return replace(result, status=str(status), undo=undo)


def _original(failed: Engine, given: Mapping[str, Any], step: str, nr: int) -> Original | None:
    """The task that the one with this number undoes, if there is one in the plan."""
    indexes = given["plan"].get(step, [])
    if nr >= len(indexes):
        return None
    state = failed.states[step]
    task = state.tasks[indexes[nr]]
    parts: dict[str, Any] = {"run": failed.input}
    if task.has_completed:
        is_late = task.status is not TaskStatus.COMPLETED
        parts["output"] = json_null(task.late_output if is_late else task.output)
    if state.plan.is_map:
        parts["item"] = failed.element(state, task.index)
    undo = Undo(failed.run_id, task.index, given["cause"], given["generation"])
    return Original(undo, deep_copy(parts))


def execute_tasks(handlers: TestedHandlers) -> None:
    """Execute the tasks of a started run in the order of the queue, until none is left."""
    engine = handlers.engine
    while True:
        records = engine.claim()
        for record in records:
            task = engine.find(record.key)
            assert task is not None
            try:
                output = handlers.execute(record, task)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                _fail(engine, task, record, error)
            except (Suspended, BaseExceptionGroup) as error:
                if suspended := suspension_of(error):
                    waits = sum(name.startswith(RESERVED_PREFIXES) for name in task.saved)
                    if waits + task.hand_ons >= MAX_WAITS:
                        text = f"step {task.step_slug} has waited {MAX_WAITS} times; let it end,"
                        text += " by mock= or by what its handler reads"
                        raise RuntimeError(text) from None
                    engine.suspend(record.key, suspended.wait)
                elif isinstance(error, BaseExceptionGroup) and error.subgroup(Suspended):
                    _fail(engine, task, record, error)
                else:
                    raise
            else:
                engine.complete(record.key, output)
                if task.status is not TaskStatus.COMPLETED:
                    task.late_output = output
                    _undo_attempt(handlers.connection)
        if not records and not engine.advance_to_next():
            return


def _fail(engine: Engine, task: TaskRow, record: ClaimedRecord, error: BaseException) -> None:
    if record.attempt >= MAX_ATTEMPTS:
        raise RuntimeError(
            f"step {record.step_slug} has failed {record.attempt} attempts of"
            f" {record.max_attempts}; let one succeed, by mock= or a list in fail="
        )
    task.traceback = traceback_of(error)
    failure = failure_of(error, is_last=record.attempt >= record.max_attempts)
    delay_s, at_most_s = failure.delay_s, failure.at_most_s
    if delay_s is not None and at_most_s is not None:
        if not engine.release(record.key, delay_s, at_most_s):
            engine.fail(record.key, failure.message, delay_s=delay_s)
        return
    engine.fail(record.key, failure.message, retry=failure.retry, delay_s=delay_s)


@dataclass
class TestedHandlers:
    """The handlers of a flow and one of its runs, with the mocks and failures of a test."""

    __test__ = False  # pytest takes the name for a class of tests

    flow: Flow
    engine: Engine
    mock: Mapping[str, Any] = field(default_factory=dict)
    fail: Mapping[str, Raised | Sequence[Raised]] = field(default_factory=dict)
    connection: Connection[Any] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduled_for: datetime | None = None
    began_at: datetime | None = None
    children: TestedChildren = field(default_factory=lambda: TestedChildren({}))
    undone: Engine | None = None  # the run that is undone
    resources: Resources = field(default_factory=Resources)

    def __post_init__(self) -> None:
        self.undo_flow = self.flow.undo_flow
        self.steps = {**self.flow.steps, **(self.undo_flow.steps if self.undo_flow else {})}
        self._refuse_unknown("mock", self.mock)
        self._refuse_unknown("fail", self.fail)
        for slug, given in self.fail.items():
            several = isinstance(given, Sequence) and not isinstance(given, str)
            for raised in given if several else [given]:  # type: ignore[union-attr]
                is_type = isinstance(raised, type) and issubclass(raised, BaseException)
                if raised is not None and not is_type and not isinstance(raised, BaseException):
                    text = f"fail has {raised!r} for step {slug}"
                    raise TypeError(f"{text}; give exceptions, or None for none")
        for slug, mocked in self.mock.items():
            known = {each.name for each in self.steps[slug].parameters}
            parameters = (_parameters_of(mocked) if callable(mocked) else None) or {}
            for name in sorted(parameters.keys() - known):
                if parameters[name].default is inspect.Parameter.empty:
                    hint = did_you_mean(name, known)
                    hint = hint or f"it has {', '.join(sorted(known)) or 'none'}"
                    text = f"mock of step {slug} takes '{name}', which its handler does not take"
                    raise ValueError(f"{text}; {hint}")

    @contextmanager
    def lifespan(self) -> Iterator[None]:
        """Enter the flow's lifespan, as a runner does."""
        self.resources = Resources(self.flow.spec.lifespan)
        apart(self.resources.enter)
        try:
            yield
        finally:
            apart(self.resources.leave)

    def execute(self, record: ClaimedRecord, task: TaskRow) -> Any:
        """Return the output of one attempt as the database would store it, or raise."""
        step = self.steps[record.step_slug]
        context = self._context(record, task)
        given = self._arguments(step, record, context)
        if given is None:
            return None
        arguments = {
            name: value if name == CTX else deep_copy(value) for name, value in given.items()
        }
        if step.codec is not None:
            arguments = step.codec.decoded(arguments)
        task.has_begun = True
        raised = self.fail.get(step.slug)
        if isinstance(raised, Sequence):
            raised = raised[record.attempt - 1] if record.attempt <= len(raised) else None
        if raised is not None:
            raise raised
        if self.connection is not None and not self.connection.autocommit:
            self.connection.execute(f"savepoint {ATTEMPT}")
        try:
            output = copy_context().run(self._call, step, arguments)
            context._refuse_swallowed()
            return as_stored(output if step.codec is None else step.codec.encoded(output))
        except BaseException:
            _undo_attempt(self.connection)
            raise

    def _arguments(
        self, step: StepSpec, record: ClaimedRecord, context: TestedContext
    ) -> dict[str, Any] | None:
        """The arguments of a handler; None if it has nothing to undo."""
        if step.undoes is None:
            return arguments_for(step, record, lambda: self.engine.input, context)
        assert self.undone is not None
        original = _original(self.undone, self.engine.input, step.undoes, record.task_index)
        if original is not None:
            context.undo, context.run_input = original.undo, self.undone.input
        return undo_arguments(step, original, context)

    def _call(self, step: StepSpec, arguments: dict[str, Any]) -> Any:
        handler = self.mock.get(step.slug, step.handler)
        if not callable(handler):
            return handler
        names = _parameters_of(handler) if step.slug in self.mock else None
        if names is not None:
            arguments = {name: value for name, value in arguments.items() if name in names}
        output = handler(**arguments)
        if inspect.iscoroutine(output):
            return apart(lambda: self.resources.run(output))
        return output

    def _context(self, record: ClaimedRecord, task: TaskRow) -> TestedContext:
        states, moment = self.engine.states.values(), datetime.now(UTC)
        if self.began_at is not None:  # else as handlers read it that ask the clock
            moment = self.began_at + timedelta(seconds=self.engine.now)
        return TestedContext(
            engine=self.engine,
            task=task,
            started_children=self.children,
            moment=moment,
            version=self.steps[record.step_slug].options.get("version", 1),
            run_id=record.run_id,
            flow_slug=self.flow.slug,
            step_slug=record.step_slug,
            task_index=record.task_index,
            attempt=record.attempt,
            max_attempts=record.max_attempts,
            token=record.attempt,
            resources=self.resources.value,
            caps=task.caps,
            deadline=moment + timedelta(seconds=record.timeout_s),
            labels=self.labels,
            scheduled_for=self.scheduled_for,
            run_input=self.engine.input,
            steps=self.flow.steps,
            step_outputs={state.slug: json_null(state.output) for state in states},
            connection=self.connection,
        )

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


def _undo_attempt(connection: Connection[Any] | None) -> None:
    """Roll back the work of an attempt that did not complete its task."""
    if connection is None or connection.autocommit:
        return
    try:
        connection.execute(f"rollback to savepoint {ATTEMPT}")
    except connection.Error:  # the handler has ended the transaction
        connection.rollback()


def apart(execute: Callable[[], Any]) -> Any:
    """Call a function that runs an event loop: in a thread where one is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return execute()
    with ThreadPoolExecutor(1, "async handler") as thread:
        return thread.submit(copy_context().run, execute).result()


def _parameters_of(mocked: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    """A mock's parameters; None if it takes any, or does not tell."""
    try:
        found = inspect.signature(mocked).parameters
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in found.values()):
        return None
    return {name: each for name, each in found.items() if each.kind is not each.VAR_POSITIONAL}


# of the current test: our pytest plugin prints their pictures under a failure; more than these
# would bury it
runs_of_test: deque[FlowRun] = deque(maxlen=5)


@dataclass(frozen=True)
class TaskRun:
    """One task of a step."""

    index: int
    status: str
    attempts: int
    output: Any
    error: str | None  # of the last failed attempt
    traceback: str | None  # of the same
    saved: Mapping[str, Any]  # what its handler has kept by `memo` and `save`
    progress: Mapping[str, Any] | None = None  # what it has told last


@dataclass(frozen=True)
class StepRun:
    """One step; `attempts` is the most that any of its tasks took."""

    status: str
    attempts: int
    output: Any
    error: str | None
    traceback: str | None  # of the last task that failed
    skip_reason: str | None
    tasks: tuple[TaskRun, ...]

    @property
    def saved(self) -> Mapping[str, Any]:
        """What the handler of a step has kept; each task of a map has its own."""
        return self.tasks[0].saved if len(self.tasks) == 1 else {}

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """What the handler of a step has told last by `progress`; likewise."""
        return self.tasks[0].progress if len(self.tasks) == 1 else None


@dataclass(frozen=True)
class FlowRun(TypedOutputs):
    """A run that has ended; `output` is None where there is none."""

    flow_slug: str
    status: str
    input: Any
    output: Any
    steps: dict[str, StepRun]
    took_s: float  # in virtual time
    waits: tuple[EndedWait, ...]  # that have ended, in the order of their ends
    children: tuple[StartedChild, ...]  # in the order of their starts
    _plan: FlowPlan
    undo: FlowRun | None = None  # the run that undid this one

    @property
    def _outputs(self) -> Mapping[str, Any]:
        done = StepStatus.COMPLETED
        return {slug: step.output for slug, step in self.steps.items() if step.status == done}

    def picture(self) -> str:
        """The run as boxes and arrows, with the errors and their tracebacks below."""
        nodes = []
        for slug, plan in self._plan.steps.items():
            step = self.steps[slug]
            attempts = f" {step.attempts}/{plan.options['max_attempts']}"
            tasks = f" {len(step.tasks)} tasks" if plan.is_map and step.tasks else ""
            detail = f"{step.status}{tasks}{attempts if step.attempts > 1 else ''}"
            status = StepStatus[step.status.upper()]
            nodes.append(Node(slug, plan.deps, plan.is_map, status, detail))
        errors = []
        for slug, step in self.steps.items():
            if step.error:
                errors.append(f"{slug}: {step.error}")
                calls = (step.traceback or "").rstrip()
                errors += [textwrap.indent(calls, "  ")] if "\n" in calls.strip() else []
        head = f"{self.flow_slug} {self.status}"
        undo = [self.undo.picture()] if self.undo else []
        return "\n".join([head, draw(Graph(tuple(nodes)), width=100), *errors, *undo])

    def __str__(self) -> str:
        return self.picture()

    def __repr__(self) -> str:
        failed = {slug: step for slug, step in self.steps.items() if step.error}
        if self.status == RunStatus.COMPLETED or not failed:
            return f"FlowRun({self.flow_slug!r}, {self.status!r}, output={self.output!r})"
        slug, step = failed.popitem()
        place = place_of(step.traceback)
        error = f"{slug}: {step.error}" + (f" at {place}" if place else "")
        return f"FlowRun({self.flow_slug!r}, {self.status!r}, error={error!r})"


def result_of(engine: Engine, children: tuple[StartedChild, ...] = ()) -> FlowRun:
    """The run as `run_flow` returns it."""
    return FlowRun(
        flow_slug=engine.flow_slug,
        status=str(engine.status),
        input=engine.input,
        output=json_null(engine.output),
        steps={slug: _step(state) for slug, state in engine.states.items()},
        took_s=engine.now,
        waits=tuple(engine.waits),
        children=children,
        _plan=engine.plan,
    )


def _step(state: EngineStep) -> StepRun:
    tasks = tuple(map(_task, state.tasks))
    failed = [task for task in tasks if task.error]
    settled = [  # undos that could not be done
        task for task in failed if isinstance(task.output, dict) and FAILURE_MARK in task.output
    ]
    error = settled[-1].error if settled else state.error
    return StepRun(
        status=str(state.status),
        attempts=max((task.attempts for task in tasks), default=0),
        output=json_null(state.output),
        error=error,
        traceback=failed[-1].traceback if error and failed else None,
        skip_reason=state.skip_reason,
        tasks=tasks,
    )


def _task(task: TaskRow) -> TaskRun:
    return TaskRun(
        index=task.index,
        status=str(task.status),
        attempts=task.claims,
        output=json_null(task.output),
        error=task.error,
        traceback=task.traceback,
        saved={
            each.name: deep_copy(each.data)
            for each in task.saved.values()
            if not each.name.startswith(RESERVED_PREFIXES)
        },
        progress=task.progress_told[-1] if task.progress_told else None,
    )
