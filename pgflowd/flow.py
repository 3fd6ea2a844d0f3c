"""
Flow: what users write.

    flow = Flow("analyze_website", max_attempts=3, timeout=60)

    @flow.step
    def website(run): ...                    # run: the flow's input

    @flow.step(timeout=20)
    def sentiment(website, ctx): ...         # a parameter named like a step is a dep

A flow is made by plain decorators, which return their function unchanged. Decorating only takes
notes: steps may stand in any order, and what is wrong is told by `check()`, all at once, or
raised as FlowError by the first use (`shape()`, `steps`). Imports `core` and `errors` only.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import (
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from pgflowd.core.context import Context
from pgflowd.core.definition.checks import flow_problems
from pgflowd.core.definition.handlers import DecoratedHandler
from pgflowd.core.definition.order import in_order
from pgflowd.core.definition.shape import Shape, shape_of
from pgflowd.core.definition.spec import FlowSpec, StepSpec
from pgflowd.core.failure import Fail, RetryAfter
from pgflowd.errors import FlowError, Problem

__all__ = ["Context", "Fail", "Flow", "Job", "RetryAfter", "job"]

Handler = TypeVar("Handler", bound=Callable[..., Any])
StepName = str | Callable[..., Any]  # a slug, or the step's function
Mode = Literal["fail", "skip", "skip-cascade"]
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class FlowOptions(TypedDict, total=False):
    """Defaults for all steps of a flow. Unset ones are the database's."""

    max_attempts: int | None  # the first included; 1 or more
    base_delay: int | None  # seconds; attempt n waits base_delay * 2^n
    timeout: int | None  # seconds of one attempt


class _CommonOptions(FlowOptions, total=False):
    slug: str | None  # instead of the function's name
    start_delay: int | None  # seconds between ready and started
    if_: Mapping[str, Any] | None  # run only if the input contains this
    if_not: Mapping[str, Any] | None  # run only if the input does not contain this
    when_unmet: Mode | None  # a condition unmet: "skip", "fail", "skip-cascade"
    when_exhausted: Mode | None  # the last attempt failed: "fail", "skip", "skip-cascade"


class StepOptions(_CommonOptions, total=False):
    """Options of one step; those a flow has, too, override the flow's."""

    depends_on: StepName | Sequence[StepName] | None  # deps for `input` and `ctx.step_output`
    after: StepName | Sequence[StepName] | None  # deps for the order only


class MapOptions(_CommonOptions, total=False):
    """Options of one map."""

    over: StepName | None  # the step whose array is mapped; none: the run's input


class JobOptions(FlowOptions, total=False):
    """Options of a flow with one step."""

    start_delay: int | None


