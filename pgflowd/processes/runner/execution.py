"""What each execution of a handler begins and ends with: its arguments, and how it is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pgflowd.core.definition.spec import StepSpec, arguments_for, undo_arguments
from pgflowd.core.failure import UNSPENT, clean, failure_of
from pgflowd.core.json import SQL_NULL, decode
from pgflowd.core.waiting import suspension_of, swallowed
from pgflowd.core.worker.failure_text import MAX_TRACEBACK_CHARS
from pgflowd.host import open_telemetry
from pgflowd.host.channel import Frame, pack
from pgflowd.processes.runner.context import RunnerContext

# Writes the traceback of what a handler raised: the user's calls, and those of libraries below.
#
# Calls of pgflowd are left out wherever they stand, and what asyncio does before it enters the
# handler. A failed attempt is reported with it, and `run_flow` shows it.
MAX_FRAMES = 1000  # Python's own recursion limit

_PACKAGE = Path(__file__).parents[2]
_OURS, _EXAMPLES = f"{_PACKAGE}/", f"{_PACKAGE}/examples/"
_ASYNCIO = f"{Path(asyncio.__file__).parent}/"
_HEAD_WITHOUT_CALLS = re.compile(r"^Traceback \(most recent call last\):\n(?! )", re.M)


def traceback_of(error: BaseException) -> str:
    """Return the traceback; of a long one, its beginning and its end."""
    try:
        whole = traceback.TracebackException(
            type(error), error, error.__traceback__, limit=-MAX_FRAMES, compact=True
        )
        _leave_out_ours(whole)
        text = _HEAD_WITHOUT_CALLS.sub("", "".join(whole.format()))
    except BaseException as trouble:
        return f"(no traceback: {type(trouble).__name__})"
    return clean(shortened(text, MAX_TRACEBACK_CHARS), MAX_TRACEBACK_CHARS)


def shortened(text: str, longest: int) -> str:
    """The text, or its beginning and its end, where the calls and the error are."""
    if len(text) <= longest:
        return text
    half = (longest - 3) // 2
    return f"{text[:half]}\n…\n{text[len(text) - half :]}"


def _leave_out_ours(whole: traceback.TracebackException) -> None:
    """Do so in this exception, in those before it, and in those of a group."""
    pending = [whole]
    for each in pending:  # grows while it is read
        calls = dropwhile(
            lambda call: _is_ours(call) or call.filename.startswith(_ASYNCIO), each.stack
        )
        each.stack[:] = [call for call in calls if not _is_ours(call)]
        inside = (each.__cause__, each.__context__, *(each.exceptions or ()))
        pending += [one for one in inside if one is not None]


def _is_ours(call: traceback.FrameSummary) -> bool:
    return call.filename.startswith(_OURS) and not call.filename.startswith(_EXAMPLES)


SHORT_TRACEBACK = 2000  # characters


class TaskGiven(NamedTuple):
    """The decoded input of a task, of which arguments are made."""

    input: Any
    flow_input: Any


def arguments_of(step: StepSpec, frame: Frame, ctx: RunnerContext) -> dict[str, Any] | None:
    """Make the arguments of a handler from the frame of its task; None: there is nothing to do."""
    arguments: dict[str, Any] | None
    if step.undoes is not None:
        known = decode(frame.body) if frame.head["is_original"] else None
        arguments = undo_arguments(step, ctx.read_original(step.parts, known), ctx)
    else:
        split = frame.head["split"]
        of_flow = SQL_NULL if split is None else decode(frame.body[split:])
        given = TaskGiven(decode(frame.body[:split]), of_flow)
        arguments = arguments_for(step, given, ctx.flow_input, ctx)
    if step.codec is None or arguments is None:
        return arguments
    return step.codec.decoded(arguments)


@contextlib.contextmanager
def traced(ctx: RunnerContext) -> Iterator[None]:
    """Let the span of the attempt be current, for a handler that uses OpenTelemetry."""
    is_used = ctx.trace is not None and open_telemetry.is_imported()
    token = open_telemetry.attach(*ctx.caller) if is_used and ctx.caller else None
    try:
        yield
    finally:
        if token is not None:
            open_telemetry.detach(token)


def refuse_swallowed(ctx: RunnerContext) -> None:
    """Raise E426 if a handler returns although it waits."""
    if ctx.suspended is not None:
        raise swallowed(ctx.suspended)


def head_of_error(error: BaseException, ctx: RunnerContext) -> dict[str, Any]:
    """Return the head of `done` for an exception, which may say that the handler waits."""
    if suspended := suspension_of(error):
        return {"outcome": "suspended", "wait": suspended.wait.as_json()}
    failure = failure_of(error, is_last=ctx.attempt >= ctx.max_attempts)
    if failure.at_most_s is not None:
        return {
            "outcome": "released",
            "error_type": UNSPENT,
            "error_message": failure.message,
            "delay_s": failure.delay_s,
            "at_most_s": failure.at_most_s,
        }
    head: dict[str, Any] = {
        "outcome": "failed",
        "error_type": failure.error_type,
        "error_message": failure.message,
        "traceback": traceback_of(error),
    }
    if not failure.retry:
        head["retry"] = False
    if failure.delay_s is not None:
        head["delay_s"] = failure.delay_s
    return head


def packed_result(head: dict[str, Any], body: bytes) -> bytes:
    """The frame of `done`; of a traceback that is too long for a head, a part."""
    try:
        return pack(head, body)
    except ValueError:  # by characters of several bytes
        short = shortened(head.get("traceback", ""), SHORT_TRACEBACK)
        return pack({**head, "traceback": short}, body)


def leave(error: BaseException) -> NoReturn:
    """End a process that the handler forked, as Python ends one that an exception leaves."""
    code = error.code if isinstance(error, SystemExit) else error
    if not isinstance(code, int | None):
        with contextlib.suppress(Exception):
            sys.stderr.write(f"{code}\n" if isinstance(error, SystemExit) else traceback_of(error))
        code = 1
    flush_streams()
    os._exit((code or 0) & 0xFF)


def flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105  half a microsecond
            stream.flush()
        except Exception:
            pass
