"""
`Flow` and `job`, with which users define flows.

    flow = Flow("analyze_website", max_attempts=3, timeout=60)

    @flow.step
    def website(run): ...                    # run: the run's input

    @flow.step(timeout=20)
    def sentiment(website, ctx): ...         # a parameter with the slug of a step is a dep

The decorators return their function unchanged, and only collect it: steps may have any order.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, cast, overload

from pgflowd.core.context import Context
from pgflowd.core.definition.checks import flow_problems, lifespan_problems, wait_problems
from pgflowd.core.definition.options import (
    FlowOptions,
    JobOptions,
    Limit,
    MapOptions,
    Owner,
    StepName,
    StepOptions,
    UndoOptions,
    WaitOptions,
    option_names,
)
from pgflowd.core.definition.schedule import Schedule
from pgflowd.core.definition.shape import Shape, shape_of
from pgflowd.core.definition.spec import (
    FlowSpec,
    LifespanSpec,
    StepSpec,
    UndoSpec,
    approval_handler,
    as_written,
    in_order,
    resolved_step,
    resolved_undo,
    undo_flow_of,
    wait_handler,
)
from pgflowd.core.failure import Fail, RetryAfter
from pgflowd.core.typed.codec import step_codec
from pgflowd.core.undo import Undo
from pgflowd.core.waiting import RAISE, Suspended, Time
from pgflowd.core.wishes import ChildRun
from pgflowd.errors import FlowError, Problem

__all__ = [
    "ChildRun",
    "Context",
    "Fail",
    "Flow",
    "Job",
    "Limit",
    "RetryAfter",
    "Schedule",
    "Suspended",
    "Undo",
    "job",
]

Handler = TypeVar("Handler", bound=Callable[..., Any])
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Spec = TypeVar("Spec", StepSpec, UndoSpec)


class Flow:
    """A DAG of steps. Define it in a module that the daemon's config names."""

    def __init__(self, slug: str, **options: Unpack[FlowOptions]) -> None:
        self.slug = slug if isinstance(slug, str) else f"<{slug!r}>"
        self.options: dict[str, Any] = _set(options)
        self.place = _caller()
        self.undoes: str | None = None  # the slug of another flow, whose runs it undoes
        self._steps: list[StepSpec] = []  # as written
        self._undos: list[UndoSpec] = []
        self._retired: list[tuple[int, StepSpec]] = []
        self._misuses: list[Problem] = []  # of the decorators
        self._lifespan: LifespanSpec | None = None
        self._spec: FlowSpec | None = None
        self._is_job = False

    @overload
    def step(self, handler: Handler, /) -> Handler: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> Callable[[Handler], Handler]: ...
    def step(self, handler: Any = None, /, **options: Any) -> Any:
        """Make a function a step: one task per run."""
        return self._decorator(handler, options, is_map=False)

    @overload
    def map(self, handler: Handler, /) -> Handler: ...
    @overload
    def map(self, /, **options: Unpack[MapOptions]) -> Callable[[Handler], Handler]: ...
    def map(self, handler: Any = None, /, **options: Any) -> Any:
        """Make a function a map: one task per element of a list, with the element as `item`."""
        return self._decorator(handler, options, is_map=True)

    def wait_for(
        self,
        slug: str,
        *,
        after: StepName | Sequence[StepName] = (),
        timeout: Time | None = None,
        default: Any = RAISE,
        **options: Unpack[WaitOptions],
    ) -> Callable[[Context], Any]:
        """
        Add a step that waits for the signal with its name; its output is the payload.

        `timeout`: seconds, "7d" or a timedelta. After it the output is `default`; without one the
        step fails.
        """
        handler = wait_handler(slug, timeout, default)
        self._misuses += wait_problems(slug, timeout, default, _caller())
        return self._add(handler, {"slug": slug, "after": after, **options}, _caller())

    def approval(
        self,
        slug: str,
        *,
        after: StepName | Sequence[StepName] = (),
        timeout: Time | None = None,
        **options: Unpack[WaitOptions],
    ) -> Callable[[Context], dict[str, Any]]:
        """
        Add a step that waits until somebody approves or rejects it.

        Its output has "approved", "by" and "note". A rejection fails it, or the end of `timeout`.
        """
        handler = approval_handler(slug, timeout)
        self._misuses += wait_problems(slug, timeout, RAISE, _caller())
        return self._add(handler, {"slug": slug, "after": after, **options}, _caller())

    def retired(self, *, since: int, slug: str | None = None) -> Callable[[Handler], Handler]:
        """Keep a handler for runs of versions before `since`; `slug`: of the step in those."""

        def decorate(function: Handler) -> Handler:
            step = as_written(function, _set({"slug": slug}), _place_of(function))
            self._retired.append((since, step))
            return function

        self._spec = None
        return decorate

    def undo(
        self, step: StepName, /, **options: Unpack[UndoOptions]
    ) -> Callable[[Handler], Handler]:
        """
        Let a function take back what the tasks of a step did, when their run is undone.

        It may take the step's output by its slug, the run's input, the `item` of a map, and `ctx`.
        """
        at, whole = len(self._undos), {"on": "completed", **_set(options)}
        undo = UndoSpec(cast(str, step), _caller(), None, whole)  # perhaps a function, for now
        self._undos.append(undo)
        self._spec = None

        def decorate(function: Handler) -> Handler:
            self._undos[at] = replace(undo, handler=function, place=_place_of(function))
            return function

        return decorate

    def lifespan(self, function: Handler) -> Handler:
        """
        Let a generator function, sync or async, be entered once for each runner, before its first
        task, and left at its end; what it yields is `ctx.resources`.
        """
        name, place = getattr(function, "__name__", repr(function)), _place_of(function)
        self._misuses += lifespan_problems(self.slug, function, name, place, self._lifespan)
        self._lifespan, self._spec = LifespanSpec(name, place, function), None
        return function

    def check(self) -> list[Problem]:
        """All errors and warnings of the definition, by file and line."""
        problems = [*self._misuses, *flow_problems(self.written)]
        return sorted(problems, key=attrgetter("position"))

    def shape(self) -> Shape:
        """The flow as the database knows it. Raises FlowError with all errors."""
        return shape_of(self.spec)

    @property
    def spec(self) -> FlowSpec:
        """The checked definition, steps in topological order. Raises FlowError."""
        if self._spec is None:
            errors = [problem for problem in self.check() if not problem.is_warning]
            if errors:
                raise FlowError(errors)
            spec = self.written
            steps = {step.slug: step for step in spec.steps}
            order = in_order({step.slug: step.deps for step in spec.steps})
            ordered = replace(spec, steps=tuple(steps[slug] for slug in order))
            self._spec = _with_codecs(ordered)
        return self._spec

    @property
    def steps(self) -> dict[str, StepSpec]:
        """The steps by slug, in topological order. Raises FlowError."""
        return {step.slug: step for step in self.spec.steps}

    @property
    def undo_flow(self) -> Flow | None:
        """The flow that undoes runs of this one, if a step has an undo. Raises FlowError."""
        return _UndoFlow(undo_flow_of(self.spec), self.slug) if self._undos else None

    def __repr__(self) -> str:
        return f"Flow({self.slug!r}, {len(self._steps)} steps)"

    @property
    def written(self) -> FlowSpec:
        """The definition as it is written in the file, without any check."""
        slugs = {id(each.handler): each.slug for each in self._steps}
        return FlowSpec(
            self.slug,
            self.place,
            self.options,
            steps=tuple(resolved_step(each, slugs) for each in self._steps),
            undos=tuple(resolved_undo(each, slugs) for each in self._undos),
            retired=tuple((since, resolved_step(each, {})) for since, each in self._retired),
            is_job=self._is_job,
            lifespan=self._lifespan,
        )

    def _add(self, handler: Handler, options: dict[str, Any], place: str, **more: bool) -> Handler:
        self._steps.append(as_written(handler, _set(options), place, **more))
        self._spec = None
        return handler

    def _decorator(self, handler: Any, options: dict[str, Any], *, is_map: bool) -> Any:
        def decorate(function: Handler) -> Handler:
            return self._add(function, options, _place_of(function), is_map=is_map)

        if handler is None:
            return decorate
        is_step = any(each.handler is handler for each in self._steps)
        if callable(handler) and not is_step:
            return decorate(handler)
        if is_step or isinstance(handler, str):  # such as @flow.map(items), @flow.map("items")
            given = getattr(handler, "__name__", "…") if is_step else repr(handler)
            option = "over" if is_map else "depends_on" if is_step else "slug"
            text = f"{self.slug}: a decorator takes options by name only, not {given}"
            self._misuses.append(Problem("E209", text, _caller(), f"write {option}={given}"))
        else:
            kind = type(handler).__name__
            text = f"{self.slug}: a handler must be a function; this is of type {kind}"
            self._misuses.append(Problem("E209", text, _caller()))
        return decorate


