"""Notes about a flow in which nothing happens for now, and why."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pgflowd.cli.app import App
from pgflowd.errors import AccessDenied

if TYPE_CHECKING:
    import psycopg


def note_idle(app: App, conn: psycopg.Connection[Any], flow: str) -> None:
    """Say why nothing will happen for now, if the flow is paused or no worker serves it."""
    from pgflowd.db.flows import is_served
    from pgflowd.db.query import execute

    with contextlib.suppress(AccessDenied):  # a role that starts runs and reads none
        if not note_paused(app, conn, flow) and not execute(conn, is_served(flow)):
            app.note(f"no worker serves {flow} now: the run goes on when `pgflowd serve` runs")


def note_paused(app: App, conn: psycopg.Connection[Any], flow: str) -> bool:
    """Say that a flow is paused as a whole; whether it is."""
    from pgflowd.db.flows import is_paused
    from pgflowd.db.query import execute

    found = execute(conn, is_paused(flow))
    if found:
        app.note(f"flow {flow} is paused; `pgflowd flows resume {flow}` lets its runs go on")
    return found
