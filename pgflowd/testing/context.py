"""
The `ctx` of a handler that a test calls.

    assert website({"url": "x"}, fake_context(attempt=2)) == …

Neither `cancelled` nor `stopping` is set, and there is no database.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgflowd.core.context import Context, refuse_unknown_step
from pgflowd.core.json import deep_copy

if TYPE_CHECKING:
    from psycopg import Connection


@dataclass
class FakeContext:
    """A context of plain values; events can be set by the test."""

    run_id: str = "00000000-0000-7000-8000-000000000000"
    flow_slug: str = "flow"
    step_slug: str = "step"
    task_index: int = 0
    attempt: int = 1
    max_attempts: int = 3
    token: int = 1
    deadline: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=60))
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("pgflowd.handler"))
    cancelled: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    run_input: Any = None  # returned by flow_input()
    step_outputs: Mapping[str, Any] = field(default_factory=dict)
    steps: Collection[str] = ()  # of the flow; unless empty, step_output() refuses other slugs
    connection: Connection[Any] | None = None  # returned by conn()

    def flow_input(self) -> Any:
        return deep_copy(self.run_input)

    def step_output(self, slug: str) -> Any:
        if self.steps:
            refuse_unknown_step(slug, self.steps, self.flow_slug)
        return deep_copy(self.step_outputs.get(slug))

    def conn(self) -> Connection[Any]:
        if self.connection is None:
            raise RuntimeError(
                "a fake context has no database; mock the step, or give run_flow or fake_context a"
                " connection=…"
            )
        return self.connection


def fake_context(**values: Any) -> FakeContext:
    """A context with these values, such as `attempt=2` or `run_input={"url": "x"}`."""
    return FakeContext(**values)


_CHECKED_BY_MYPY: type[Context] = FakeContext
