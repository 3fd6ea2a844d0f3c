"""
Examines a database and reports findings, for `pgflowd doctor` and the dashboard; `CHECKS` has all.

Each check yields findings. If one fails, for example without permission, that is a finding
and the others go on. Each has a limit of time, and so have all together: what takes longer is not
looked at, which is a finding too. All checks only read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from pgflowd.core import server_connections as server
from pgflowd.core.documents.run_tasks import CYCLE, problem_of
from pgflowd.core.documents.schedules import finding_of_schedules
from pgflowd.core.finding import Finding, Section, error, ok, warning
from pgflowd.core.sweeper import growth_problem, told_retention
from pgflowd.core.text import ago, counted, duration, short_id, size
from pgflowd.db import daemons, schema
from pgflowd.db.connection import EXPOSED, EXPOSED_NEXT, is_exposed, translated
from pgflowd.db.flows import list_flows
from pgflowd.db.query import Query, database_time, execute, fetch_value
from pgflowd.db.runs import kept
from pgflowd.db.waits import list_schedules, stalled_tasks, undecided_tasks
from pgflowd.errors import PgflowdError

Connection = psycopg.Connection[Any]

MAX_CLOCK_SKEW_S = 1.0  # less is normal between machines with a time server
OLD_TRANSACTION_S = 300.0  # longer than any transaction of pgflowd
MANY_BYTES = 1_000_000_000  # of log that a slot keeps; less is no matter
LATE_S = 60.0  # an idle worker looks at its queue more often
LARGEST_TABLES = 5  # one line each
MAX_ROWS = 20  # of each kind, so that the output stays readable
LIMIT_S = 10.0  # of one examination
WHOLE_LIMIT_S = 40.0  # of all; a program that watches gives up after a minute
MAX_RUNS = 10_000  # whose invariants are looked at: the newest
RUNS_AT_ONCE = 1000  # in one statement, which takes a second at most


@dataclass(frozen=True)
class DoctorRequest:
    """The settings that examinations use."""

    stale_threshold_s: float = 60.0
    has_listen_url: bool = False
    name: str = "pgflowd"  # of the daemon
    max_connections: int = 0
    until: float = float("inf")  # when the present examination has to end; monotonic


Check = Callable[[Connection, DoctorRequest], Iterator[Finding]]


def examine(
    conn: Connection, request: DoctorRequest, sections: Collection[str] = tuple(Section)
) -> Iterator[Finding]:
    """
    Perform the checks of these sections.

    If one of them needs the schema, the schema is checked first; what needs it is left out if it
    cannot be used.
    """
    chosen = [(each, name) for each in CHECKS if each in sections for name in CHECKS[each]]
    first = (Section.SCHEMA, "schema")
    if first not in chosen and any(name not in _OF_THE_SERVER for _, name in chosen):
        chosen.insert(0, first)
    is_usable = True
    ends_at = time.monotonic() + WHOLE_LIMIT_S
    for section, name in chosen:
        if not is_usable and name not in _OF_THE_SERVER:
            continue
        until = min(time.monotonic() + LIMIT_S, ends_at)
        if until <= time.monotonic():
            found = [_not_looked_at(f"all together have taken {duration(WHOLE_LIMIT_S)}")]
        else:
            found = _examined(conn, CHECKS[section][name], replace(request, until=until))
        for finding in found:
            is_usable = is_usable and (name != "schema" or finding.code not in _UNUSABLE)
            yield replace(finding, section=section, check=name)
        if conn.closed:
            return


def _examined(conn: Connection, check: Check, request: DoctorRequest) -> list[Finding]:
    """Perform one check in a transaction, which is over before anybody reads the result."""
    found: list[Finding] = []
    try:
        with translated(conn), conn.transaction():
            _set_limit(conn, request.until)
            for finding in check(conn, request):
                found.append(finding)
    except _TOO_SLOW as problem:
        found.append(_not_looked_at(_first_line(problem)))
    except PgflowdError as problem:
        text = f"could not be examined: {problem.text}"
        found.append(error(text, problem.next, problem.code))
    except psycopg.Error as problem:
        found.append(error(f"could not be examined: {_first_line(problem)}"))
    return found


def _set_limit(conn: Connection, until: float) -> None:
    """Let each statement of this transaction end at this moment."""
    left_s = max(until - time.monotonic(), 0.001)  # none would be no limit
    conn.execute("select set_config('statement_timeout', %s, true)", (f"{left_s * 1000:.0f}",))


def _not_looked_at(why: str) -> Finding:
    text = f"not looked at, since it took too long: {why}"
    return warning(text, "look again when the server has less to do")


def _first_line(problem: psycopg.Error) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _schema(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    status = schema.status(conn)
    state, problem = status.state, status.problem
    if problem:
        yield error(problem.text, problem.next, problem.code)
        return
    yield ok(f"version {state.version}, pgmq {state.pgmq}")
    if status.functions_differ:
        text = "the functions are from another release of pgflowd"
        yield warning(text, "run `pgflowd db migrate`")


def _objects(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Name what was changed by hand, or by another tool."""
    changed = schema.verify(conn)
    for problem in changed:
        yield error(problem.text, problem.next, problem.code)
    if not changed:
        yield ok("nothing has changed since the last migrate")


