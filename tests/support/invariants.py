"""
The independent oracle of the invariants: queries that return no row after any test.

They are those of docs/background/failures.md, section 3, written a second time, independently of
`pgflowd.violations()`. `OF_ALL` holds in every database, `OF_LEASES` where each claim took a lease
and the whole history is kept, `OF_EACH_FLOW` for the flows that have a queue. `OF_ORACLE` also
reads the file that handlers write (oracle.py), and looks at the runs that appear in it. I1, that no
run stays open, is checked by the chaos alone, which knows when everything has settled.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

OF_ALL = {
    "I2 a completed run is complete": """
        select r.run_id, s.step_slug from pgflow.runs r join pgflow.step_states s using (run_id)
         where r.status = 'completed'
           and (r.remaining_steps <> 0 or s.status not in ('completed', 'skipped')
                or coalesce(s.remaining_tasks, 0) <> 0)
    """,
    "I3 a completed step has exactly its tasks, all completed": """
        select s.run_id, s.step_slug from pgflow.step_states s
          left join pgflow.step_tasks t using (run_id, step_slug)
         where s.status = 'completed' group by s.run_id, s.step_slug, s.initial_tasks
        having count(*) filter (where t.status = 'completed') <> s.initial_tasks
            or count(t.task_index) <> s.initial_tasks
            or coalesce(max(t.task_index), -1) <> s.initial_tasks - 1
    """,
    "I4 the output of a map is the array of its tasks' outputs, in order": """
        select s.run_id, s.step_slug from pgflow.step_states s
          join pgflow.steps d using (flow_slug, step_slug)
         where d.step_type = 'map' and s.status = 'completed' and s.output is distinct from (
           select coalesce(jsonb_agg(t.output order by t.task_index), '[]')
             from pgflow.step_tasks t
            where t.run_id = s.run_id and t.step_slug = s.step_slug)
    """,
    "a started step counts the tasks left": """
        select s.run_id, s.step_slug from pgflow.step_states s join pgflow.runs r using (run_id)
         where r.status = 'started' and s.status = 'started' and s.remaining_tasks <> (
           select count(*) from pgflow.step_tasks t
            where t.run_id = s.run_id and t.step_slug = s.step_slug and t.status <> 'completed')
    """,
    "a run counts the steps left": """
        select r.run_id from pgflow.runs r where r.remaining_steps <> (
          select count(*) from pgflow.step_states s
           where s.run_id = r.run_id and s.status not in ('completed', 'skipped'))
    """,
    "a step that waits counts the deps it waits for": """
        select s.run_id, s.step_slug from pgflow.step_states s
         where s.status = 'created' and s.remaining_deps <> (
           select count(*) from pgflow.deps d
             join pgflow.step_states p on p.run_id = s.run_id and p.step_slug = d.dep_slug
            where (d.flow_slug, d.step_slug) = (s.flow_slug, s.step_slug)
              and p.status not in ('completed', 'skipped'))
    """,
    "no ready step is forgotten": """
        select s.run_id, s.step_slug from pgflow.step_states s join pgflow.runs r using (run_id)
         where r.status = 'started' and s.status = 'created' and s.remaining_deps = 0
    """,
    "I8 nothing fails without a text": """
        select t.* from pgflow.step_tasks t
         where t.status = 'failed' and coalesce(t.error_message, '') = ''
    """,
    "I8 no step fails before its time": r"""
        select s.run_id, s.step_slug from pgflow.step_states s
          join pgflow.steps d using (flow_slug, step_slug) join pgflow.flows f using (flow_slug)
         where s.status = 'failed'
           and s.error_message !~ '^(Condition not met|cancelled by |\[TYPE_VIOLATION\]|stalled)'
           and not exists (
             select from pgflow.step_tasks t
              where (t.run_id, t.step_slug, t.status) = (s.run_id, s.step_slug, 'failed')
                and t.attempts_count >= coalesce(d.opt_max_attempts, f.opt_max_attempts))
           and not exists (
             select from pgflowd.attempts a
              where (a.run_id, a.step_slug) = (s.run_id, s.step_slug)
                and a.outcome = 'stalled')
    """,
    "I9 a task has at most one live lease": """
        select run_id from pgflowd.attempt_history where live
         group by run_id, step_slug, task_index having count(*) > 1
    """,
    "I10 a task is completed at most once, and is completed then": """
        select run_id from pgflowd.attempts a
          left join pgflow.step_tasks t using (run_id, step_slug, task_index)
         where a.outcome = 'completed' group by run_id, step_slug, task_index, t.status
        having count(*) > 1 or t.status is distinct from 'completed'
    """,
    "I15 only an open task waits": """
        select w.* from pgflowd.waits w where not exists (
          select from pgflow.step_tasks t join pgflow.step_states s using (run_id, step_slug)
            join pgflow.runs r using (run_id)
           where (t.run_id, t.step_slug, t.task_index) = (w.run_id, w.step_slug, w.task_index)
             and (t.status, s.status, r.status) = ('queued', 'started', 'started'))
    """,
    "I17 a limit has no more leases than places": """
        select a.limit_key, count(*) from pgflowd.attempts a join pgflow.runs r using (run_id)
         where a.ended_at is null and a.limit_key is not null
           and (r.status = 'started'
                or a.lease_until > now() and not pgflowd._is_person(a.worker_id))
         group by 1 having count(*) > coalesce((
           select max(s.most) from pgflowd.slots s where s.limit_key = a.limit_key), 0)
    """,
    "I21 one run at a time has a singleton key": """
        select ours.singleton_key from pgflowd.runs ours join pgflow.runs run using (run_id)
         where ours.singleton_key is not null and run.status = 'started'
         group by 1 having count(*) > 1
    """,
    "I18 who waits for a run is told of its end": """
        select a.run_id, a.awaited from pgflowd.awaits a join pgflowd.runs w using (run_id)
         where w.state = 'planned' and a.step_slug = '' and a.due_at is null
           and a.awaited not in (select run_id from pgflowd.runs
                                  where state = 'planned' or due_at is not null)
           and a.awaited not in (select r.run_id from pgflow.runs r
                                  where r.status = 'started'
                                    and to_jsonb(r) @> '{"is_watched": true}')
    """,
    "I24 an attempt ends with its lease": """
        select run_id, step_slug, task_index, token from pgflowd.attempts
         where ended_at is null and lease_until < now() - interval '10 minutes'
           and exists (select from pgflowd.sweepers
                        where sleeps_until > now() - interval '5 minutes')
    """,
    "I23 nothing is left of a run that is gone": """
        select 'signal', run_id from pgflowd.signals where not is_new
           and run_id not in (select run_id from pgflow.runs union select run_id from pgflowd.runs)
        union all
        select 'entry', run_id from pgflowd.runs
         where state = 'started' and run_id not in (select run_id from pgflow.runs)
    """,
    "I20 a task has one checkpoint for each signal that it was given": """
        with given as (
          select run_id, step_slug, task_index, array_agg(payload order by payload) as those
            from pgflowd.signals join pgflow.runs using (run_id)
           where consumed_at is not null group by 1, 2, 3
        ), kept as (
          select run_id, step_slug, task_index,
                 array_agg(data -> 'got' order by data -> 'got') as those
            from pgflowd.checkpoints where name like 'signal %' and data ? 'got' group by 1, 2, 3)
        select run_id, step_slug, task_index, given.those as given, kept.those as kept
          from given full join kept using (run_id, step_slug, task_index)
         where given.those is distinct from kept.those
    """,
}
OF_LEASES = {
    "I8 a task that is given up ends its run": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
         where t.permanently_stalled_at is not null and r.status = 'started'
    """,
    "I9 a started task of an open run has exactly one live lease": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
         where r.status = 'started' and t.status = 'started' and 1 <> (
           select count(*) from pgflowd.attempts a where a.ended_at is null
              and (a.run_id, a.step_slug, a.task_index, a.attempt)
                = (t.run_id, t.step_slug, t.task_index, t.attempts_count)
              and a.worker_id = coalesce(t.last_worker_id, a.worker_id))
    """,
    "I10 a completed task has one completed attempt, any other none": """
        select t.* from pgflow.step_tasks t
         where (t.status = 'completed')::int <> (
           select count(*) from pgflowd.attempts a
            where (a.run_id, a.step_slug, a.task_index, a.outcome)
                = (t.run_id, t.step_slug, t.task_index, 'completed'))
    """,
}
OF_EACH_FLOW = {
    "I5 a task that may run has its message, or waits": """
        select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)
          join pgflow.step_states s using (run_id, step_slug)
         where t.flow_slug = {flow} and r.status = 'started' and s.status = 'started'
           and t.status = 'queued'
           and not exists (select from {queue} m where m.msg_id = t.message_id)
           and (run_id, step_slug, task_index)
               not in (select run_id, step_slug, task_index from pgflowd.waits)
    """,
    "I15 a task that waits has no message": """
        select m.msg_id from pgflowd.waits w join pgflow.step_tasks t
                 using (flow_slug, run_id, step_slug, task_index)
          join {queue} m on m.msg_id = t.message_id where t.flow_slug = {flow}
    """,
    "I6 a message has its task": """
        select m.msg_id from {queue} m where not exists (
          select from pgflow.step_tasks t join pgflow.runs r using (run_id)
           where t.flow_slug = {flow} and t.message_id = m.msg_id
             and t.status in ('queued', 'started') and r.status = 'started')
    """,
    "I7 the message of a completed task is archived once": """
        select t.* from pgflow.step_tasks t where t.flow_slug = {flow} and t.status = 'completed'
           and (select count(*) from {archive} a where a.msg_id = t.message_id) <> 1
    """,
}
OF_ORACLE = {
    "I11 each execution has an attempt of its own": """
        select run_id, step_slug, task_index, token from oracle o
         where event = 'start'
           and run_id in (select run_id from pgflow.runs)  -- a deleted one takes them along
         group by 1, 2, 3, 4
        having count(*) > 1 or not exists (
          select from pgflowd.attempts a
           where (a.run_id, a.step_slug, a.task_index, a.token)
               = (o.run_id, o.step_slug, o.task_index, o.token))
    """,
    "I12 what is recorded as completed was finished by a handler, and its output stored": """
        select a.* from pgflowd.attempts a
          join pgflow.step_tasks t using (run_id, step_slug, task_index)
         where a.outcome = 'completed'
           and (a.run_id, a.step_slug) in (select run_id, step_slug from oracle)
           and not exists (
             select from oracle o where o.event = 'end' and o.output = t.output
                and (o.run_id, o.step_slug, o.task_index, o.token)
                  = (a.run_id, a.step_slug, a.task_index, a.token))
    """,
    "I13 executions of a task do not overlap": """
        with x as (select run_id, step_slug, task_index, token, min(at) as a, max(at) as z
                     from oracle group by 1, 2, 3, 4)
        select x.*, y.token from x join x y using (run_id, step_slug, task_index)
         where x.token < y.token and x.z > y.a
    """,
    "I14 nobody runs longer than allowed": """
        select o.run_id, o.step_slug, o.token from oracle o join pgflow.runs using (run_id)
          join pgflow.steps d using (flow_slug, step_slug) join pgflow.flows f using (flow_slug)
         group by 1, 2, 3, d.opt_timeout, f.opt_timeout having max(at) - min(at)
             > make_interval(secs => coalesce(d.opt_timeout, f.opt_timeout) + {most_s})
    """,
}
KILL_GRACE_S = 0.5  # of profile T


def broken(
    conn: psycopg.Connection[Any],
    oracle: Path | None = None,
    *,
    was_frozen: bool = False,
    has_leases: bool = True,
) -> list[str]:
    """Return the invariants that do not hold. Executions that froze may overlap (G3)."""
    found = broken_of(conn, {**OF_ALL, **(OF_LEASES if has_leases else {})})
    for flow in _flows_with_queues(conn):
        found += [_rows(conn, name, _of(flow, query)) for name, query in OF_EACH_FLOW.items()]
    if oracle is not None and oracle.exists():
        _copy(conn, oracle)
        for name, query in OF_ORACLE.items():
            if not (was_frozen and name.startswith("I13")):
                asking = sql.SQL(query).format(most_s=sql.Literal(KILL_GRACE_S + 1))
                found.append(_rows(conn, name, asking))
    return [text for text in found if text]


def broken_of(conn: psycopg.Connection[Any], queries: dict[str, str]) -> list[str]:
    """Return those of these invariants that do not hold."""
    found = [_rows(conn, name, sql.SQL(query)) for name, query in queries.items()]
    return [text for text in found if text]


def _rows(conn: psycopg.Connection[Any], name: str, query: sql.Composable) -> str:
    rows = conn.execute(query).fetchall()
    return f"{name}: {rows[:3]}" if rows else ""


def _flows_with_queues(conn: psycopg.Connection[Any]) -> list[str]:
    query = """
        select flow_slug from pgflow.flows
         where to_regclass('pgmq.q_' || lower(flow_slug)) is not null
    """
    return [slug for (slug,) in conn.execute(query)]


def _of(flow: str, query: str) -> sql.Composable:
    names = {
        part: sql.Identifier("pgmq", f"{part[0]}_{flow.lower()}") for part in ("queue", "archive")
    }
    return sql.SQL(query).format(flow=sql.Literal(flow), **names)


def _copy(conn: psycopg.Connection[Any], oracle: Path) -> None:
    """Bring what the handlers wrote into the database, for this session."""
    conn.execute("drop table if exists pg_temp.oracle")
    conn.execute("""
        create temp table oracle (run_id uuid, step_slug text, task_index int, token bigint,
                                  event text, output jsonb, at timestamptz)
    """)
    with conn.cursor().copy("copy oracle from stdin") as copy:
        for line in oracle.read_text().splitlines():
            *task, event, output, at = json.loads(line)
            moment = datetime.fromtimestamp(at, UTC)
            copy.write_row([*task, event, json.dumps(output), moment])
