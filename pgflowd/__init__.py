"""
pgflowd executes DAG workflows whose state is in PostgreSQL.

Applications import from here: `Flow` and `job` to define flows, `Fail`, `RetryAfter` and `Context`
for handlers, `Client` and `AsyncClient` to start and follow runs. Each name is loaded at its first
use, so a runner that imports its flows does not load psycopg, and a command loads little.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import takes longer than this whole module
if TYPE_CHECKING:
    from typing import Any

    from pgflowd.client import AsyncClient, Client
    from pgflowd.flow import Context, Fail, Flow, RetryAfter, job

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Context", "Fail", "Flow", "RetryAfter", "__version__", "job"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pgflowd' has no attribute '{name}'")
    from importlib import import_module

    home = "pgflowd.client" if name in ("AsyncClient", "Client") else "pgflowd.flow"
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
