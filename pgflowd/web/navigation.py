"""The pages that each page leads to."""

from __future__ import annotations

NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/flows", "Flows"),
    ("/inbox", "Inbox"),
    ("/stalled", "Stalled"),
    ("/dead", "Dead letters"),
    ("/schedules", "Schedules"),
    ("/daemons", "Daemons"),
    ("/actions", "Actions"),
    ("/database", "Database"),
    ("/explain", "Explain"),
)


def _letters() -> dict[str, str]:
    """The key after `g` for each page: the first letter of its name that is free."""
    found: dict[str, str] = {}
    for path, name in NAVIGATION:
        free = [each for each in name.lower() if each.isalpha() and each not in found.values()]
        found[path] = free[0]
    return found


LETTERS = _letters()
