"""
Reads facts about the database in the sweeper, for `status`.

It reads version, pgmq and schema at each connect, round trip and clock at each sweep. It reports
as problems clocks that differ (W312), `synchronous_commit` off (W315), and a connection without
encryption (W316).
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed
from pgflowd.db.schema import status
from pgflowd.errors import DatabaseError

MAX_SKEW_S = 5.0  # of clocks; more confuses a reader of logs


class DatabaseCheck:
    """The facts that were read last."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._is_exposed = False

    def on_connected(self, conn: psycopg.Connection[Any]) -> None:
        """Read what stays the same during a connection. Workers check whether it suffices."""
        self._is_exposed = is_exposed(conn)
        try:
            state = status(conn).state
        except DatabaseError:
            self._about = {}
            return
        self._about = {
            "server": state.server,
            "place": f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}",
            "pgmq": state.pgmq,
            "schema": state.version,
        }

    def measure(self, conn: psycopg.Connection[Any]) -> dict[str, Any]:
        """Read the clock, and return numbers for the next heartbeat."""
        started, sent_at = time.monotonic(), time.time()
        row = conn.execute(_CLOCK_QUERY).fetchone()
        assert row is not None
        theirs, commits = float(row[0]), str(row[1])
        rtt_s = time.monotonic() - started
        skew_s = theirs - (sent_at + rtt_s / 2)
        database = {
            "state": "up",
            "at": time.time(),
            **self._about,
            "rtt_s": round(rtt_s, 6),
            "clock_skew_s": round(skew_s, 3),
        }
        return {"database": database, "problems": _problems(skew_s, commits, self._is_exposed)}


_CLOCK_QUERY = """
select extract(epoch from clock_timestamp())::float8, current_setting('synchronous_commit')
"""


def _problems(skew_s: float, commits: str, exposed: bool) -> list[dict[str, str]]:
    problems = {}
    if abs(skew_s) > MAX_SKEW_S:
        problems["W312"] = (
            f"the database's clock is {skew_s:+.1f} s from ours; times in logs do not match"
        )
    if commits == "off":
        problems["W315"] = (
            "synchronous_commit is off: what was just committed is lost when the server crashes"
        )
    if exposed:
        problems["W316"] = f"{EXPOSED}; {EXPOSED_NEXT}"
    return [{"code": code, "text": text} for code, text in problems.items()]
