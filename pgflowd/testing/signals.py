"""
Reads the signals of a test: for each name a payload, a list of payloads, or `(seconds, payload)`.

    {"approve": {"approved": True}, "page": [1, 2], "paid": (3600, {"amount": 12})}

Those without seconds are there from the beginning. A list as a payload stands in a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from pgflowd.core.typed.values import stored_value
from pgflowd.core.waiting import check_signal_name, seconds_of
from pgflowd.testing.engine import SentSignal
from pgflowd.testing.sizes import refuse_too_large


def sent_signals(signals: Mapping[str, Any]) -> list[SentSignal]:
    """The signals in the order of sending."""
    if not isinstance(signals, Mapping):
        raise TypeError(f"signals must be a dict with names of signals as keys, not {signals!r}")
    sent = [
        _signal(name, each)
        for name, given in signals.items()
        for each in (given if isinstance(given, list) else [given])
    ]
    return sorted(sent, key=attrgetter("sent_at"))


def _signal(name: str, given: Any) -> SentSignal:
    check_signal_name(name)
    is_timed = isinstance(given, tuple) and len(given) == 2
    seconds, payload = given if is_timed else (0.0, given)
    sent_at = seconds_of(seconds, f"the time of signal '{name}'")
    stored = stored_value(payload, what=f"signal '{name}'")
    refuse_too_large(stored, f"signal '{name}'")
    return SentSignal(name, stored, sent_at)
