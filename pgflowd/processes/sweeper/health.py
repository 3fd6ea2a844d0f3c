"""
Reads facts about the database for `status`: version, pgmq and schema at each connect, round trip
and clock before each sweep.

It reports as problems clocks that differ (W312), `synchronous_commit` off (W315), a connection
without encryption (W316), a notification queue that is not emptied (E319), what keeps dead rows
(E321), and a server without a free connection (E310), at once when one was refused.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

from pgflowd.core.documents.daemons import ENDING, stored
from pgflowd.core.documents.run_tasks import problem_of
from pgflowd.core.json import dumps, loads
from pgflowd.core.messages import StatusPart, StatusWanted
from pgflowd.core.server_connections import (
    MANY_TRANSACTIONS,
    MAX_HOLDERS,
    full_problem,
    is_harmful,
    is_overfull,
    queue_problem,
    snapshot_problem,
)
from pgflowd.core.sweeper import (
    PruneSchedule,
    RowTimes,
    SweeperPart,
    growth_problem,
    may_be_too_large,
)
from pgflowd.core.text import counted, short_id
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, sqlstate_of, translated
from pgflowd.db.daemons import (
    oldest_snapshots,
    oldest_transactions,
    queue_share,
    server_connections,
    tell_core,
    tell_daemon,
)
from pgflowd.db.flows import roll_up_minutes, unserved_queues
from pgflowd.db.query import Query, execute
from pgflowd.db.runs import kept, prune_expired
from pgflowd.db.schema import replaced_functions, replaced_problem, status
from pgflowd.db.waits import due_late, undecided_tasks, waiting_tasks
from pgflowd.errors import AccessDenied, DatabaseError, PgflowdError, Problem

if TYPE_CHECKING:
    from pgflowd.processes.sweeper.main import Sweeper

PAUSE_S = 2.0  # between two looks at a server that refuses connections
CORE_PAUSE_S = 30.0  # between two comparisons of the functions of schema pgflow
MAX_SKEW_S = 5.0  # of clocks; more confuses a reader of logs


class DatabaseHealth:
    """What was measured, and what is wrong."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper, self._service, self._log = sweeper, sweeper.service, sweeper.log
        self._about: dict[str, Any] = {}  # the database, as it was at the connect
        self._is_exposed = False
        self._problems: list[Problem] = []
        self._looked_at = self._core_at = 0.0
        self._core_problem: list[Problem] = []

    def prepare(self, conn: psycopg.Connection[Any]) -> None:
        """Read what stays the same during a connection. Workers check whether it suffices."""
        self._is_exposed = is_exposed(conn)
        self._about = {}
        with contextlib.suppress(DatabaseError):
            state = status(conn).state
            self._about = {
                "server": state.server,
                "place": f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}",
                "pgmq": state.pgmq,
                "schema": state.version,
            }

    def on_refused(self, now: float) -> None:
        """The server had no free connection for a child: look who has them."""
        state = self._sweeper.parts[SweeperPart.HEALTH]
        state.at = min(state.at, max(now, self._looked_at + PAUSE_S))

    def look(self, conn: psycopg.Connection[Any], others: Sequence[Problem]) -> None:
        """Measure the database, and report its problems, with these others."""
        self._looked_at = time.monotonic()
        self._sweeper.rest(SweeperPart.HEALTH)
        with self._sweeper.link.limited(conn), translated(conn):
            # find out, now and then, whether another program has replaced functions of ours
            if time.monotonic() >= self._core_at:
                functions = replaced_functions(conn)
                execute(conn, tell_core(functions))
                self._core_at = time.monotonic() + CORE_PAUSE_S
                self._core_problem = [replaced_problem(functions)] if functions else []
            problems = [*self._measure(conn), *self._core_problem, *_obstacles(conn), *others]
        known = {each.code for each in self._problems}
        for problem in problems:
            if problem.code not in known:
                level = "warning" if problem.is_warning else "error"
                fields = {"code": problem.code, "error": problem.text, "next": problem.next}
                self._log.write(level, "sweeper.problem", **fields)
        if known != {each.code for each in problems}:
            self._service.send_heartbeat_soon()
        self._problems = problems
        self._service.numbers["problems"] = [
            {"code": each.code, "text": each.text, "next": each.next} for each in problems
        ]

    def _measure(self, conn: psycopg.Connection[Any]) -> list[Problem]:
        """Measure round trip and clock for the next heartbeat; return what is wrong."""
        started, sent_at = time.monotonic(), time.time()
        row = conn.execute(_CLOCK_QUERY).fetchone()
        assert row is not None
        rtt_s = time.monotonic() - started
        skew_s = row[0] - (sent_at + rtt_s / 2)
        self._service.numbers["database"] = {
            "state": "up",
            "at": time.time(),
            **self._about,
            "rtt_s": round(rtt_s, 6),
            "clock_skew_s": round(skew_s, 3),
        }
        problems = []
        if abs(skew_s) > MAX_SKEW_S:
            text = f"the database's clock is {skew_s:+.1f} s from ours; times in logs do not match"
            problems.append(Problem("W312", text, "database"))
        if row[1] == "off":
            lost = "what was just committed is lost when the server crashes"
            problems.append(Problem("W315", f"synchronous_commit is off: {lost}", "database"))
        if self._is_exposed:
            problems.append(Problem("W316", EXPOSED, "database", EXPOSED_NEXT))
        return problems


