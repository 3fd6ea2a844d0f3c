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

    run_id: str
    flow_slug: str
    step_slug: str
    task_index: int
    attempt: int  # 1 for the first
    max_attempts: int
    deadline: datetime
    token: int  # grows with every attempt in the database; for systems that refuse older ones
    log: logging.Logger
    cancelled: Signal  # timeout, cancelled run, quick stop
    stopping: Signal  # the daemon drains

    def flow_input(self) -> Any:
        """The run's input, fetched when asked."""

    def step_output(self, slug: str) -> Any:
        """The output of a dep, fetched when asked; None if it was skipped."""

    def conn(self) -> Connection[Any]:
        """A psycopg connection of this runner's own, opened by the first call."""
