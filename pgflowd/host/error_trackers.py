"""
Tells Sentry of exceptions of handlers, if the flow's module has initialised its SDK.

Each attempt has a scope of its own, with tags that name it. The SDK sends from a thread and relies
on functions that are called at exit, which runners do not have: so a runner flushes when it has
sent the outcome, and before it ends. Nothing here imports the SDK.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pgflowd.core.context import Context
from pgflowd.core.statuses import Outcome

FLUSH_S = 2.0  # so long a runner waits for the SDK
SDK_THREADS = ("sentry", "Otel")  # the names of their threads begin so


def is_of_sdk(thread: str) -> bool:
    """Whether a thread of this name belongs to an SDK that starts it again after a fork."""
    return thread.startswith(SDK_THREADS)


class ErrorTracker:
    """Sentry, in one runner."""

    def __init__(self, mode: str) -> None:
        self._mode = mode  # "last", "every" or "off"
        self._has_captured = False
        self.threads = 0  # that the SDK has started for what was captured

    @property
    def _sdk(self) -> Any:
        """The SDK, if it is to be used and was initialised."""
        sdk = None if self._mode == "off" else sys.modules.get("sentry_sdk")
        if sdk is None:
            return None
        with contextlib.suppress(Exception):
            if sdk.get_client().is_active():
                return sdk
        return None

    @contextlib.contextmanager
    def scope(self, attempt: Context) -> Iterator[None]:
        """The scope of an attempt."""
        sdk = self._sdk
        if sdk is None:
            yield
            return
        with sdk.isolation_scope() as scope:
            scope.set_tag("pgflow.flow", attempt.flow_slug)
            scope.set_tag("pgflow.step", attempt.step_slug)
            scope.set_tag("pgflow.run", attempt.run_id)
            scope.set_tag("pgflow.attempt", str(attempt.attempt))
            if attempt.traceparent:
                scope.set_tag("pgflow.trace", attempt.traceparent.split("-")[1])
            yield

    def capture(self, error: BaseException, attempt: Context, head: Mapping[str, Any]) -> None:
        """Tell of an exception, within the scope of its attempt; `head` is its outcome."""
        sdk = self._sdk
        if sdk is None or head["outcome"] != Outcome.FAILED:
            return
        is_last = attempt.attempt >= attempt.max_attempts or head.get("retry") is False
        if is_last or self._mode == "every":
            before = _thread._count()
            with contextlib.suppress(Exception):
                sdk.capture_exception(error)
                self._has_captured = True
            self.threads += max(0, _thread._count() - before)

    def flush(self, *, is_end: bool = False) -> None:
        """Wait until the SDK has sent what it was told, but not for long."""
        sdk = self._sdk if self._has_captured or is_end else None
        self._has_captured = False
        if sdk is not None:
            with contextlib.suppress(Exception):
                sdk.flush(timeout=FLUSH_S)