_CLOCK_QUERY = """
select extract(epoch from clock_timestamp())::float8, current_setting('synchronous_commit')
"""


def _obstacles(conn: psycopg.Connection[Any]) -> list[Problem]:
    """Return what hinders the whole database. To ask for the queue's share also empties it."""
    is_full = full_problem(execute(conn, server_connections()))
    problems = [is_full] if is_full else []
    share = execute(conn, queue_share())
    if is_overfull(share):
        problems.append(queue_problem(share, execute(conn, oldest_transactions(0, MAX_HOLDERS))))
    holders = execute(conn, oldest_snapshots(MANY_TRANSACTIONS, MAX_HOLDERS))
    problems += [snapshot_problem(each) for each in holders if is_harmful(each)]
    return problems


# Writes the daemon's row, so that its status can be seen from anywhere.
#
# The sweeper asks the supervisor for the status document, gets it in parts, and writes it; the
# supervisor also sends it unasked when the daemon ends. Nothing is kept: a sweeper that was killed
# asks anew. An older schema has no such rows, and a role may lack the right: then nothing is
# written until the next connection.
class DaemonRow:
    """The parts that have come, and when the next are asked for."""

    def __init__(self, sweeper: Sweeper) -> None:
        self.times = RowTimes(sweeper.settings.recovery.recovery_interval_s)
        self._sweeper, self._log = sweeper, sweeper.log
        self._parts: list[str] = []
        self._status: dict[str, Any] | None = None  # that is to be written
        self._is_refused = False

    def connected(self, now: float) -> None:
        self._is_refused = False
        self.times.connected(now)

    def receive(self, message: StatusPart) -> None:
        self._parts.append(message.part)
        if message.is_last:
            self._status, self._parts = loads("".join(self._parts)), []

    @property
    def look_at(self) -> float:
        """When there is something to do: at once, if a status has come."""
        return self.times.ask_at if self._status is None else 0.0

    def do(self, conn: psycopg.Connection[Any]) -> None:
        """Write what has come, and ask for the next status if it is time."""
        now = time.monotonic()
        if (query := self._take()) and not self._is_refused:
            try:
                self._sweeper.execute(conn, query)
            except (AccessDenied, DatabaseError) as error:
                self._is_refused = True
                text = f"the row of this daemon cannot be written: {error.text}"
                fields = {"code": error.code, "error": text, "next": error.next}
                self._log.warning("sweeper.problem", **fields)
        if now >= self.times.ask_at:
            self._sweeper.service.channel.send(StatusWanted())
            self.times.asked(now)

    def last(self) -> Query[None] | None:
        """What is to be written as the daemon ends; nothing if only the sweeper does."""
        is_ending = self._status is not None and self._status.get("state") in ENDING
        return self._take() if is_ending and not self._is_refused else None

    def _take(self) -> Query[None] | None:
        status, self._status = self._status, None
        if status is None:
            return None
        return tell_daemon(dumps(stored(status, self._log.without_secrets)))


