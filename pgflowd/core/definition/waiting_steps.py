"""
Makes the handlers of steps that only wait: `Flow.wait_for` and `Flow.approval`.

Each waits for the signal with the name of its step. To the database and to other runtimes such a
step is like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from pgflowd.core.context import Context
from pgflowd.core.failure import APPROVAL, is_answer, output_of
from pgflowd.core.json import encode
from pgflowd.core.waiting import RAISE, Suspended, Time, seconds_of
from pgflowd.errors import Problem, RunError

_NO_ANSWER = (
    "signal %s is no answer, and is passed over; `pgflowd runs approve RUN %s` sends one, and so"
    " does reject"
)


def wait_handler(slug: str, timeout: Time | None, default: Any) -> Callable[[Context], Any]:
    """A handler whose output is the payload of the signal."""

    def wait(ctx: Context) -> Any:
        return ctx.wait_signal(slug, timeout=timeout, default=default)

    return _named(wait, slug)


def approval_handler(slug: str, timeout: Time | None) -> Callable[[Context], dict[str, Any]]:
    """
    A handler whose output says who approved; a rejection fails the task for good.

    A signal that is no answer is passed over: what was received once would fail each retry.
    """

    def approve(ctx: Context) -> dict[str, Any]:
        try:
            while not is_answer(payload := ctx.wait_signal(slug, timeout=timeout)):
                ctx.log.warning(_NO_ANSWER, slug, slug)
        except Suspended as suspended:
            suspended.wait = replace(suspended.wait, why=APPROVAL)
            raise
        return output_of(payload)

    return _named(approve, slug)


def wait_problems(slug: str, timeout: object, default: object, place: str) -> Iterator[Problem]:
    """What is wrong with the time and the default of a step that waits."""
    try:
        if timeout is not None:
            seconds_of(timeout, "timeout")
        if default is not RAISE:
            encode(default, what="default")
    except RunError as error:
        yield Problem("E209", f"step {slug}: {error.text}", place, error.next)


def _named(handler: Callable[[Context], Any], slug: str) -> Callable[[Context], Any]:
    handler.__name__ = handler.__qualname__ = str(slug)
    return handler
