"""
Context: what a handler may ask and be told while it runs.

A handler that has a parameter `ctx` gets one of these. In a daemon the runner makes it, in
`pgflowd.testing` the test does; this is the type for annotations: `def website(run, ctx: Context)`.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from psycopg import Connection


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
        """Its records carry flow, run, step and task."""

    @property
    def cancelled(self) -> Signal:
        """Set on timeout, cancelled run and quick stop."""

    @property
    def stopping(self) -> Signal:
        """Set when the daemon drains."""

    def flow_input(self) -> Any:
        """The run's input, fetched when asked."""

    def step_output(self, slug: str) -> Any:
        """The output of a dep, fetched when asked; None if it was skipped."""

    def conn(self) -> Connection[Any]:
        """A psycopg connection of this runner's own, opened by the first call."""
