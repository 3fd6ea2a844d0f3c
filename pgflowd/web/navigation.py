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
