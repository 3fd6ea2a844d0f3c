"""
The type of `ctx`, the argument by which a handler reads facts about its task, its run and steps.

A handler with a parameter `ctx` gets one. In a daemon the runner makes it, in tests
`pgflowd.testing`. Use it in annotations: `def website(run, ctx: Context)`.

`database_of_task` is set in a runner only, while it executes a task: `Client()` connects to the
daemon's database there, whose password is not in the environment of handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Unpack, overload

from pgflowd.core.text import did_you_mean
from pgflowd.core.undo import Undo
from pgflowd.core.waiting import RAISE, P, T, Time
from pgflowd.core.wishes import ChildRun, Wishes
from pgflowd.errors import RunError

if TYPE_CHECKING:
    from psycopg import Connection

database_of_task: Callable[[], str] | None = None  # returns the URL
# called by runners, for libraries that keep connections: before the first task, and around each
after_fork: list[Callable[[], None]] = []
around_tasks: list[Callable[[], None]] = []


class Signal(Protocol):
    """An event that becomes set once."""

    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Context(Protocol):
    """One attempt of one task."""

    @property
    def run_id(self) -> str: ...
    @property
    def flow_slug(self) -> str: ...
    @property
    def step_slug(self) -> str: ...
    @property
    def task_index(self) -> int: ...
    @property
    def attempt(self) -> int:
        """1 for the first one."""

    @property
    def max_attempts(self) -> int: ...
    @property
    def deadline(self) -> datetime:
        """When the attempt times out."""

    @property
    def token(self) -> int:
        """Grows with every attempt in the database; for systems that can refuse older ones."""

    @property
    def caps(self) -> frozenset[str]:
        """What the worker has that executes this attempt: its `caps` in the config."""

    @property
    def log(self) -> logging.Logger:
        """A logger whose records carry flow, run, step and task."""

    @property
    def cancelled(self) -> Signal:
        """Set at the timeout, at the end of a drain, and when the run was cancelled or failed."""

    @property
    def stopping(self) -> Signal:
        """Set when a drain has begun: of the daemon, or of its worker, which a reload replaces."""

    @property
    def traceparent(self) -> str | None:
        """The span of this attempt, as W3C writes it, for calls that no library of OpenTelemetry
        makes; None while there are no traces."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the run; the first question fetches them."""

    @property
    def scheduled_for(self) -> datetime | None:
        """When the run was to begin, if its start said so."""

    @property
    def resources(self) -> Any:
        """What the flow's lifespan has yielded in this process; None without one."""

    @property
    def undo(self) -> Undo | None:
        """What an undo handler undoes; None for others."""

    @overload
    def flow_input(self) -> Any:
        """The run's input, fetched by this call; with a type, decoded as that."""

    @overload
    def flow_input(self, as_type: type[T], /) -> T: ...
    @overload
    def step_output(self, slug: str) -> Any:
        """The output of a dep, fetched by this call; with a type, decoded as that. None if it was
        skipped. E201: no such step."""

    @overload
    def step_output(self, slug: str, as_type: type[T], /) -> T | None: ...

    def conn(self) -> Connection[Any]:
        """A psycopg connection of this runner alone, opened by the first call. What is written over
        it is committed with the completion of the task, or not at all."""

    def memo(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `fn` unless it has returned in an earlier attempt; return what it returned, as JSON.
        What an async function returns is to be awaited, as usual."""

    def save(self, name: str, value: Any) -> None:
        """Keep a JSON value for the attempts to come of this task."""

    def load(self, name: str, default: Any = None) -> Any:
        """What `save` or `memo` has kept under this name."""

    def drop(self, name: str) -> None:
        """Forget what was kept under this name."""

    def progress(
        self, done: float, total: float | None = None, text: str = "", **detail: Any
    ) -> None:
        """Tell how far the task is, such as `ctx.progress(12, 30, "pages")`, for those who look."""

    def sleep(
        self,
        duration: Time | None = None,
        *,
        until: datetime | None = None,
        name: str | None = None,
    ) -> None:
        """End this attempt, unspent; the handler begins again after that time, and passes here.
        With a name if the order of sleeps may differ between attempts."""

    @overload
    def wait_signal(self, name: str, *, timeout: Time | None = None, default: Any = RAISE) -> Any:
        """End this attempt, unspent, until the run gets a signal of this name; return what was sent
        with it; with a type, decoded as that. After the timeout return the default, or raise
        SignalTimeout."""

    @overload
    def wait_signal(
        self, name: str, as_type: type[T], /, *, timeout: Time | None = None, default: Any = RAISE
    ) -> T: ...

    def hand_on(self, *, needs: Sequence[str], note: str = "") -> NoReturn:
        """End this attempt, unspent; the handler begins again on a worker that has all of these
        among its caps, and finds what was saved. The next attempt after that needs what its step
        needs."""

    def start(
        self, flow: str, input: Any, *, key: str | None = None, **wishes: Unpack[Wishes]
    ) -> str:
        """Start a run as a child of this one, and return its id. When the handler begins again, the
        same child is returned, by its key, or by the number of the call if it has none."""

    def wait(self, *runs: str, timeout: Time | None = None) -> list[ChildRun]:
        """End this attempt, unspent, until these runs have ended, however they end; return them.
        After the timeout raise SignalTimeout."""


def refuse_unknown_step(slug: str, steps: Collection[str], flow_slug: str) -> None:
    """Raise E201 if a handler asks for the output of a step that its flow does not have."""
    if slug not in steps:
        hint = did_you_mean(str(slug), steps)
        raise RunError(f"'{slug}' is not a step of {flow_slug}", code="E201", next=hint)
