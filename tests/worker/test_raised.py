"""The traceback of a failed attempt: the user's calls and no call of ours, whatever was raised."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from support.covers import covers

from pgflowd.core.failure import MAX_TRACEBACK_CHARS, RetryAfter, place_of, user_calls
from pgflowd.core.json import encode
from pgflowd.processes.runner.context import traceback_of
from pgflowd.processes.runner.handler import Caller, StopFlag


def helper() -> None:
    json.loads("{")


async def fetch() -> None:
    await asyncio.sleep(0)
    helper()


async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(fetch())


def stored() -> None:
    RetryAfter(-1)


def chained() -> None:
    try:
        helper()
    except ValueError as error:
        raise LookupError("x" * 50_000) from error


def recursive() -> None:
    recursive()


def raised(handler: Callable[[], Any]) -> str:
    """The traceback of a handler that the runner calls."""
    with pytest.raises(BaseException) as caught:
        Caller().call(handler, {}, StopFlag())
    assert caught.value.__traceback__ is not None
    return traceback_of(caught.value.with_traceback(caught.value.__traceback__.tb_next))


@covers("newcomer 1")
@pytest.mark.parametrize("handler", [helper, fetch, in_a_group, stored, chained])
def test_it_begins_with_the_handler_and_has_no_call_of_ours(handler):
    text = raised(handler)

    calls = user_calls(text)
    line = inspect.getsourcelines(handler)[1]
    first = next(iter(text.split('File "')[1:])).splitlines()[0]
    assert __file__ in first
    assert handler is chained or line < int(calls[0].line) <= line + 4
    assert calls[-1].name in {"helper", "stored", "chained"}
    assert "/pgflowd/processes/" not in text and "/pgflowd/core/" not in text
    assert "asyncio/runners.py" not in text


@covers("newcomer 1")
def test_an_error_without_a_call_of_the_user_is_its_text_alone():
    with pytest.raises(Exception, match="E403") as caught:
        encode({1, 2})

    trace = caught.value.__traceback__
    text = traceback_of(caught.value.with_traceback(trace and trace.tb_next))

    assert "Traceback" not in text
    assert "E403" in text


@covers("newcomer 1")
@pytest.mark.parametrize("handler", [chained, recursive])
def test_a_long_one_keeps_its_calls_and_its_error(handler):
    text = raised(handler)

    assert len(text) <= MAX_TRACEBACK_CHARS
    assert place_of(text).endswith(f" in {handler.__name__}")
    assert ("LookupError: xx" if handler is chained else "RecursionError: ") in text
