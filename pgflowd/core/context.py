"""
The type of `ctx`, the argument by which a handler reads facts about its task, its run and steps.

A handler with a parameter `ctx` gets one. In a daemon the runner makes it, in tests
`pgflowd.testing`. Use it in annotations: `def website(run, ctx: Context)`.

`database_of_task` is set in a runner only, while it executes a task: `Client()` connects to the
daemon's database there, whose password is not in the environment of handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from pgflowd.core.suggest import did_you_mean
from pgflowd.errors import RunError

if TYPE_CHECKING:
    from psycopg import Connection

database_of_task: Callable[[], str] | None = None  # returns the URL


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
    def log(self) -> logging.Logger:
        """A logger whose records carry flow, run, step and task."""

    @property
    def cancelled(self) -> Signal:
        """Set on timeout, cancelled run and quick stop."""

    @property
    def stopping(self) -> Signal:
        """Set when the daemon drains."""

    def flow_input(self) -> Any:
        """The run's input, fetched by this call."""

    def step_output(self, slug: str) -> Any:
        """The output of a dep, fetched by this call; None if it was skipped. E201: no such step."""

    def conn(self) -> Connection[Any]:
        """A psycopg connection of this runner alone, opened by the first call."""


def refuse_unknown_step(slug: str, steps: Collection[str], flow_slug: str) -> None:
    """Raise E201 if a handler asks for the output of a step that its flow does not have."""
    if slug not in steps:
        hint = did_you_mean(str(slug), steps)
        raise RunError(f"'{slug}' is not a step of {flow_slug}", code="E201", next=hint)