def _rights(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    row = conn.execute(_RIGHTS).fetchone()
    assert row is not None
    role, *rights = row
    may = dict(zip(("view", "start", "serve", "deploy"), rights, strict=True))
    if not any(rights):
        text = f"{role} may not {', '.join(may)}"
        yield error(text, f"give {role} a role of `pgflowd db sql roles`", "E305")
        return
    text = f"{role} may {', '.join(name for name, right in may.items() if right)}"
    missing = [name for name, right in may.items() if not right]
    yield ok(f"{text}; not {', '.join(missing)}" if missing else text)


def _platform(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Whether realtime, cron, vault and net, where they are, belong to trusted roles."""
    found = conn.execute("select schema_name, owner, untrusted_owner from pgflowd.platform()")
    schemas = found.fetchall()
    for name, _, untrusted in schemas:
        if untrusted is not None:
            text = (
                f"schema {name} is not used: {untrusted}, which is not trusted, owns it or a part"
            )
            remedy = (
                "drop it if you do not know it: whoever owns it decides what is executed; else give"
                f" it to a superuser, or run `pgflowd db migrate` as {untrusted}"
            )
            yield warning(text, remedy, "W323")
    trusted = [f"{name} of {owner}" for name, owner, untrusted in schemas if untrusted is None]
    if trusted or not schemas:
        yield ok(f"used: {', '.join(trusted)}" if trusted else "a plain PostgreSQL")


def _server(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    began = time.perf_counter()
    version, name = execute(conn, Query(_SERVER, (), lambda rows: rows[0]))
    rtt_s = time.perf_counter() - began
    yield ok(f"PostgreSQL {version}, {duration(rtt_s)} away, database {name}")


def _encryption(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    if is_exposed(conn):
        yield warning(EXPOSED, EXPOSED_NEXT, "W316")


def _clocks(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    before = time.time()
    theirs = execute(conn, database_time()).timestamp()
    after = time.time()
    skew_s = theirs - (before + after) / 2
    if abs(skew_s) <= MAX_CLOCK_SKEW_S + (after - before):
        skew = f"{round(skew_s * 1000):+} ms"
        yield ok(f"this machine's and the database's differ by {skew}")
        return
    skew = f"{duration(abs(skew_s))} {'ahead of' if skew_s > 0 else 'behind'}"
    text = f"the database's clock is {skew} this machine's"
    yield warning(text, "check that both machines use a time server", "W312")


def _pooler(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """A pooler gives its clients another process id than the server has."""
    real = {fetch_value(conn, "select pg_catalog.pg_backend_pid()") for _ in range(3)}
    if real == {conn.info.backend_pid}:
        yield ok("none in between")
    elif request.has_listen_url:
        yield ok("one in between; listen_url bypasses it")
    else:
        text = "a pooler is in between, so notifications may not arrive"
        yield warning(text, "set [database] listen_url to bypass the pooler", "W314")


def _durability(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    if fetch_value(conn, "select current_setting('synchronous_commit')") != "off":
        yield ok("commits survive a crash of the server")
        return
    text = "synchronous_commit is off: a crash of the server loses the last commits"
    yield warning(text, "set it to on for this database or role", "W315")


def _isolation(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Ours are read committed by a setting of the session; those of clients are not."""
    default = fetch_value(conn, _DEFAULT_ISOLATION)
    if default in ("read committed", "read uncommitted"):
        yield ok("read committed by default")
        return
    text = f"transactions are {default} by default: a client that starts runs may get 40001"
    remedy = "set default_transaction_isolation to read committed, or have clients try again"
    yield warning(text, remedy, "W317")


def _transactions(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Those of this database keep its dead rows; those of others may keep notifications."""
    old = execute(conn, daemons.oldest_transactions(OLD_TRANSACTION_S, MAX_ROWS))
    here = [each for each in old if each.database == conn.info.dbname]
    for each in here:
        text = f"{each}, {each.since}: dead rows stay, and claims slow down"
        yield warning(text, each.remedy)
    if not here:
        text = f"none is older than {duration(OLD_TRANSACTION_S)}"
        if old:
            text += f" here; in other databases {len(old)}, the oldest: {old[0]}, {old[0].since}"
        yield ok(text)


def _snapshots(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """What keeps dead rows, or files of the write-ahead log, whichever way."""
    holders = execute(conn, daemons.oldest_snapshots(server.MANY_TRANSACTIONS, MAX_ROWS))
    for problem in [server.snapshot_problem(each) for each in holders if server.is_harmful(each)]:
        yield warning(problem.text, problem.next or "", problem.code)
    slots = execute(conn, daemons.idle_slots(MANY_BYTES))
    for slot, held in slots:
        text = f"{slot}, inactive, keeps {size(held)} of the write-ahead log"
        yield warning(text, slot.remedy)
    if not holders and not slots:
        yield ok("no transaction and no replication slot holds back much")


def _listeners(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    share = execute(conn, daemons.queue_share())
    if not server.is_overfull(share):
        yield ok(f"{share:.1%} of the server's notification queue is used")
        return
    oldest = execute(conn, daemons.oldest_transactions(0, server.MAX_HOLDERS))
    problem = server.queue_problem(share, oldest)
    yield error(problem.text, problem.next, problem.code)


def _recovery(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Warn of jobs of pg_cron that recover tasks too, except the one that our migrate creates."""
    if not fetch_value(conn, _HAS_TRUSTED_CRON):  # pg_cron is there, and may be asked
        yield ok("by the sweeper")
        return
    jobs = [name for (name,) in conn.execute(_CRON_JOBS).fetchall()]
    ours = {"pgflow_requeue_stalled_tasks"}
    others = [job for job in jobs if job not in ours]
    for job in others:
        text = f"pg_cron job {job} recovers tasks, as the sweeper does"
        yield warning(text, "unschedule one of them", "W313")
    if not others:
        text = "by the sweeper, and by pg_cron while no daemon runs" if jobs else "by the sweeper"
        yield ok(text)


def _flows(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    flows, now = execute(conn, list_flows()), execute(conn, database_time())
    is_fine = True
    for flow in flows:
        if not flow.is_watched:
            is_fine = False
            text = f"{flow.flow_slug}: its queue has no notification trigger, so workers poll"
            yield warning(text, f"run `pgflowd flows deploy {flow.flow_slug}`", "W311")
        if flow.workers == 0 and flow.active_runs and not flow.is_asleep:
            is_fine = False
            text = f"{flow.flow_slug}: {counted(flow.active_runs, 'open run')}"
            if flow.oldest_queued_at is not None:
                waits_s = (now - flow.oldest_queued_at).total_seconds()
                text += f", the oldest task waits for {duration(waits_s)}"
            yield warning(f"{text}, but no worker serves it", "run `pgflowd serve`")
    served = [each for each in flows if (each.workers or each.is_asleep) and not each.paused_at]
    idle = [each.flow_slug for each in served if each.queued and not each.running]
    for slug, waits_s in conn.execute(_STANDING_STILL, (idle, LATE_S)).fetchall() if idle else ():
        is_fine = False
        text = f"{slug}: a task waits for {duration(waits_s)} and none runs, although it is served"
        yield warning(text, "see `pgflowd status` where its daemon runs", "E318")
    if is_fine:
        text = f"{len(flows)} in the database, all with triggers and workers where needed"
        yield ok(text)


def _stalled(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Say which runs wait for each other, and which tasks are stalled."""
    for one in execute(conn, undecided_tasks()):
        if one.kind == CYCLE:
            problem = problem_of(one)
            yield warning(problem.text, problem.next or "", problem.code)
    found = execute(conn, stalled_tasks(request.stale_threshold_s))
    if not found:
        yield ok("no task is stalled")
        return
    oldest = found[0]
    task = f"{short_id(oldest.run_id)}/{oldest.step_slug}#{oldest.task_index}"
    text = f"{counted(len(found), 'task')}, the oldest {task}"
    yield warning(text, "see `pgflowd stalled list`")


def _schedules(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    yield finding_of_schedules(execute(conn, list_schedules()), execute(conn, database_time()))


def _orphans(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    queues = [name for (name,) in conn.execute(_UNKNOWN_QUEUES, (MAX_ROWS,)).fetchall()]
    lost = fetch_value(conn, _LOST_WORKERS)
    parts = [f"queues without a flow: {', '.join(queues)}"] if queues else []
    if lost:
        workers = counted(lost, "worker")
        parts.append(f"{workers} without a heartbeat for 5 min, never marked stopped")
    yield ok("; ".join(parts) or "none")


def _connections(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Compare what the daemon of this name may still open with what the server has left."""
    found = execute(conn, daemons.server_connections(is_ours=False))
    held = found.held_by_daemon(request.name)
    needed = request.max_connections or held
    problem = server.full_problem(found) or server.shortage(found, daemon=needed, held=held)
    if problem:
        level = warning if problem.is_warning else error
        yield level(problem.text, problem.next or "", problem.code)
        return
    named = f"; {found.named}" if found.named else ""
    yield ok(f"{found.left} of {found.allowed} are free{named}")


def _history(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Say how much is kept, and for how long; warn where a large database only grows."""
    found = execute(conn, kept())
    problem = growth_problem(found)
    began = f" since {found.since:%Y-%m-%d}" if found.since else ""
    runs = "" if found.runs is None else f" in about {counted(found.runs, 'run')}"
    if problem:
        yield warning(f"{problem.text}{began}", problem.next or "", problem.code)
    else:
        yield ok(f"{size(found.size)}{runs}{began}; {told_retention(found)}")


def _tables(conn: Connection, request: DoctorRequest) -> Iterator[Finding]:
    """Name the largest tables, by the server's statistics."""
    now = execute(conn, database_time())
    for name, held, rows, dead, vacuumed_at in conn.execute(_TABLES, (LARGEST_TABLES,)).fetchall():
        vacuumed = f"vacuumed {ago(vacuumed_at, now)}" if vacuumed_at else "never vacuumed"
        yield ok(f"{name}: {size(held)}, about {counted(rows, 'row')}, {dead:,} dead, {vacuumed}")


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
        yield error(f"{number} {where}: {detail}", remedy)
    seen = f"the newest {counted(looked_at, 'run')} and all queues"
    if is_late:
        text = f"only {seen} were looked at: {len(run_ids) - looked_at} more took too long"
        yield warning(text, "look again when the server has less to do")
    elif not rows:
        yield ok(f"the invariants hold in {seen}")


_CHECKS: dict[Section, tuple[Check, ...]] = {
    Section.SCHEMA: (_schema, _objects, _rights, _platform, _recovery),
    Section.DATABASE: (
        *(_server, _clocks, _durability, _isolation),
        *(_transactions, _snapshots, _history, _tables),
    ),
    Section.CONNECTIONS: (_connections, _encryption, _pooler, _listeners),
    Section.FLOWS: (_flows, _stalled, _schedules, _orphans, _invariants),
}
CHECKS = {
    section: {check.__name__.removeprefix("_"): check for check in checks}
    for section, checks in _CHECKS.items()
}
_OF_THE_SERVER = {*CHECKS[Section.DATABASE], *CHECKS[Section.CONNECTIONS], "schema"} - {"history"}
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
_SERVER = """
select split_part(current_setting('server_version'), ' ', 1), current_database()::text
"""
_TABLES = """
select schemaname || '.' || relname, pg_total_relation_size(relid) as bytes, n_live_tup, n_dead_tup,
       greatest(last_vacuum, last_autovacuum)
  from pg_catalog.pg_stat_user_tables
 where schemaname in ('pgflow', 'pgflowd') or schemaname = 'pgmq' and relname ~ '^[aq]_'
 order by bytes desc, relname limit %s
"""
_RIGHTS = """
select current_user,
       has_table_privilege('pgflow.runs', 'select'),
       has_function_privilege('pgflow.start_flow_with_states(text, jsonb, uuid)', 'execute'),
       has_table_privilege('pgflow.workers', 'insert')
         and has_table_privilege('pgflowd.attempts', 'insert')
         and has_table_privilege('pgflow.step_tasks', 'update'),
       has_table_privilege('pgflow.flows', 'insert') and has_schema_privilege('pgmq', 'create')
         and (select bool_and(has_schema_privilege(proc.pronamespace, 'usage')
                              and has_function_privilege(proc.oid, 'execute'))
                from pg_catalog.pg_proc as proc
                join pg_catalog.pg_namespace as schema on schema.oid = proc.pronamespace
               where (schema.nspname, proc.proname) in (
                 ('pgflow', 'create_flow'), ('pgflow', 'add_step'),
                 ('pgflow', 'ensure_flow_compiled'), ('pgflowd', 'watch_queue'),
                 ('pgmq', 'create')))
"""
_HAS_TRUSTED_CRON = """
select pg_catalog.to_regclass('cron.job') is not null
       and exists (select from pgflowd.platform()
                    where schema_name = 'cron' and untrusted_owner is null)
"""
