"""
Examines a database and reports findings, for `pgflowd doctor`.

Each examination yields findings. If one fails, for example without permission, that is a finding
and the others go on. All examinations only read. `pgflowd.violations` lists broken invariants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from pgflowd.core.finding import Finding, error, ok, warning
from pgflowd.core.text import counted, duration, short_id
from pgflowd.db import schema
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, translated
from pgflowd.db.flows import list_flows
from pgflowd.db.query import database_time, execute, fetch_value
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
    is_usable = True
    for name, examination in EXAMINATIONS.items():
        if not is_usable and name not in _OF_THE_SERVER:
            continue
        try:
            with translated(conn):
                for finding in examination(conn, request):
                    is_usable = is_usable and finding.code not in _UNUSABLE
                    yield finding
        except PgflowdError as problem:
            yield error(name, f"could not be examined: {problem.text}", problem.next, problem.code)
        except psycopg.Error as problem:
            text = next(iter(str(problem).splitlines()), type(problem).__name__)
            yield error(name, f"could not be examined: {text}")
        if conn.closed:
            return


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
    row = conn.execute(_RIGHTS).fetchone()
    assert row is not None
    role, *rights = row
    may = dict(zip(("view", "start", "serve", "deploy"), rights, strict=True))
    if not any(rights):
        text = f"{role} may not {', '.join(may)}"
        yield error("rights", text, f"give {role} a role of `pgflowd db sql roles`", "E305")
        return
    text = f"{role} may {', '.join(name for name, right in may.items() if right)}"
    missing = [name for name, right in may.items() if not right]
    yield ok("rights", f"{text}; not {', '.join(missing)}" if missing else text)


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
    rows = conn.execute(_TRANSACTIONS, {"old": OLD_TRANSACTION_S, "most": MAX_ROWS}).fetchall()
    if not rows:
        yield ok("transactions", f"none is older than {duration(OLD_TRANSACTION_S)}")
    for client, state, age_s in rows:
        text = f"{client} {state} for {duration(age_s)}: dead rows stay, and claims slow down"
        yield warning("transactions", text, "end it: `select pg_terminate_backend(PID)`")


def _recovery(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Warn of jobs of pg_cron that recover tasks too, except the one that our migrate creates."""
    if fetch_value(conn, "select pg_catalog.to_regclass('cron.job')") is None:
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
        if flow.workers == 0 and flow.active_runs:
            is_fine = False
            text = f"{flow.flow_slug}: {counted(flow.active_runs, 'open run')}"
            if flow.oldest_queued_at is not None:
                waits_s = (now - flow.oldest_queued_at).total_seconds()
                text += f", the oldest task waits for {duration(waits_s)}"
            yield warning("flows", f"{text}, but no worker serves it", "run `pgflowd serve`")
    if is_fine:
        text = f"{len(flows)} in the database, all with triggers and workers where needed"
        yield ok("flows", text)


def _stalled(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    found = execute(conn, stalled_tasks(request.stale_threshold_s))
    if not found:
        yield ok("stalled", "no task is stalled")
        return
    oldest = found[0]
    task = f"{short_id(oldest.run_id)}/{oldest.step_slug}#{oldest.task_index}"
    text = f"{counted(len(found), 'task')}, the oldest {task}"
    yield warning("stalled", text, "see `pgflowd stalled list`")


def _orphans(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    queues = [name for (name,) in conn.execute(_UNKNOWN_QUEUES, (MAX_ROWS,)).fetchall()]
    lost = fetch_value(conn, _LOST_WORKERS)
    parts = [f"queues without a flow: {', '.join(queues)}"] if queues else []
    if lost:
        workers = counted(lost, "worker")
        parts.append(f"{workers} without a heartbeat for 5 min, never marked stopped")
    yield ok("orphans", "; ".join(parts) or "none")


def _invariants(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    rows = conn.execute(_VIOLATIONS, (MAX_ROWS,)).fetchall()
    if not rows:
        yield ok("invariants", "I2 to I10 hold for the runs of the last day")
    for number, flow, run_id, step, index, detail in rows:
        task = "" if step is None else f"/{step}" + ("" if index is None else f"#{index}")
        where = flow if run_id is None else f"{flow} {short_id(run_id)}{task}"
        remedy = "if no table was changed by hand, please report this"
        yield error("invariants", f"{number} {where}: {detail}", remedy)


_OF_THE_SERVER: dict[str, Examination] = {
    "server": _server,
    "clocks": _clocks,
    "pooler": _pooler,
    "durability": _durability,
    "isolation": _isolation,
    "transactions": _transactions,
}
EXAMINATIONS = {
    **_OF_THE_SERVER,
    "rights": _rights,
    "recovery": _recovery,
    "flows": _flows,
    "stalled": _stalled,
    "orphans": _orphans,
    "invariants": _invariants,
}
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
_VIOLATIONS = """
select invariant, flow_slug, run_id, step_slug, task_index, detail
  from pgflowd.violations(max_rows => %s)
"""
