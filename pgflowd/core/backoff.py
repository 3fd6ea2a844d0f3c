"""
How long to wait before the next restart, reconnect or look at something.

A wait doubles from `least_s` up to `most_s`. Many processes do not come back together when part of
their wait is chance, which is an argument here. Pure.
"""

from __future__ import annotations

_MAX_DOUBLINGS = 40  # a float overflows after 1000; every `most_s` is reached long before


def doubled_s(wait_s: float, least_s: float, most_s: float) -> float:
    """Return the wait after one of `wait_s`; after 0 it is the least."""
    return min(most_s, max(least_s, 2 * wait_s))


def restart_delay_s(earlier: int, least_s: float, most_s: float) -> float:
    """Return the delay of a restart after `earlier` ones in a row; the first is immediate."""
    return _wait_s(earlier, least_s, most_s) if earlier else 0.0


def reconnect_delay_s(attempt: int, least_s: float, most_s: float, chance: float) -> float:
    """Return the wait after failure number `attempt` (from 1): half of it fixed, half by chance
    (0 to 1)."""
    return _wait_s(attempt, least_s, most_s) * (0.5 + chance / 2)


def _wait_s(attempt: int, least_s: float, most_s: float) -> float:
    doublings = min(max(attempt, 1) - 1, _MAX_DOUBLINGS)
    return min(most_s, least_s * 2.0**doublings)
