"""
Counts failed logins, so that nobody can try many passwords. Pure: the time is an argument.

They count for the address that they come from, and for all addresses, but for no name: else who
knows a name could keep its owner out. A browser in which this name has logged in before counts for
itself alone, so that strangers at its address, or at very many, do not keep it out either.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable

MOST = 5  # failures of one address or browser
MOST_OF_ALL = 30  # of all addresses; each costs 80 ms of a processor
WITHIN_S = 60.0
ALL = "all addresses"
_MAX_KEYS = 10_000  # a flood of addresses must not fill the memory


class FailedLogins:
    """The failures of the last minute, by what they count for."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def wait_s(self, keys: Iterable[str], now: float) -> float:
        """Return how long these must wait for the next try; 0: not at all."""
        waits = [0.0]
        for key in keys:
            times = self._times.get(key, deque())
            while times and times[0] <= now - WITHIN_S:
                times.popleft()
            if len(times) >= _most(key):
                waits.append(times[0] + WITHIN_S - now)
        return max(waits)

    def add(self, keys: Iterable[str], now: float) -> None:
        """Count a try. It counts before its password is compared, so that many at once do too."""
        for key in keys:
            self._times.setdefault(key, deque(maxlen=_most(key))).append(now)
        while len(self._times) > _MAX_KEYS:
            del self._times[next(key for key in self._times if key != ALL)]

    def take_back(self, keys: Iterable[str]) -> None:
        """The last try of these was right."""
        for key in keys:
            times = self._times.get(key)
            if times:
                times.pop()
            if not times:
                self._times.pop(key, None)


def keys_of(address: str, known_browser: str | None) -> list[str]:
    """What the failures of a login count for; a home has a whole network of IPv6."""
    if known_browser is not None:
        return [f"browser {known_browser}"]
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return [ALL, f"address {address}"]
    if parsed.version == 6:
        address = str(ipaddress.ip_network((parsed, 64), strict=False))
    return [ALL, f"address {address}"]


def _most(key: str) -> int:
    return MOST_OF_ALL if key == ALL else MOST
