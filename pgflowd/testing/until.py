"""
`until`: the only way in which a test waits for something that another process does.

    until(lambda: run.status == "completed", within_s=5)

It returns as soon as the condition holds, and fails with the condition's source when time is up,
so a test takes no longer than the thing it waits for, and always ends.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

from pgflowd.core.backoff import doubled_s

T = TypeVar("T")

_FIRST_NAP_S = 0.002  # many conditions hold almost at once
_MAX_NAP_S = 0.05


def until(condition: Callable[[], T], within_s: float = 5.0) -> T:
    """Call `condition` until its value is true, and return that; AssertionError if it never is."""
    deadline = time.monotonic() + within_s
    nap_s = _FIRST_NAP_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            try:  # the condition as the test wrote it, where its source can be read
                lines = inspect.getsource(condition).split("\n")
                source = " ".join(line.strip() for line in lines).strip()
            except (OSError, TypeError):
                source = repr(condition)
            text = f"not true within {within_s:g} s: {source} (last value: {value!r})"
            raise AssertionError(text)
        time.sleep(nap_s)
        nap_s = doubled_s(nap_s, _FIRST_NAP_S, _MAX_NAP_S)
