"""
How long to wait before the next restart, reconnect or look.

docs/design/supervision.md, rule 22: the first restart is immediate, the n-th after it waits
`least` * 2^(n-1), at most `most`. Reconnects are jittered, so that many processes do not come
back together; chance is an argument. Pure.
"""

from __future__ import annotations

_DOUBLINGS = 40  # more would overflow sooner than matter


def restart_delay_s(earlier: int, least_s: float, most_s: float) -> float:
    """Return the delay of a restart after `earlier` ones in a row."""
    if earlier == 0:
        return 0.0
    return min(most_s, least_s * 2.0 ** min(earlier - 1, _DOUBLINGS))


def reconnect_delay_s(attempt: int, least_s: float, most_s: float, chance: float) -> float:
    """Return the wait after failure number `attempt` (from 1): half of it fixed, half by chance
    (0 to 1)."""
    whole = min(most_s, least_s * 2.0 ** min(max(attempt, 1) - 1, _DOUBLINGS))
    return whole * (0.5 + chance / 2)
