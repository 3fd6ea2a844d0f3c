"""
The checks of the chaos: what must hold at any time, and what must have happened in the end.

The invariants are those of docs/background/failures.md, section 3. The ledger is what handlers
themselves wrote down; it is copied beside the tables, and both are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import chaos_attacks
import chaos_daemons
import chaos_gates
import chaos_grains
import chaos_messages
import chaos_output
import chaos_runs
import chaos_ticks
import chaos_undos
import chaos_versions
import chaos_waits
import chaos_wide
import psycopg
from chaos_environment import LEASE_S, RUNS, Environment
from psycopg import sql
from support.invariants import OF_ALL, OF_EACH_FLOW, OF_LEASES, OF_ORACLE

from pgflowd.testing.until import until

KILL_GRACE_S = 0.5
SPARE_S = 4.0  # for a machine that has more to do than it can
AT_ANY_TIME = ("I2", "I3", "I4", "I8", "I9", "I10", "I15", "I17", "I20", "I21")
SHOWN = 5
QUEUES = ("queue", "archive")

ORACLE = """
create temp table oracle (event text, run_id uuid, flow_slug text, step_slug text, task_index int,
  token bigint, daemon text, pid int, at float8, output jsonb);
create index on oracle (run_id, step_slug, task_index, token);
analyze oracle;
"""
OVERLAPS = """
with x as (
  select run_id, step_slug, task_index, token, min(daemon) as daemon, min(at) as a, max(at) as z
    from oracle group by 1, 2, 3, 4)
select x.run_id, x.step_slug, x.task_index, x.token, y.token as other, x.daemon, x.a, y.a as began,
       x.z
  from x join x y using (run_id, step_slug, task_index) where x.token < y.token and x.z > y.a
"""
TOO_LONG = """
select o.run_id, o.step_slug, o.task_index, o.token, min(o.daemon) as daemon, min(at), max(at),
       coalesce(d.opt_timeout, f.opt_timeout) as timeout
  from oracle o join pgflow.steps d using (flow_slug, step_slug)
  join pgflow.flows f using (flow_slug)
 group by 1, 2, 3, 4, d.opt_timeout, f.opt_timeout
