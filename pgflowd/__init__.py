"""
pgflowd executes DAG workflows whose state is in PostgreSQL.

Applications import from here: `Flow` and `job` to define flows, `Fail`, `RetryAfter`, `Suspended`
and `Context` for handlers, `Client` and `AsyncClient` to start and follow runs, and the errors that
these raise. Each name is loaded at its first use, so a runner that imports its flows does not load
psycopg, and a command loads little. docs/reference/python-api.md lists them.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import takes longer than this whole module
if TYPE_CHECKING:
    from typing import Any

    from pgflowd.async_client import AsyncClient
    from pgflowd.client import (
        Client,
        ListedDaemon,
        ListedFlow,
        ListedRun,
        OpenTask,
        Run,
        RunCount,
        RunEvent,
        RunPage,
        RunWithStates,
        StepState,
        StepTask,
        StepTasksPage,
    )
    from pgflowd.errors import (
        AccessDenied,
        BadDependency,
        ConfigError,
        DatabaseError,
        FlowError,
        KeyTaken,
        LeaseLost,
        MapInput,
        NotFound,
        NotOpen,
        NotRetryable,
        OutOfReach,
        OutputError,
        PgflowdError,
        RunEnded,
        RunError,
        RunExists,
        SignalTimeout,
        TooLarge,
        TypeMismatch,
        UndoStarted,
        UnknownFlow,
        Unreachable,
        WaitTimeout,
        WrongState,
    )
    from pgflowd.flow import (
        ChildRun,
        Context,
        Fail,
        Flow,
        Limit,
        RetryAfter,
        Schedule,
        Suspended,
        Undo,
        job,
    )

__version__ = "0.1.0"

__all__ = [
    "AccessDenied",
    "AsyncClient",
    "BadDependency",
    "ChildRun",
    "Client",
    "ConfigError",
    "Context",
    "DatabaseError",
    "Fail",
    "Flow",
    "FlowError",
    "KeyTaken",
    "LeaseLost",
    "Limit",
    "ListedDaemon",
    "ListedFlow",
    "ListedRun",
    "MapInput",
    "NotFound",
    "NotOpen",
    "NotRetryable",
    "OpenTask",
    "OutOfReach",
    "OutputError",
    "PgflowdError",
    "RetryAfter",
    "Run",
    "RunCount",
    "RunEnded",
    "RunError",
    "RunEvent",
    "RunExists",
    "RunPage",
    "RunWithStates",
    "Schedule",
    "SignalTimeout",
    "StepState",
    "StepTask",
    "StepTasksPage",
    "Suspended",
    "TooLarge",
    "TypeMismatch",
    "Undo",
    "UndoStarted",
    "UnknownFlow",
    "Unreachable",
    "WaitTimeout",
    "WrongState",
    "__version__",
    "job",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'pgflowd' has no attribute '{name}'")
    from importlib import import_module

    # in the order in which they load little; the first two load no psycopg
    client = "async_client" if name == "AsyncClient" else "client"
    modules = (import_module(f"pgflowd.{home}") for home in ("errors", "flow", client))
    home = next(module for module in modules if hasattr(module, name))
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
