"""
Pulse: what the sweeper finds out about the database in passing, for `status`.

Version, pgmq and schema at each connect; round trip and clock at each sweep. Clocks that differ
(W312), `synchronous_commit` off (W315) and a line that others can read (W316) are problems that
people should know of.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg

from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed
from pgflowd.db.schema import status
from pgflowd.errors import DatabaseError

MOST_SKEW_S = 5.0


class DatabaseCheck:
    """The database as it is now."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._is_exposed = False

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Ask what does not change while we are connected; whether it will do, workers judge."""
        self._is_exposed = is_exposed(conn)
        try:
            state = status(conn).state
        except DatabaseError:
            self._about = {}
            return
        self._about = {
            "server": state.server,
            "place": _place(conn.info),
            "pgmq": state.pgmq,
            "schema": state.version,
        }

    def feel(self, conn: psycopg.Connection[Any]) -> dict[str, Any]:
        """Ask for the time, and return numbers for the next Beat."""
        began, asked_at = time.monotonic(), time.time()
        row = conn.execute(_QUESTION).fetchone()
        assert row is not None
        theirs, commits = float(row[0]), str(row[1])
        rtt_s = time.monotonic() - began
        skew_s = theirs - (asked_at + rtt_s / 2)
        said = {
            "state": "up",
            "at": time.time(),
            **self._about,
            "rtt_s": round(rtt_s, 6),
            "clock_skew_s": round(skew_s, 3),
        }
        return {"database": said, "problems": _problems(skew_s, commits, self._is_exposed)}


def _place(info: psycopg.ConnectionInfo) -> str:
    """Where the server is and which database it is, as `db1:5432/shop`."""
    return f"{info.host}:{info.port}/{info.dbname}"


_QUESTION = """
select extract(epoch from clock_timestamp())::float8, current_setting('synchronous_commit')
"""


def _problems(skew_s: float, commits: str, exposed: bool) -> list[dict[str, str]]:
    problems = []
    if abs(skew_s) > MOST_SKEW_S:
        text = f"the database's clock is {skew_s:+.1f} s from ours; times in logs do not match"
        problems.append({"code": "W312", "text": text})
    if commits == "off":
        text = "synchronous_commit is off: what was just committed is lost when the server crashes"
        problems.append({"code": "W315", "text": text})
    if exposed:
        problems.append({"code": "W316", "text": f"{EXPOSED}; {EXPOSED_NEXT}"})
    return problems
