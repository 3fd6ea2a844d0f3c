"""
Computes the wait before the next restart, reconnect or read.

A wait doubles from `min_s` up to `max_s`. Half of the wait before a reconnect is random, so that
many processes do not connect at the same moment. The random number is an argument. Pure.
"""

from __future__ import annotations

_MAX_DOUBLINGS = 40  # a float overflows after 1000; every `max_s` is reached long before


def doubled_s(wait_s: float, min_s: float, max_s: float) -> float:
    """Return the wait after one of `wait_s`; after 0 it is the least."""
    return min(max_s, max(min_s, 2 * wait_s))


def restart_delay_s(earlier: int, min_s: float, max_s: float) -> float:
    """Return the delay of a restart after `earlier` ones in a row; the first is immediate."""
    return _wait_s(earlier, min_s, max_s) if earlier else 0.0


def reconnect_delay_s(attempt: int, min_s: float, max_s: float, chance: float) -> float:
    """Return the wait after failure number `attempt` (from 1): half of it fixed, half by chance
    (0 to 1)."""
    return _wait_s(attempt, min_s, max_s) * (0.5 + chance / 2)


def _wait_s(attempt: int, min_s: float, max_s: float) -> float:
    doublings = min(max(attempt, 1) - 1, _MAX_DOUBLINGS)
    return min(max_s, min_s * 2.0**doublings)