# Counts what waits, for `status` and the metrics, and adds old minutes of the statistics up to
# hours.
#
# What waits for a person is a problem: tasks in quarantine (W329), needs that no worker has (W328),
# a flow that is paused (W330), runs that wait for each other (W332).
ROLL_UP_EVERY_S = 3600.0


class Statistics:
    """The numbers of the last look, and when minutes are added up next."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self._roll_up_at = 0.0
        self.problems: list[Problem] = []

    def look(self, conn: psycopg.Connection[Any]) -> None:
        """Look after a sweep."""
        self._sweeper.rest(SweeperPart.STATISTICS)
        numbers, execute = self._sweeper.service.numbers, self._sweeper.execute
        numbers["waiting"] = execute(conn, waiting_tasks())
        numbers["unserved"] = execute(conn, unserved_queues())
        numbers["due_late_s"] = execute(conn, due_late())
        self.problems = [problem_of(each) for each in execute(conn, undecided_tasks())]
        if time.monotonic() >= self._roll_up_at:
            execute(conn, roll_up_minutes())
            self._roll_up_at = time.monotonic() + ROLL_UP_EVERY_S


# Deletes what is older than the settings of retention, a part at a time, and tells when a database
# grows without one (W326), or when deleting fails (E325). `core.sweeper` decides when it does the
# next part.
TRY_AGAIN = "it is tried again; `pgflowd runs prune --older-than 30d` shows the same error"
TOO_LARGE = "it is tried again each hour; raise [database] statement_timeout"


class Pruning:
    """The parts, and what is wrong."""

    def __init__(self, sweeper: Sweeper) -> None:
        self._sweeper = sweeper
        self.schedule = PruneSchedule()
        self.problem: Problem | None = None
        self._runs = 0  # deleted since it began at the oldest one
        self._skipped: Problem | None = None  # of this round

    def do(self, conn: psycopg.Connection[Any]) -> None:
        """Do the next part. Raise what less at once may mend."""
        schedule, began_at, known = self.schedule, time.monotonic(), self.problem
        execute, most = self._sweeper.execute, self._sweeper.most(SweeperPart.PRUNE)
        try:
            pruned = execute(conn, prune_expired(schedule.place, most))
            schedule.pruned(began_at, time.monotonic(), pruned)
            self._runs += pruned.runs or 0
            if schedule.place is None:
                self.problem = self._skipped or growth_problem(execute(conn, kept()))
                if self._runs:
                    text = f"{counted(self._runs, 'run')} deleted, older than the retention"
                    self._sweeper.log.info("sweeper.pruned", count=self._runs, error=text)
                self._runs, self._skipped = 0, None
        except (psycopg.Error, PgflowdError) as error:
            if conn.closed or may_be_too_large(sqlstate_of(error)):
                raise
            schedule.failed(time.monotonic())
            why = next(iter(str(error).splitlines()), type(error).__name__)
            text = f"runs older than the retention cannot be deleted: {why}"
            self.problem = Problem("E325", text, "database", TRY_AGAIN)
        if self.problem != known:
            self._sweeper.parts[SweeperPart.HEALTH].at = time.monotonic()

    def skip(self, conn: psycopg.Connection[Any], why: str) -> None:
        """Leave out the next run: it cannot be deleted alone."""
        now = time.monotonic()
        pruned = self._sweeper.execute(conn, prune_expired(self.schedule.place, 1, is_skipped=True))
        self.schedule.pruned(now, now, pruned)
        name = "a run" if pruned.place is None else f"run {short_id(pruned.place.after_run)}"
        text = f"{name} with all that belongs to it takes too long to be deleted: {why}"
        self._skipped = self.problem = Problem("E325", text, "database", TOO_LARGE)
