"""
Writes the traceback of what a handler raised: the user's calls, and those of libraries below.

Calls of pgflowd are left out wherever they stand, and what asyncio does before it enters the
handler. A failed attempt is reported with it, and `run_flow` shows it.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from itertools import dropwhile
from pathlib import Path

from pgflowd.core.failure import clean
from pgflowd.core.worker.failure_text import MAX_TRACEBACK_CHARS

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
        calls = dropwhile(lambda call: _is_ours(call) or _is_of_asyncio(call), each.stack)
        each.stack[:] = [call for call in calls if not _is_ours(call)]
        inside = (each.__cause__, each.__context__, *(each.exceptions or ()))
        pending += [one for one in inside if one is not None]


def _is_ours(call: traceback.FrameSummary) -> bool:
    return call.filename.startswith(_OURS) and not call.filename.startswith(_EXAMPLES)


def _is_of_asyncio(call: traceback.FrameSummary) -> bool:
    return call.filename.startswith(_ASYNCIO)
