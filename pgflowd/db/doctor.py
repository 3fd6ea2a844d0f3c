"""
Examines a database and reports findings, for `pgflowd doctor`.

Each examination yields findings. If one fails, for example without permission, that is a finding
and the others go on. All examinations only read. `pgflowd.violations` lists broken invariants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from pgflowd.core.finding import Finding
from pgflowd.core.text import counted, duration, short_id
from pgflowd.db import schema
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, translated
from pgflowd.db.flows import list_flows
from pgflowd.db.query import database_time, execute
from pgflowd.db.stalled import stalled_tasks
from pgflowd.errors import PgflowdError

Connection = psycopg.Connection[Any]

MAX_CLOCK_SKEW_S = 1.0  # less is normal between machines with a time server
OLD_TRANSACTION_S = 300.0  # longer than any transaction of pgflowd
MAX_ROWS = 20  # of each kind, so that the output stays readable


@dataclass(frozen=True)
class DoctorRequest:
    """The settings that examinations use."""

    stale_threshold_s: float
    has_listen_url: bool


Examination = Callable[[Connection, DoctorRequest], Iterator[Finding]]


def examine(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Perform all examinations, or only those of the server if the schema cannot be used."""
    usable = True
    for name, examination in EXAMINATIONS.items():
        if not usable and name not in _OF_THE_SERVER:
            continue
        try:
            with translated(conn):
                for finding in examination(conn, request):
                    usable = usable and finding.code not in _UNUSABLE
                    yield finding
        except (PgflowdError, psycopg.Error) as error:
            code = error.code if isinstance(error, PgflowdError) else None
            text = error.text if isinstance(error, PgflowdError) else _first_line(error)
            remedy = error.next if isinstance(error, PgflowdError) else None
            yield Finding(name, "error", f"could not be examined: {text}", code, remedy)
            if conn.closed:
                return


