"""
The chaos of the rows of daemons: each one that lives has a row that says so, as soon as all is
well, and is not listed any more once it has ended as it was asked to. One that was killed is listed
until it is silent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from pgflowd.testing.until import until

SHOWN = 5
HEARTBEATS_S = 45.0  # a worker that was killed counts as one that lives for less
LIVING = "select daemon_id::text, name from pgflowd.daemons() where not is_silent"


def missing(conn: psycopg.Connection[Any], living: dict[str, str]) -> list[str]:
    """Of these daemons, names by ids, those that are not listed, or are as silent."""
    listed = {id for id, _ in conn.execute(LIVING.encode()).fetchall()}
    gone = [name for id, name in living.items() if id not in listed]
    return [f"the row of {name} says that it does not live" for name in gone]


def troubles(conn: psycopg.Connection[Any], ended: dict[str, str]) -> list[str]:
    """Of these daemons, which have ended as asked, those that are listed."""
    listed = [row for row in conn.execute(LIVING.encode()) if row[0] in ended][:SHOWN]
    return [f"daemon {name} ({id}) is listed, and has ended" for id, name in listed]


def in_the_end(conn: psycopg.Connection[Any], ended: dict[str, str]) -> list[str]:
    """The same, once no worker of theirs that was killed counts as one that lives."""
    with suppress(AssertionError):
        until(lambda: not troubles(conn, ended), HEARTBEATS_S)
    return troubles(conn, ended)
