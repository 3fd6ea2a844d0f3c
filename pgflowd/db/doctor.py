"""
Examines a database and reports findings, for `pgflowd doctor`.

Each examination yields findings. If one fails, for example without permission, that is a finding
and the others go on. Each has a limit of time, and so have all together: what takes longer is not
looked at, which is a finding too. All examinations only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from pgflowd.core.documents.schedules import finding_of_schedules
from pgflowd.core.finding import Finding, error, ok, warning
from pgflowd.core.obstacles import (
    MANY_TRANSACTIONS,
    MAX_NAMED,
    is_harmful,
    is_overfull,
    queue_problem,
    snapshot_problem,
)
from pgflowd.core.pruning import growth_problem, told_retention
from pgflowd.core.text import counted, duration, short_id, size
from pgflowd.db import schema
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, translated
from pgflowd.db.flows import list_flows
from pgflowd.db.obstacles import idle_slots, oldest_snapshots, oldest_transactions, queue_share
from pgflowd.db.pruning import kept
from pgflowd.db.query import database_time, execute, fetch_value
from pgflowd.db.rights import has_trusted_cron, platform, rights
from pgflowd.db.schedules import list_schedules
from pgflowd.db.server_connections import finding_of_connections
from pgflowd.db.stalled import findings_of_stalled
from pgflowd.errors import PgflowdError

Connection = psycopg.Connection[Any]

MAX_CLOCK_SKEW_S = 1.0  # less is normal between machines with a time server
OLD_TRANSACTION_S = 300.0  # longer than any transaction of pgflowd
MANY_BYTES = 1_000_000_000  # of log that a slot keeps; less is no matter
LATE_S = 60.0  # an idle worker looks at its queue more often
MAX_ROWS = 20  # of each kind, so that the output stays readable
LIMIT_S = 10.0  # of one examination
WHOLE_LIMIT_S = 40.0  # of all; a program that watches gives up after a minute
MAX_RUNS = 10_000  # whose invariants are looked at: the newest
RUNS_AT_ONCE = 1000  # in one statement, which takes a second at most


@dataclass(frozen=True)
class DoctorRequest:
    """The settings that examinations use."""

    stale_threshold_s: float
    has_listen_url: bool
    name: str = "pgflowd"  # of the daemon
    max_connections: int = 0
    until: float = float("inf")  # when the present examination has to end; monotonic


Examination = Callable[[Connection, DoctorRequest], Iterator[Finding]]


def examine(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Perform all examinations, or only those of the server if the schema cannot be used."""
    is_usable = True
    ends_at = time.monotonic() + WHOLE_LIMIT_S
    for name, examination in EXAMINATIONS.items():
        if not is_usable and name not in _OF_THE_SERVER:
            continue
        until = min(time.monotonic() + LIMIT_S, ends_at)
        if until <= time.monotonic():
            yield _not_looked_at(name, f"all together have taken {duration(WHOLE_LIMIT_S)}")
            continue
        for finding in _examined(name, conn, examination, replace(request, until=until)):
            is_usable = is_usable and finding.code not in _UNUSABLE
            yield finding
        if conn.closed:
            return


def _examined(
    name: str, conn: Connection, examination: Examination, request: DoctorRequest
) -> list[Finding]:
    """Perform one examination in a transaction, which is over before anybody reads the result."""
    found: list[Finding] = []
    try:
        with translated(conn), conn.transaction():
            _set_limit(conn, request.until)
            for finding in examination(conn, request):
                found.append(finding)
    except _TOO_SLOW as problem:
        found.append(_not_looked_at(name, _first_line(problem)))
    except PgflowdError as problem:
        text = f"could not be examined: {problem.text}"
        found.append(error(name, text, problem.next, problem.code))
    except psycopg.Error as problem:
        found.append(error(name, f"could not be examined: {_first_line(problem)}"))
    return found


def _set_limit(conn: Connection, until: float) -> None:
    """Let each statement of this transaction end at this moment."""
    left_s = max(until - time.monotonic(), 0.001)  # none would be no limit
    conn.execute("select set_config('statement_timeout', %s, true)", (f"{left_s * 1000:.0f}",))


