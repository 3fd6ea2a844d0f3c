"""
Counts failed logins, so that nobody can try many passwords. Pure: the time is an argument.
"""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Iterable

MOST = 5  # failures of one name or address
WITHIN_S = 60.0
_MAX_NAME_CHARS = 64  # as long as a name of the file may be
_MAX_KEYS = 10_000  # a flood of names must not fill the memory


class FailedLogins:
    """The failures of the last minute, by name and by address."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def wait_s(self, keys: Iterable[str], now: float) -> float:
        """Return how long these must wait for the next try; 0: not at all."""
        waits = [0.0]
        for key in keys:
            times = self._times.get(key, deque())
            while times and times[0] <= now - WITHIN_S:
                times.popleft()
            if len(times) >= MOST:
                waits.append(times[0] + WITHIN_S - now)
        return max(waits)

    def add(self, keys: Iterable[str], now: float) -> None:
        """Count a try. It counts before its password is compared, so that many at once do too."""
        for key in keys:
            self._times.setdefault(key, deque(maxlen=MOST)).append(now)
        while len(self._times) > _MAX_KEYS:
            del self._times[next(iter(self._times))]

    def take_back(self, keys: Iterable[str]) -> None:
        """The last try of these was right."""
        for key in keys:
            times = self._times.get(key)
            if times:
                times.pop()
            if not times:
                self._times.pop(key, None)


def keys_of(name: str, address: str) -> list[str]:
    """What the failures of a login count for; a home has a whole network of IPv6."""
    name = name[:_MAX_NAME_CHARS]
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return [f"name {name}", f"address {address}"]
    if parsed.version == 6:
        address = str(ipaddress.ip_network((parsed, 64), strict=False))
    return [f"name {name}", f"address {address}"]