class _UndoFlow(Flow):
    """A flow whose steps were derived from those of another one."""

    def __init__(self, spec: FlowSpec, undoes: str) -> None:
        super().__init__(spec.slug)
        self.options, self.place, self._spec = dict(spec.options), spec.place, spec
        self.undoes = undoes

    def check(self) -> list[Problem]:
        return []

    @property
    def written(self) -> FlowSpec:
        return self.spec


class Job(Protocol, Generic[P, R_co]):
    """A function decorated by `job`: itself, and its flow."""

    flow: Flow

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def job(slug: str, **options: Unpack[JobOptions]) -> Callable[[Callable[P, R_co]], Job[P, R_co]]:
    """Make a function a flow with one step, named `perform`; the flow is its `.flow`."""
    if callable(slug):
        # `@job` without parentheses: its check reports that the slug is missing
        name = getattr(slug, "__name__", "my_flow")
        made: Any = job(name, **options)(slug)
        problem = f"job {name} has no slug", made.flow.place, f"write @job('{name}')"
        made.flow._misuses.append(Problem("E203", *problem))
        return cast("Callable[[Callable[P, R_co]], Job[P, R_co]]", made)
    of_step = option_names(Owner.JOB) - option_names(Owner.FLOW)
    flow_options = {name: value for name, value in options.items() if name not in of_step}
    step_options = {name: value for name, value in options.items() if name in of_step}
    flow = Flow(slug, **cast(FlowOptions, flow_options))
    flow.place, flow._is_job = _caller(), True

    def decorate(function: Callable[P, R_co]) -> Job[P, R_co]:
        if isinstance(earlier := getattr(function, "flow", None), Flow):
            text = f"the function of job {flow.slug} is the handler of job {earlier.slug} already"
            remedy = "give each job a function of its own"
            flow._misuses.append(Problem("E205", text, flow.place, remedy))
        flow.step(**cast(StepOptions, {"slug": "perform", **step_options}))(function)
        decorated = cast("Job[P, R_co]", function)
        decorated.flow = flow
        return decorated

    return decorate


def _with_codecs(flow: FlowSpec) -> FlowSpec:
    """A flow without errors, with the codecs of its handlers."""
    if not flow.decodes:
        return flow

    def coded(spec: Spec) -> Spec:
        return replace(spec, codec=step_codec(spec.annotations))

    steps, undos = tuple(map(coded, flow.steps)), tuple(map(coded, flow.undos))
    retired = tuple((since, coded(step)) for since, step in flow.retired)
    return replace(flow, steps=steps, undos=undos, retired=retired)


def _set(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _place_of(handler: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return _caller() if code is None else _place(code.co_filename, code.co_firstlineno)


def _caller() -> str:
    """The place outside of this module that called into it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno) if frame else "?:0"


def _place(filename: str, line: int) -> str:
    path = Path(filename)
    with suppress(ValueError, OSError):  # not below the working directory, or that is deleted
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"