having max(at) - min(at) > coalesce(d.opt_timeout, f.opt_timeout) + %s
"""


def at_any_time(conn: psycopg.Connection[Any]) -> list[str]:
    """The invariants that do not hold, of those that each snapshot must show."""
    return [
        found
        for name, query in {**OF_ALL, **OF_LEASES}.items()
        if name.split()[0] in AT_ANY_TIME and (found := _rows(conn, name, query))
    ]


def in_the_end(environment: Environment) -> list[str]:
    """All that is wrong when everything has settled."""
    conn = environment.conn()
    conn.execute("set statement_timeout = '10min'")
    _copy_ledger(environment)
    troubles = list(environment.troubles)
    try:
        until(lambda: not _of_queues(conn), 10)  # a message may be archived a moment later
    except AssertionError:
        troubles += _of_queues(conn)
    asked = {name: OF_ORACLE[name] for name in OF_ORACLE if name.startswith(("I11", "I12"))}
    for name, query in {**OF_ALL, **OF_LEASES, **asked}.items():
        troubles += filter(None, [_rows(conn, name, query)])
    violated = "select * from pgflowd.violations(since => '1 day')"
    troubles += filter(None, [_rows(conn, "pgflowd.violations", violated)])
    troubles += [*_ends(environment), *_overlaps(environment), *_too_long(environment)]
    troubles += chaos_waits.troubles(environment)
    troubles += chaos_runs.troubles(environment, _stood_still)
    troubles += chaos_gates.troubles(environment, _stood_still)
    troubles += chaos_ticks.troubles(environment)
    troubles += chaos_grains.troubles(conn)
    troubles += chaos_messages.troubles(conn)
    troubles += chaos_wide.troubles(environment)
    troubles += chaos_undos.troubles(environment, _stood_still)
    troubles += chaos_versions.troubles(environment)
    troubles += chaos_output.troubles(conn)
    troubles += chaos_attacks.troubles(environment)
    troubles += chaos_daemons.in_the_end(conn, environment.living)
    troubles += [f"left behind: {seen}" for seen in environment.leftovers()]
    troubles += [f"a bug of ours was logged: {bug}" for bug in bugs(environment)]
    return troubles


def what_is_open(environment: Environment) -> list[str]:
    """I1: the tasks of runs that do not come to their end, and runs that do not begin."""
    query = """
        select t.flow_slug, t.run_id::text, t.step_slug, t.task_index, t.status, t.attempts_count,
               a.outcome, now() - a.lease_until as overdue
          from pgflow.runs r join pgflow.step_tasks t using (run_id)
          left join lateral (
            select * from pgflowd.attempts a
             where (a.run_id, a.step_slug, a.task_index) = (t.run_id, t.step_slug, t.task_index)
             order by token desc limit 1) a on true
         where r.status = 'started' and t.status in ('queued', 'started')
         union all
        select flow_slug, run_id::text, '', 0, state, 0, undo_state, now() - due_at
          from pgflowd.runs where state = 'planned' or undo_state in ('wanted', 'undoing')
         limit 20
    """
    rows = environment.conn().execute(query).fetchall()
    return [f"I1 no run stays open: {tuple(map(str, row))}" for row in rows]


def counts(environment: Environment) -> dict[str, Any]:
    """The numbers of runs, attempts and overlaps."""
    conn = environment.conn()
    outcomes = "select coalesce(outcome, 'open'), count(*) from pgflowd.attempts group by 1"
    runs = "select status, count(*) from pgflow.runs group by 1"
    return {
        "runs": dict(conn.execute(runs).fetchall()),
        "pruned runs": _one(conn, "select count(*) from chaos_pruned"),
        "attempts": dict(conn.execute(outcomes).fetchall()),
        "lines of the ledger": _one(conn, "select count(*) from oracle"),
        "overlaps after a freeze": len(list(_overlapping(environment, excused=True))),
    }


def bugs(environment: Environment) -> Iterator[str]:
    """The log records of daemons that only a bug causes."""
    for path in sorted(environment.directory.glob("*/*.log")):
        for text in path.read_text(errors="replace").splitlines():
            if not text.startswith("{"):
                if "Traceback" in text or "Error" in text:
                    yield f"{path}: {text[:300]}"
                continue
            record = json.loads(text)
            if record.get("code") in ("E901", "E902", "E903") or record.get("exit_code") == 70:
                yield f"{path}: {text[:600]}"


def _ends(environment: Environment) -> Iterator[str]:
    """Runs that were acknowledged and are not there, or ended otherwise than they must."""
    asked = """
        select run_id::text, status from pgflow.runs
        union all select run_id::text, status from chaos_pruned
    """
    known = dict(environment.conn().execute(asked).fetchall())
    for run_id, slug in environment.acknowledged.items():
        if run_id not in known:
            yield f"G1: run {run_id} of {slug} was acknowledged and is lost"
    for run_id, slug in {**environment.in_doubt, **environment.acknowledged}.items():
        if known.get(run_id, "completed") not in (RUNS[slug][1],) and run_id in known:
            yield f"run {run_id} of {slug} is {known[run_id]}, not {RUNS[slug][1]}"


def _overlapping(environment: Environment, *, excused: bool) -> Iterator[tuple[Any, ...]]:
    for row in environment.conn().execute(OVERLAPS.encode()).fetchall():
        daemon, began, other = row[5], row[6], row[7]
        if _stood_still(environment, daemon, began - LEASE_S, other) == excused:
            yield row


def _overlaps(environment: Environment) -> Iterator[str]:
    for row in list(_overlapping(environment, excused=False))[:SHOWN]:
        yield f"I13 executions of a task do not overlap: {row}"


def _too_long(environment: Environment) -> Iterator[str]:
    for row in (
        environment.conn().execute(TOO_LONG.encode(), (KILL_GRACE_S + 1 + SPARE_S,)).fetchall()
    ):
        if not _stood_still(environment, row[4], row[5], row[6]):
            yield f"I14 nobody runs longer than allowed: {row}"


def _stood_still(environment: Environment, daemon: str, began: float, ended: float) -> bool:
    """Whether something of this daemon was frozen, or its line broken, in this time."""
    return any(
        window.daemon in ("", daemon) and window.began < ended and window.ended > began
        for window in environment.windows
    )


def _copy_ledger(environment: Environment) -> None:
    conn = environment.conn()
    conn.execute(ORACLE.encode())
    with conn.cursor().copy("copy oracle from stdin") as copy, environment.ledger.open() as lines:
        for line in lines:
            *row, output = json.loads(line)
            event, run_id, flow, step, index, token, daemon, pid, at = row
            text = None if output is None else json.dumps(output)
            copy.write_row((event, run_id, flow, step, index, token, daemon, pid, at, text))
    conn.execute("analyze")


def _of_queues(conn: psycopg.Connection[Any]) -> list[str]:
    found = []
    versions = conn.execute("select flow_slug from pgflowd.versions").fetchall()
    for slug in sorted({*RUNS, *(slug for (slug,) in versions)}):
        names = {part: sql.Identifier("pgmq", f"{part[0]}_{slug.lower()}") for part in QUEUES}
        queue = sql.Literal(f"q_{slug.lower()}")
        gone = sql.SQL(chaos_messages.GONE).format(archive=names["archive"], queue=queue)
        for name, query in OF_EACH_FLOW.items():
            names_or_gone = {**names, "archive": gone} if name.startswith("I7") else names
            asked = sql.SQL(query).format(flow=sql.Literal(slug), **names_or_gone)
            found.append(_rows(conn, f"{slug}: {name}", asked.as_string(conn)))
    return list(filter(None, found))


def _rows(conn: psycopg.Connection[Any], name: str, query: str) -> str:
    rows = conn.execute(query.encode()).fetchmany(SHOWN)
    return f"{name}: {[tuple(map(str, row)) for row in rows]}" if rows else ""


def _one(conn: psycopg.Connection[Any], query: str) -> Any:
    row = conn.execute(query.encode()).fetchone()
    return None if row is None else row[0]
