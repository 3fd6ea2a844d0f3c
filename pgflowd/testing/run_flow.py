"""
Run flow: a whole flow in this process, without database, daemon or waiting.

    run = run_flow(flow, {"url": "x"}, mock={"website": {}}, fail={"summary": [TimeoutError, None]})
    assert run.steps["summary"].attempts == 2

The engine decides as the SQL does; time is virtual, so a retry in an hour is at once, and no
timeout is enforced. Tasks run one after the other. `mock` gives a step's output, or a function
called instead of its handler; `fail` gives what its attempts raise, None for none: a list
for the first ones, or one exception for all. As from the database, everybody gets values of
their own: what a handler does to its arguments, nobody else sees.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from pgflowd.core.definition.arguments import arguments_for
from pgflowd.core.definition.spec import CTX, StepSpec
from pgflowd.core.failure import failure_of
from pgflowd.core.json.values import copied, stored
from pgflowd.core.suggest import did_you_mean
from pgflowd.flow import Flow
from pgflowd.testing.context import FakeContext
from pgflowd.testing.engine import ClaimedRecord, Engine, Key
from pgflowd.testing.result import FlowRun, remember, result_of
from pgflowd.testing.rows import EngineRun, json_null

Raised = BaseException | type[BaseException] | None

MOST_ATTEMPTS = 100_000  # of one task; whoever wants more has a loop without an end


class Machine(Protocol):
    """The part of the engine that a run is driven by."""

    def claim(self) -> list[ClaimedRecord]: ...
    def complete(self, key: Key, output: Any) -> Any: ...
    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> Any: ...
    def advance_to_next(self) -> bool: ...


def run_flow(
    flow: Flow | Callable[..., Any],
    input: Any = None,
    *,
    mock: Mapping[str, Any] | None = None,
    fail: Mapping[str, Raised | Sequence[Raised]] | None = None,
) -> FlowRun:
    """Run a flow, or a job, to its end. A failed run is a value, not an exception."""
    if not isinstance(flow, Flow):
        flow = _flow_of_job(flow)
    engine = Engine(flow.shape(), flow.slug)
    row = engine.start(stored(input, what="input"))
    actors = Actors(flow, row, {} if mock is None else mock, {} if fail is None else fail)
    drive(engine, actors)
    return remember(result_of(flow.slug, engine, row))


def drive(machine: Machine, actors: Actors) -> None:
    """Let the tasks of a started run be done, in the order of the queue, until none is left."""
    while True:
        records = machine.claim()
        for record in records:
            try:
                output = actors.act(record)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                _refuse_endless(record)
                failure = failure_of(error)
                machine.fail(
                    record.key, failure.message, retry=failure.retry, delay_s=failure.delay_s
                )
            else:
                machine.complete(record.key, output)
        if not records and not machine.advance_to_next():
            return


class Actors:
    """Who does the tasks: handlers, or what a test put in their place."""

    def __init__(
        self,
        flow: Flow,
        run: EngineRun,
        mock: Mapping[str, Any],
        fail: Mapping[str, Raised | Sequence[Raised]],
    ) -> None:
        self.flow, self.steps, self.run = flow, flow.steps, run
        self.mock, self.fail = mock, fail
        self._refuse_unknown("mock", mock)
        self._refuse_unknown("fail", fail)
        for slug, told in fail.items():
            _refuse_what_cannot_be_raised(slug, told)

    def act(self, record: ClaimedRecord) -> Any:
        """Return the output of one attempt as the database would store it, or raise."""
        step = self.steps[record.step_slug]
        context = self._context(record)
        arguments = arguments_for(step, record, lambda: self.run.input, context)
        own = {name: value if name == CTX else copied(value) for name, value in arguments.items()}
        self._raise_as_told(record)
        output = copy_context().run(self._called, step, own)
        return stored(output)

    def _called(self, step: StepSpec, arguments: dict[str, Any]) -> Any:
        stand_in = self.mock.get(step.slug, step.handler)
        if not callable(stand_in):
            return stand_in
        output = stand_in(**arguments)
        return _awaited(output) if inspect.iscoroutine(output) else output

    def _raise_as_told(self, record: ClaimedRecord) -> None:
        told = self.fail.get(record.step_slug)
        if isinstance(told, Sequence):
            told = told[record.attempt - 1] if record.attempt <= len(told) else None
        if told is not None:
            raise told

    def _context(self, record: ClaimedRecord) -> FakeContext:
        return FakeContext(
            run_id=record.run_id,
            flow_slug=self.flow.slug,
            step_slug=record.step_slug,
            task_index=record.task_index,
            attempt=record.attempt,
            max_attempts=record.max_attempts,
            token=record.attempt,
            deadline=datetime.now(UTC) + timedelta(seconds=record.timeout_s),
            run_input=self.run.input,
            steps=self.steps,
            step_outputs={
                state.slug: json_null(state.output) for state in self.run.states.values()
            },
        )

    def _refuse_unknown(self, what: str, by_slug: Mapping[str, Any]) -> None:
        if not isinstance(by_slug, Mapping):
            raise TypeError(f"{what} is a dict by the slugs of steps, not {by_slug!r}")
        for name in by_slug:
            if not isinstance(name, str):
                raise TypeError(f"{what} names {name!r}; write the slug of the step")
            if name not in self.steps:
                hint = did_you_mean(name, self.steps)
                text = f"{what} names '{name}', which is no step of {self.flow.slug}"
                raise ValueError(f"{text}; {hint}" if hint else text)


def _refuse_what_cannot_be_raised(slug: str, told: Raised | Sequence[Raised]) -> None:
    for one in told if isinstance(told, Sequence) and not isinstance(told, str) else [told]:
        is_type = isinstance(one, type) and issubclass(one, BaseException)
        if one is not None and not is_type and not isinstance(one, BaseException):
            raise TypeError(f"fail has {one!r} for step {slug}; give exceptions, or None for none")


def _refuse_endless(record: ClaimedRecord) -> None:
    if record.attempt >= MOST_ATTEMPTS:
        raise RuntimeError(
            f"step {record.step_slug} has failed {record.attempt} attempts of"
            f" {record.max_attempts}; let one succeed, by mock= or a list in fail="
        )


def _flow_of_job(function: Any) -> Flow:
    flow = getattr(function, "flow", None)
    if not isinstance(flow, Flow):
        raise TypeError(f"run_flow takes a Flow or a job, not {function!r}")
    return flow


def _awaited(output: Any) -> Any:
    """Run an async handler in a loop of its own, beside a running one if need be."""

    async def wait() -> Any:
        return await output

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _in_new_loop(wait())
    return _in_thread(lambda: _in_new_loop(wait()))


def _in_new_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Do what `asyncio.run` does, and leave the thread's own loop alone."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(coroutine)


def _in_thread(call: Callable[[], Any]) -> Any:
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=copy_context().run, args=(work,), name="async handler")
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]