class Flow:
    """A DAG of steps. Put it into a module that the daemon's config names."""

    def __init__(self, slug: str, **options: Unpack[FlowOptions]) -> None:
        self.slug = slug if isinstance(slug, str) else f"<{slug!r}>"
        self.options: dict[str, Any] = _set(options)
        self.place = _caller()
        self._notes: list[DecoratedHandler] = []
        self._complaints: list[Problem] = []
        self._spec: FlowSpec | None = None

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
        """Make a function a map: one task per element, which it gets as `item`."""
        return self._decorator(handler, options, is_map=True)

    def check(self) -> list[Problem]:
        """All errors and warnings of the definition, in the order of the file."""
        return sorted([*self._complaints, *flow_problems(self.written)], key=_line)

    def shape(self) -> Shape:
        """The flow as the database knows it. Raises FlowError with all errors."""
        return shape_of(self.spec)

    @property
    def written(self) -> FlowSpec:
        """The definition as it stands in the file, right or wrong."""
        slugs = {id(note.handler): note.slug for note in self._notes}
        steps = tuple(note.spec(slugs) for note in self._notes)
        return FlowSpec(self.slug, self.place, self.options, steps)

    @property
    def spec(self) -> FlowSpec:
        """The checked definition, steps in topological order. Raises FlowError."""
        if self._spec is None:
            errors = [problem for problem in self.check() if not problem.is_warning]
            if errors:
                raise FlowError(errors)
            written = self.written
            steps = {step.slug: step for step in written.steps}
            order = in_order({step.slug: step.deps for step in written.steps})
            in_turn = tuple(steps[slug] for slug in order)
            self._spec = FlowSpec(written.slug, written.place, written.options, in_turn)
        return self._spec

    @property
    def steps(self) -> dict[str, StepSpec]:
        """The steps by slug, in topological order. Raises FlowError."""
        return {step.slug: step for step in self.spec.steps}

    def __repr__(self) -> str:
        return f"Flow({self.slug!r}, {len(self._notes)} steps)"

    def _decorator(self, handler: Any, options: dict[str, Any], *, is_map: bool) -> Any:
        def decorate(function: Handler) -> Handler:
            self._notes.append(
                DecoratedHandler(function, _set(options), is_map, _place_of(function))
            )
            self._spec = None
            return function

        if handler is None:
            return decorate
        if callable(handler) and not self._has(handler):
            return decorate(handler)
        self._complain(handler, is_map)
        return decorate

    def _has(self, handler: object) -> bool:
        return any(note.handler is handler for note in self._notes)

    def _complain(self, argument: Any, is_map: bool) -> None:
        """Tell of `@flow.map("items")`, `@flow.map(items)` and what is no function at all."""
        if isinstance(argument, str):
            shown, option = repr(argument), "slug"
        elif self._has(argument):
            shown, option = getattr(argument, "__name__", "…"), "depends_on"
        else:
            text = (
                f"{self.slug}: a handler is a function, and not of type {type(argument).__name__}"
            )
            self._complaints.append(Problem("E209", text, _caller()))
            return
        text = f"{self.slug}: a decorator takes options by name only, not {shown}"
        remedy = f"write {'over' if is_map else option}={shown}"
        self._complaints.append(Problem("E209", text, _caller(), remedy))


class Job(Protocol, Generic[P, R_co]):
    """A function decorated by `job`: itself, and its flow."""

    flow: Flow

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def job(slug: str, **options: Unpack[JobOptions]) -> Callable[[Callable[P, R_co]], Job[P, R_co]]:
    """Make a function a flow with one step, named `perform`; the flow is its `.flow`."""
    if callable(slug):
        return cast("Callable[[Callable[P, R_co]], Job[P, R_co]]", _job_without_slug(slug, options))
    of_flow = {name: value for name, value in options.items() if name != "start_delay"}
    flow = Flow(slug, **cast(FlowOptions, of_flow))
    flow.place = _caller()

    def decorate(function: Callable[P, R_co]) -> Job[P, R_co]:
        if isinstance(earlier := getattr(function, "flow", None), Flow):
            text = f"the function of job {flow.slug} is job {earlier.slug} already"
            remedy = "give each a function of its own"
            flow._complaints.append(Problem("E205", text, flow.place, remedy))
        flow.step(slug="perform", start_delay=options.get("start_delay"))(function)
        whole = cast("Job[P, R_co]", function)
        whole.flow = flow
        return whole

    return decorate


def _job_without_slug(function: Any, options: JobOptions) -> Job[..., Any]:
    """What `@job` alone makes: a job all the same, whose check tells what is missing."""
    name = getattr(function, "__name__", "my_flow")
    made: Job[..., Any] = job(name, **options)(function)
    text = f"job {name} was given no slug"
    made.flow._complaints.append(Problem("E203", text, made.flow.place, f"write @job('{name}')"))
    return made


def _line(problem: Problem) -> int:
    return int((problem.place or ":0").rpartition(":")[2])


def _set(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _place_of(handler: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return _caller() if code is None else _shown(code.co_filename, code.co_firstlineno)


def _caller() -> str:
    """The line outside of this module that called into it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    return _shown(frame.f_code.co_filename, frame.f_lineno) if frame else "?:0"


def _shown(filename: str, line: int) -> str:
    path = Path(filename)
    with suppress(ValueError, OSError):  # elsewhere, or the working directory is gone
        path = path.relative_to(Path.cwd())
    return f"{path}:{line}"
