"""
pgflowd: runs DAG workflows that live in PostgreSQL.

Here stands what applications import: `Flow` and `job` to define flows, `Fail`, `RetryAfter` and
`Context` for handlers, `Client` and `AsyncClient` to start and follow runs. The clients are
loaded when first asked for, since a runner that imports its flows needs no psycopg.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgflowd.flow import Context, Fail, Flow, RetryAfter, job

if TYPE_CHECKING:
    from pgflowd.client import AsyncClient, Client

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Context", "Fail", "Flow", "RetryAfter", "__version__", "job"]


def __getattr__(name: str) -> Any:
    if name in ("AsyncClient", "Client"):
        from pgflowd import client

        return getattr(client, name)
    raise AttributeError(f"module 'pgflowd' has no attribute '{name}'")