def _server(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    began = time.perf_counter()
    conn.execute("select 1")
    rtt_s = time.perf_counter() - began
    status = schema.status(conn)
    yield Finding("server", "ok", f"PostgreSQL {status.state.server}, {rtt_s * 1000:.1f} ms away")
    if is_exposed(conn):
        yield Finding("encryption", "warning", EXPOSED, "W316", EXPOSED_NEXT)
    state, problem = status.state, status.problem
    if problem:
        yield Finding("schema", "error", problem.text, problem.code, problem.next)
        return
    core = "own core" if state.core == "own" else f"core of pgflow {state.core}"
    yield Finding("schema", "ok", f"version {state.version}, {core}, pgmq {state.pgmq}")
    if status.functions_differ:
        text = "the functions are from another release of pgflowd"
        yield Finding("schema", "warning", text, None, "run `pgflowd db migrate`")


def _clock(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    before = time.time()
    theirs = execute(conn, database_time()).timestamp()
    after = time.time()
    skew_s = theirs - (before + after) / 2
    if abs(skew_s) <= MAX_CLOCK_SKEW_S + (after - before):
        yield Finding(
            "clocks",
            "ok",
            f"this machine's and the database's differ by {round(skew_s * 1000):+} ms",
        )
        return
    side = "ahead of" if skew_s > 0 else "behind"
    text = f"the database's clock is {duration(abs(skew_s))} {side}"
    yield Finding(
        "clocks",
        "warning",
        f"{text} this machine's",
        "W312",
        "check that both machines use a time server",
    )


def _pooler(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """A pooler gives its clients another process id than the server has."""
    real = {_one(conn, "select pg_catalog.pg_backend_pid()") for _ in range(3)}
    if real == {conn.info.backend_pid}:
        yield Finding("pooler", "ok", "none in between")
    elif request.has_listen_url:
        yield Finding("pooler", "ok", "one in between; listen_url bypasses it")
    else:
        text = "a pooler is in between, so notifications may not arrive"
        yield Finding(
            "pooler", "warning", text, "W314", "set [database] listen_url to bypass the pooler"
        )


def _rights(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    row = conn.execute(_RIGHTS).fetchone()
    assert row is not None
    role, *rights = row
    names = ("view", "start", "serve", "deploy")
    can = [name for name, right in zip(names, rights, strict=True) if right]
    cannot = [name for name in names if name not in can]
    text = f"{role} may {', '.join(can) or 'do nothing'}"
    text += f"; not {', '.join(cannot)}" if cannot else ""
    state = "ok" if can else "error"
    remedy = None if can else f"give {role} a role of `pgflowd db sql roles`"
    yield Finding("rights", state, text, None if can else "E305", remedy)


def _durability(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    if _one(conn, "select current_setting('synchronous_commit')") != "off":
        yield Finding("durability", "ok", "commits survive a crash of the server")
        return
    text = "synchronous_commit is off: a crash of the server loses the last commits"
    remedy = "set it to on for this database or role"
    yield Finding("durability", "warning", text, "W315", remedy)


def _transactions(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    rows = conn.execute(_TRANSACTIONS, {"old": OLD_TRANSACTION_S, "most": MAX_ROWS}).fetchall()
    if not rows:
        yield Finding("transactions", "ok", f"none is older than {duration(OLD_TRANSACTION_S)}")
    for client, state, age_s in rows:
        text = f"{client} {state} for {duration(age_s)}: dead rows stay, and claims slow down"
        yield Finding(
            "transactions", "warning", text, None, "end it: `select pg_terminate_backend(PID)`"
        )


def _recovery(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Warn of jobs of pg_cron that recover tasks too, except the one that our migrate creates."""
    if _one(conn, "select pg_catalog.to_regclass('cron.job')") is None:
        yield Finding("recovery", "ok", "by the daemon's sweeper alone")
        return
    own = schema.status(conn).state.core == "own"
    jobs = [name for (name,) in conn.execute(_CRON_JOBS).fetchall()]
    known = "pgflow_requeue_stalled_tasks"
    for job in jobs:
        if own and job == known:
            continue
        text = f"pg_cron job {job} recovers tasks, as the sweeper does"
        yield Finding("recovery", "warning", text, "W313", "unschedule one of them")
    if all(own and job == known for job in jobs):
        text = (
            "by the sweeper, and by pg_cron while no daemon runs"
            if jobs
            else "by the sweeper alone"
        )
        yield Finding("recovery", "ok", text)


def _flows(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    flows = execute(conn, list_flows())
    now = execute(conn, database_time())
    fine = True
    for flow in flows:
        if not flow.is_watched:
            text = f"{flow.flow_slug}: its queue has no notification trigger, so workers poll"
            remedy = f"run `pgflowd flows deploy {flow.flow_slug}`"
            yield Finding("flows", "warning", text, "W311", remedy)
            fine = False
        if flow.workers == 0 and flow.active_runs:
            waits = _waits(flow.oldest_queued_at, now)
            work = f"{flow.flow_slug}: {counted(flow.active_runs, 'open run')}{waits}"
            text = f"{work}, but no worker serves it"
            yield Finding("flows", "warning", text, None, "run `pgflowd serve`")
            fine = False
    if fine:
        yield Finding(
            "flows",
            "ok",
            f"{len(flows)} in the database, all with triggers and workers where needed",
        )


def _stalled(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    found = execute(conn, stalled_tasks(request.stale_threshold_s))
    if not found:
        yield Finding("stalled", "ok", "no task is stalled")
        return
    oldest = found[0]
    task = f"{short_id(oldest.run_id)}/{oldest.step_slug}#{oldest.task_index}"
    text = f"{counted(len(found), 'task')}, the oldest {task}"
    yield Finding("stalled", "warning", text, None, "see `pgflowd stalled list`")


def _orphans(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    queues = [name for (name,) in conn.execute(_UNKNOWN_QUEUES, (MAX_ROWS,)).fetchall()]
    lost = _one(conn, _LOST_WORKERS)
    parts = []
    if queues:
        parts.append(f"queues without a flow: {', '.join(queues)}")
    if lost:
        parts.append(
            f"{counted(lost, 'worker')} without a heartbeat for 5 min, never marked stopped"
        )
    yield Finding("orphans", "ok", "; ".join(parts) or "none")


def _invariants(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    rows = conn.execute(_VIOLATIONS, (MAX_ROWS,)).fetchall()
    if not rows:
        yield Finding("invariants", "ok", "I2 to I10 hold for the runs of the last day")
    for number, flow, run_id, step, index, detail in rows:
        task = "" if step is None else f"/{step}" + ("" if index is None else f"#{index}")
        where = flow if run_id is None else f"{flow} {short_id(run_id)}{task}"
        remedy = "if no table was changed by hand, please report this"
        yield Finding("invariants", "error", f"{number} {where}: {detail}", None, remedy)


EXAMINATIONS: dict[str, Examination] = {
    "server": _server,
    "clocks": _clock,
    "pooler": _pooler,
    "durability": _durability,
    "transactions": _transactions,
    "rights": _rights,
    "recovery": _recovery,
    "flows": _flows,
    "stalled": _stalled,
    "orphans": _orphans,
    "invariants": _invariants,
}
_OF_THE_SERVER = {"server", "clocks", "pooler", "durability", "transactions"}
_UNUSABLE = {"E302", "E303", "E304", "E307", "E309"}

_RIGHTS = """
select current_user,
       has_table_privilege('pgflow.runs', 'select'),
       has_function_privilege('pgflow.start_flow_with_states(text, jsonb, uuid)', 'execute'),
       has_table_privilege('pgflow.workers', 'insert')
         and has_table_privilege('pgflowd.attempts', 'insert')
         and has_table_privilege('pgflow.step_tasks', 'update'),
       has_table_privilege('pgflow.flows', 'insert')
"""
_TRANSACTIONS = """
select 'pid ' || pid || coalesce(', ' || nullif(application_name, ''), '')
         || coalesce(', ' || usename, '') as client,
       coalesce(state, 'open') as state,
       extract(epoch from clock_timestamp() - xact_start)::float8 as age_s
  from pg_catalog.pg_stat_activity
 where datname = current_database() and pid <> pg_backend_pid()
   and backend_type = 'client backend'
   and xact_start < clock_timestamp() - make_interval(secs => %(old)s)
union all
select 'prepared transaction ' || gid, 'waits', extract(epoch from clock_timestamp() - prepared)
  from pg_catalog.pg_prepared_xacts
 where database = current_database()
   and prepared < clock_timestamp() - make_interval(secs => %(old)s)
 order by 3 desc limit %(most)s
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
_VIOLATIONS = """
select invariant, flow_slug, run_id, step_slug, task_index, detail
  from pgflowd.violations(max_rows => %s)
"""


def _waits(since: datetime | None, now: datetime) -> str:
    return (
        ""
        if since is None
        else f", the oldest task waits for {duration((now - since).total_seconds())}"
    )


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _one(conn: Connection, query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    return None if row is None else row[0]