def _not_looked_at(name: str, why: str) -> Finding:
    text = f"not looked at, since it took too long: {why}"
    return warning(name, text, "look again when the server has less to do")


def _first_line(problem: psycopg.Error) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _server(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    began = time.perf_counter()
    conn.execute("select 1")
    rtt_s = time.perf_counter() - began
    status = schema.status(conn)
    yield ok("server", f"PostgreSQL {status.state.server}, {duration(rtt_s)} away")
    if is_exposed(conn):
        yield warning("encryption", EXPOSED, EXPOSED_NEXT, "W316")
    state, problem = status.state, status.problem
    if problem:
        yield error("schema", problem.text, problem.next, problem.code)
        return
    core = "own core" if state.core == "own" else f"core of pgflow {state.core}"
    yield ok("schema", f"version {state.version}, {core}, pgmq {state.pgmq}")
    if status.functions_differ:
        text = "the functions are from another release of pgflowd"
        yield warning("schema", text, "run `pgflowd db migrate`")


def _clocks(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    before = time.time()
    theirs = execute(conn, database_time()).timestamp()
    after = time.time()
    skew_s = theirs - (before + after) / 2
    if abs(skew_s) <= MAX_CLOCK_SKEW_S + (after - before):
        skew = f"{round(skew_s * 1000):+} ms"
        yield ok("clocks", f"this machine's and the database's differ by {skew}")
        return
    skew = f"{duration(abs(skew_s))} {'ahead of' if skew_s > 0 else 'behind'}"
    text = f"the database's clock is {skew} this machine's"
    yield warning("clocks", text, "check that both machines use a time server", "W312")


def _pooler(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """A pooler gives its clients another process id than the server has."""
    real = {fetch_value(conn, "select pg_catalog.pg_backend_pid()") for _ in range(3)}
    if real == {conn.info.backend_pid}:
        yield ok("pooler", "none in between")
    elif request.has_listen_url:
        yield ok("pooler", "one in between; listen_url bypasses it")
    else:
        text = "a pooler is in between, so notifications may not arrive"
        yield warning("pooler", text, "set [database] listen_url to bypass the pooler", "W314")


def _rights(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield from rights(conn)


def _platform(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield from platform(conn)


def _durability(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    if fetch_value(conn, "select current_setting('synchronous_commit')") != "off":
        yield ok("durability", "commits survive a crash of the server")
        return
    text = "synchronous_commit is off: a crash of the server loses the last commits"
    yield warning("durability", text, "set it to on for this database or role", "W315")


def _isolation(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Ours are read committed by a setting of the session; those of clients are not."""
    default = fetch_value(conn, _DEFAULT_ISOLATION)
    if default in ("read committed", "read uncommitted"):
        yield ok("isolation", "read committed by default")
        return
    text = f"transactions are {default} by default: a client that starts runs may get 40001"
    remedy = "set default_transaction_isolation to read committed, or have clients try again"
    yield warning("isolation", text, remedy, "W317")


def _transactions(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Those of this database keep its dead rows; those of others may keep notifications."""
    old = execute(conn, oldest_transactions(OLD_TRANSACTION_S, MAX_ROWS))
    here = [each for each in old if each.database == conn.info.dbname]
    for each in here:
        text = f"{each}, {each.since}: dead rows stay, and claims slow down"
        yield warning("transactions", text, each.remedy)
    if not here:
        text = f"none is older than {duration(OLD_TRANSACTION_S)}"
        if old:
            text += f" here; in other databases {len(old)}, the oldest: {old[0]}, {old[0].since}"
        yield ok("transactions", text)


def _snapshots(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """What keeps dead rows, or files of the write-ahead log, whichever way."""
    holders = execute(conn, oldest_snapshots(MANY_TRANSACTIONS, MAX_ROWS))
    for problem in [snapshot_problem(each) for each in holders if is_harmful(each)]:
        yield warning("snapshots", problem.text, problem.next or "", problem.code)
    slots = execute(conn, idle_slots(MANY_BYTES))
    for slot, held in slots:
        text = f"{slot}, inactive, keeps {size(held)} of the write-ahead log"
        yield warning("snapshots", text, slot.remedy)
    if not holders and not slots:
        yield ok("snapshots", "no transaction and no replication slot holds back much")


def _listeners(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    share = execute(conn, queue_share())
    if not is_overfull(share):
        yield ok("listeners", f"{share:.1%} of the server's notification queue is used")
        return
    problem = queue_problem(share, execute(conn, oldest_transactions(0, MAX_NAMED)))
    yield error("listeners", problem.text, problem.next, problem.code)


def _recovery(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Warn of jobs of pg_cron that recover tasks too, except the one that our migrate creates."""
    if not has_trusted_cron(conn):
        yield ok("recovery", "by the sweeper")
        return
    jobs = [name for (name,) in conn.execute(_CRON_JOBS).fetchall()]
    ours = {"pgflow_requeue_stalled_tasks"} if schema.status(conn).state.core == "own" else set()
    others = [job for job in jobs if job not in ours]
    for job in others:
        text = f"pg_cron job {job} recovers tasks, as the sweeper does"
        yield warning("recovery", text, "unschedule one of them", "W313")
    if not others:
        text = "by the sweeper, and by pg_cron while no daemon runs" if jobs else "by the sweeper"
        yield ok("recovery", text)


def _flows(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    flows, now = execute(conn, list_flows()), execute(conn, database_time())
    is_fine = True
    for flow in flows:
        if not flow.is_watched:
            is_fine = False
            text = f"{flow.flow_slug}: its queue has no notification trigger, so workers poll"
            yield warning("flows", text, f"run `pgflowd flows deploy {flow.flow_slug}`", "W311")
        if flow.workers == 0 and flow.active_runs and not flow.is_asleep:
            is_fine = False
            text = f"{flow.flow_slug}: {counted(flow.active_runs, 'open run')}"
            if flow.oldest_queued_at is not None:
                waits_s = (now - flow.oldest_queued_at).total_seconds()
                text += f", the oldest task waits for {duration(waits_s)}"
            yield warning("flows", f"{text}, but no worker serves it", "run `pgflowd serve`")
    served = [each for each in flows if (each.workers or each.is_asleep) and not each.paused_at]
    idle = [each.flow_slug for each in served if each.queued and not each.running]
    for slug, waits_s in conn.execute(_STANDING_STILL, (idle, LATE_S)).fetchall() if idle else ():
        is_fine = False
        text = f"{slug}: a task waits for {duration(waits_s)} and none runs, although it is served"
        yield warning("flows", text, "see `pgflowd status` where its daemon runs", "E318")
    if is_fine:
        text = f"{len(flows)} in the database, all with triggers and workers where needed"
        yield ok("flows", text)


def _stalled(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield from findings_of_stalled(conn, request.stale_threshold_s)


def _schedules(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield finding_of_schedules(execute(conn, list_schedules()), execute(conn, database_time()))


def _orphans(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    queues = [name for (name,) in conn.execute(_UNKNOWN_QUEUES, (MAX_ROWS,)).fetchall()]
    lost = fetch_value(conn, _LOST_WORKERS)
    parts = [f"queues without a flow: {', '.join(queues)}"] if queues else []
    if lost:
        workers = counted(lost, "worker")
        parts.append(f"{workers} without a heartbeat for 5 min, never marked stopped")
    yield ok("orphans", "; ".join(parts) or "none")


def _connections(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield finding_of_connections(conn, request.name, request.max_connections)


def _history(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Say how much is kept, and for how long; warn where a large database only grows."""
    found = execute(conn, kept())
    problem = growth_problem(found)
    began = f" since {found.since:%Y-%m-%d}" if found.since else ""
    runs = "" if found.runs is None else f" in about {counted(found.runs, 'run')}"
    if problem:
        yield warning("history", f"{problem.text}{began}", problem.next or "", problem.code)
    else:
        yield ok("history", f"{size(found.size)}{runs}{began}; {told_retention(found)}")


def _invariants(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Look at the newest runs, some at a time, until time is up."""
    rows = conn.execute(_OTHER_VIOLATIONS, [MAX_ROWS] * 4).fetchall()
    run_ids = [run_id for (run_id,) in conn.execute(_NEWEST_RUNS, (MAX_RUNS,)).fetchall()]
    looked_at, is_late = 0, False
    while looked_at < len(run_ids) and not is_late:
        portion = run_ids[looked_at : looked_at + RUNS_AT_ONCE]
        try:
            _set_limit(conn, request.until)
            rows += conn.execute(_RUN_VIOLATIONS, (portion, MAX_ROWS)).fetchall()
            looked_at += len(portion)
        except _TOO_SLOW:
            is_late = True
    for number, flow, run_id, step, index, detail in rows[:MAX_ROWS]:
        task = "" if step is None else f"/{step}" + ("" if index is None else f"#{index}")
        where = flow if run_id is None else f"{flow} {short_id(run_id)}{task}"
        remedy = _REMEDIES.get(number, "if no table was changed by hand, please report this")
        yield error("invariants", f"{number} {where}: {detail}", remedy)
    seen = f"the newest {counted(looked_at, 'run')} and all queues"
    if is_late:
        text = f"only {seen} were looked at: {len(run_ids) - looked_at} more took too long"
        yield warning("invariants", text, "look again when the server has less to do")
    elif not rows:
        yield ok("invariants", f"the invariants hold in {seen}")


_OF_THE_SERVER: dict[str, Examination] = {
    "server": _server,
    "clocks": _clocks,
    "pooler": _pooler,
    "durability": _durability,
    "isolation": _isolation,
    "connections": _connections,
    "transactions": _transactions,
    "snapshots": _snapshots,
    "listeners": _listeners,
}
EXAMINATIONS = {
    **_OF_THE_SERVER,
    "rights": _rights,
    "platform": _platform,
    "recovery": _recovery,
    "flows": _flows,
    "stalled": _stalled,
    "schedules": _schedules,
    "orphans": _orphans,
    "history": _history,
    "invariants": _invariants,
}
_REMEDIES = {
    **dict.fromkeys(("I5", "I24"), "wait for the sweeper, or `pgflowd stalled requeue --all`"),
    "I17": "see `pgflowd flows limits`, and who has written into pgflowd.slots",
    "I16": "see E324 and E331 in `pgflowd status`, if they are there, and who has the run locked",
}
_UNUSABLE = {"E302", "E303", "E304", "E307", "E309"}
_TOO_SLOW = (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable)

_STANDING_STILL = """
select flow_slug, oldest_queued_s from pgflowd.flow_status
 where flow_slug = any (%s) and oldest_queued_s >= %s order by flow_slug
"""
_DEFAULT_ISOLATION = """
select reset_val from pg_catalog.pg_settings where name = 'default_transaction_isolation'
"""
_CRON_JOBS = """
select coalesce(to_jsonb(job) ->> 'jobname', 'number ' || job.jobid) from cron.job as job
 where job.active and job.command ~* '(requeue_stalled|recover_stalled)'
   and coalesce(to_jsonb(job) ->> 'database', current_database()) = current_database()
"""
_UNKNOWN_QUEUES = """
select queue.queue_name from pgmq.list_queues() as queue
 where not exists (
   select from pgflow.flows as flow cross join lateral pgflowd._queues(flow.flow_slug) as known
    where known.queue_name = queue.queue_name)
 order by 1 limit %s
"""
_LOST_WORKERS = """
select count(*) from pgflow.workers as worker
 where to_jsonb(worker) ->> 'stopped_at' is null
   and worker.last_heartbeat_at < now() - interval '5 minutes'
"""
_NEWEST_RUNS = "select run_id from pgflow.runs order by started_at desc limit %s"
_RUN_VIOLATIONS = "select * from pgflowd.run_violations(%s, %s)"
_OTHER_VIOLATIONS = """
select * from pgflowd.queue_violations(%s) union all select * from pgflowd.due_violations(%s)
 union all select * from pgflowd.limit_violations(%s) union all
select * from pgflowd.orphan_violations(%s)
"""
