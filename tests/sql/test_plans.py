"""
What statements of workers, the sweeper and commands read when their tables grow.

Their plans are kept, and made when the tables are small and were analysed so: the planner believes
that a few pages hold a row. Each case is a statement, and what comes before it in its transaction,
which is undone. It is executed on few rows, then on many, by the same session and by a new one, and
must read about as many rows as before. Nothing is analysed meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.database import key
from support.leases import LONG_SLEEP, LeaseDatabase, element
from support.postgres_versions import binaries_with_jit
from support.rows_read import rows_read

from pgflowd.core.verbs import COMPLETE
from pgflowd.db import runs, tasks, waits, workers
from pgflowd.db.operations import calling
from pgflowd.db.query import Query
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

Call = tuple[Any, ...]  # a statement and its parameters
MANY = 2_000  # finished runs, of four tasks each
PAID = {"kind": "signal", "name": "paid", "checkpoint": "signal paid 1"}
MORE = 500  # rows that a statement may read more than before, of open work
COMPILES = {
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "all",
    "jit": "on",
    "jit_above_cost": "0",
    "jit_inline_above_cost": "-1",
    "jit_optimize_above_cost": "-1",
}
COMPILED = "select query from pg_stat_statements where jit_functions > 0 and toplevel = %s"
BELIEVED = """
update pg_class as class set relpages = 30, reltuples = 10
  from pg_namespace as schema
 where schema.oid = class.relnamespace and class.relkind = 'r'
   and schema.nspname in ('pgflow', 'pgflowd')
"""
GROW = f"""
set session_replication_role = replica;
create temp table fresh as
  select gen_random_uuid() as run_id, n from generate_series(1, {MANY}) as n;
insert into pgflow.runs (run_id, flow_slug, status, input, output, started_at, completed_at)
  select run_id, 'f', 'completed', '{{}}', '{{}}', now() - n * interval '1 min', now() from fresh;
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, started_at, completed_at)
  select 'f', run_id, step, 'completed', 0, 1, now(), now()
    from fresh, unnest('{{a,b,m,c}}'::text[]) as step;
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, status, attempts_count,
                               started_at, completed_at, last_worker_id)
  select 'f', fresh.run_id, step, 1000000 + 4 * n + place, 'completed', 1, now(), now(), worker_id
    from fresh, unnest('{{a,b,m,c}}'::text[]) with ordinality as steps (step, place),
         pgflow.workers;
insert into pgflowd.attempts (run_id, step_slug, task_index, flow_slug, worker_id, msg_id, attempt,
                              lease_until, ended_at, outcome)
  select run_id, step_slug, task_index, 'f', last_worker_id, message_id, 1, now(), now(),
         'completed'
    from pgflow.step_tasks where status = 'completed';
insert into pgflowd.followers select run_id, false, now() + interval '1 h' from fresh;
insert into pgflowd.checkpoints (run_id, step_slug, task_index, name, token, data)
  select run_id, 'a', 0, 'sleep 1', 0, '{{"slept": true}}' from fresh;
insert into pgflowd.signals (run_id, name, is_new, step_slug, task_index, consumed_at)
  select run_id, 'paid', false, 'b', 0, now() from fresh;
insert into pgflowd.actions (at, actor, action, flow_slug, run_id)
  select now() - n * interval '1 min', 'jane', 'cancel', 'f', run_id from fresh;
insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, name, due_at)
  select run_id, 'c', 0, 'f', 'signal', 'paid', now() + n * interval '1 min' from fresh;
insert into pgflowd.runs (run_id, flow_slug, state, input, start_at, due_at)
  select gen_random_uuid(), 'f', 'planned', '{{}}', now() + n * interval '1 h',
         now() + n * interval '1 h' from fresh;
insert into pgflowd.runs (run_id, flow_slug, state, input, singleton_key, replaces)
  select gen_random_uuid(), 'f', 'planned', '{{}}', case n % 2 when 0 then 'a' else 'z' end, true
    from fresh;
insert into pgflowd.schedules (name, flow_slug, cron, due_at, ticked_at)
  select 'idle ' || n, 'f', '@yearly', now() + n * interval '1 h', now() from fresh;
insert into pgflowd.runs (run_id, flow_slug, singleton_key, holds_key)
  select run_id, 'f', 'key ' || n, true from fresh;
reset session_replication_role;
drop table fresh;
"""


class Grown(LeaseDatabase):
    """Flows `f` and `rare`, one worker of both, and work of theirs."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn, "all")
        self.do("select pgflow.create_flow('f', 3, 0, 60)")
        self.do("select pgflow.create_flow('rare')")
        self.do("select pgflow.add_step('rare', 'a')")
        for step in ("'a'", "'b', '{a}'", "'m', '{b}', step_type => 'map'", "'c', '{m}'"):
            self.rows(f"select pgflow.add_step('f', {step})")
        condition = """'if', '{a}', required_input_pattern => '{"a": 1}'"""
        self.do(f"select pgflow.add_step('f', {condition})")
        self.one = self.worker("f")

    def start_some(self, count: int) -> None:
        query = "select count(*) from pgflow.start_flows('f', array_fill('{}'::jsonb, array[%s]))"
        self.rows(query, count)

    def freeze_statistics(self) -> None:
        """Analyse the tables as they are, and never again."""
        self.do("vacuum analyze")
        names = ("pgflow.runs", "pgflow.step_states", "pgflow.step_tasks", "pgflowd.attempts")
        of_waits = (
            "pgflowd.waits",
            "pgflowd.checkpoints",
            "pgflowd.signals",
            "pgflowd.runs",
            "pgflowd.actions",
            "pgflowd.schedules",
        )
        for table in (*names, *of_waits, "pgmq.q_f"):
            self.do(f"alter table {table} set (autovacuum_enabled = off)")
        self.do(BELIEVED)

    def grow(self) -> None:
        """Add finished runs, and some queued ones behind the first."""
        self.do(GROW)
        self.start_some(100)


@pytest.fixture
def grown(pgflow_db: ScratchDatabase) -> Iterator[Grown]:
    db = Grown(pgflow_db.dsn)
    yield db
    db.close()


def claim(db: Grown, count: int = 3) -> list[Any]:
    return db.claim("f", db.one, max_tasks=count)


def reported(*elements: dict[str, Any]) -> Call:
    """A report that changes no state before it is executed."""
    outputs = [one.pop("output", None) for one in elements]
    return ("select * from pgflowd.report(%s::jsonb, %s::text[])", json.dumps(elements), outputs)


def query_of(query: Query[Any]) -> Call:
    return (query.sql, *query.params)


def a_start(db: Grown) -> Call:
    return ("select * from pgflow.start_flow('f', '{}')",)


def five_starts(db: Grown) -> Call:
    return ("select * from pgflow.start_flows('f', array_fill('{}'::jsonb, array[5]))",)


def a_claim(db: Grown) -> Call:
    return ("select * from pgflowd.claim('f', %s, 3)", db.one)


def a_claim_with_traces(db: Grown) -> Call:
    return ("select * from pgflowd.claim('f', %s, 3, with_trace => true)", db.one)


def a_claim_of_what_was_released(db: Grown) -> Call:
    for task in claim(db):
        db.release(task)
    return a_claim(db)


def a_claim_of_lapsed_leases(db: Grown) -> Call:
    for task in claim(db):
        db.lapse(task)
    return a_claim(db)


def a_claim_beside_living_leases(db: Grown) -> Call:
    for task in claim(db):
        db.show(task)
    return a_claim(db)


def a_report_of_completions(db: Grown) -> Call:
    return reported(*[element(task) for task in claim(db)])


def a_report_that_ends_its_run(db: Grown) -> Call:
    (task,) = db.claim("rare", db.worker("rare"))
    return reported(element(task))


def a_report_of_failures(db: Grown) -> Call:
    return reported(*[element(task, "failed", error_message="x") for task in claim(db)])


def a_report_of_failures_with_a_delay(db: Grown) -> Call:
    return reported(*[element(task, "failed", delay="5 s") for task in claim(db)])


def a_report_that_fails_its_runs(db: Grown) -> Call:
    return reported(*[element(task, "failed", retry=False) for task in claim(db)])


def a_report_of_releases(db: Grown) -> Call:
    return reported(*[element(task, "released") for task in claim(db)])


def a_report_of_suspensions(db: Grown) -> Call:
    return reported(*[element(task, "suspended", wait=LONG_SLEEP) for task in claim(db)])


def a_report_whose_signal_has_come(db: Grown) -> Call:
    found = claim(db)
    db.do("select pgflowd.signal(%s, 'paid')", found[0].run_id)
    return reported(*[element(task, "suspended", wait=PAID) for task in found])


def a_checkpoint(db: Grown) -> Call:
    return ("select pgflowd.checkpoint_save(%s, %s, %s, %s, 'x', '1')", *key(claim(db)[0]))


def a_checkpoint_dropped(db: Grown) -> Call:
    return ("select pgflowd.checkpoint_drop(%s, %s, %s, %s, 'x')", *key(claim(db)[0]))


def all_checkpoints(db: Grown) -> Call:
    return ("select * from pgflowd.checkpoint_load(%s, %s, %s)", *key(claim(db)[0])[:3])


def a_signal(db: Grown) -> Call:
    return ("select pgflowd.signal(%s, 'paid', '1', 'me', 'once')", claim(db)[0].run_id)


def a_look_at_nothing_due(db: Grown) -> Call:
    return query_of(waits.process_due())


def a_look_at_timers(db: Grown) -> Call:
    db.report(*[element(task, "suspended", wait=LONG_SLEEP | {"in_s": 0}) for task in claim(db)])
    return query_of(waits.process_due())


def a_look_at_signals(db: Grown) -> Call:
    found = claim(db)
    db.report(*[element(task, "suspended", wait=PAID) for task in found])
    for task in found:
        db.do("select pgflowd.signal(%s, 'paid')", task.run_id)
    return query_of(waits.process_due())


def a_look_at_planned_runs(db: Grown) -> Call:
    for _ in range(3):
        db.do("select pgflowd.start('rare', '{}', start_at => now() + interval '1 s')")
    db.do("update pgflowd.runs set start_at = now(), due_at = now() where flow_slug = 'rare'")
    return query_of(waits.process_due())


def a_start_with_a_key(db: Grown) -> Call:
    return ("select pgflowd.start('rare', '{}', singleton_key => 'mine')",)


def a_look_at_a_key_that_is_free(db: Grown) -> Call:
    for _ in range(3):
        db.do("select pgflowd.start('rare', '{}', singleton_key => 'mine')")
    db.rows("select * from pgflowd.process_due()")
    db.do("select pgflowd.cancel(run_id, '', '') from pgflowd.runs where holds_key"
          " and singleton_key = 'mine'")  # fmt: skip
    return query_of(waits.process_due())


def a_look_at_who_replaces(db: Grown) -> Call:
    for _ in range(3):
        db.do(
            "select pgflowd.start('rare', '{}', singleton_key => 'mine', on_conflict => 'replace')"
        )
    return query_of(waits.process_due())


def three_schedules(db: Grown) -> Any:
    """Three that are due; the last one's name and due time."""
    for n in range(3):
        db.do(f"select pgflowd.set_schedule('due {n}', 'rare', '@daily', actor => 'me')")
    return db.row("select name, due_at from pgflowd.schedules where name = 'due 2'")


def a_look_at_schedules(db: Grown) -> Call:
    three_schedules(db)
    return query_of(waits.due_schedules(50))


def a_look_for_troubles_of_schedules(db: Grown) -> Call:
    three_schedules(db)
    return query_of(waits.schedule_troubles())


def a_tick(db: Grown) -> Call:
    found = three_schedules(db)
    tick = "select pgflowd.tick(%s, %s, now() + interval '1 day', array[now()])"
    return (tick, found.name, found.due_at)


def a_task_woken(db: Grown) -> Call:
    task = claim(db)[0]
    db.suspend(task)
    return ("select pgflowd.task_wake(%s, %s, %s, 'me', 'now')", *key(task)[:3])


def a_claim_of_a_person(db: Grown) -> Call:
    return query_of(waits.claim("f", (), 86400.0, "jane"))


def a_task_that_a_person_completes(db: Grown) -> Call:
    task = claim(db)[0]
    db.suspend(task)
    return query_of(calling(COMPLETE, *key(task)[:3], output="1", actor="jane"))


def a_sweeper_that_lies_down(db: Grown) -> Call:
    return query_of(waits.sweeper_sleeps(db.one, 15))


def a_report_after_heartbeats(db: Grown) -> Call:
    found = claim(db)
    for task in found:
        db.age(task, "1 s")
    return reported(*[element(task) for task in found])


def a_report_with_one_bad_element(db: Grown) -> Call:
    one, *others = claim(db)
    return reported(element(one, output="{no json"), *[element(task) for task in others])


def a_report_that_is_late(db: Grown) -> Call:
    found = claim(db)
    for task in found:
        db.cancel(task.run_id)
    return reported(*[element(task) for task in found])


def a_repeated_report(db: Grown) -> Call:
    found = [element(task) for task in claim(db)]
    db.report(*found)
    return reported(*found)


def news_of_a_report(db: Grown) -> Call:
    found = claim(db)
    db.report(*[element(task) for task in found])
    return query_of(tasks.run_changes([str(task.run_id) for task in found]))


def a_heartbeat(db: Grown) -> Call:
    return query_of(tasks.heartbeat(db.one, [task.token for task in claim(db)]))


def a_heartbeat_of_long_tasks(db: Grown) -> Call:
    found = claim(db)
    for task in found:
        db.age(task, "1 hour")
    return query_of(tasks.heartbeat(db.one, [task.token for task in found]))


def a_heartbeat_of_lost_leases(db: Grown) -> Call:
    found = claim(db)
    for task in found:
        db.do("update pgflow.step_tasks set attempts_count = 7 where run_id = %s", task.run_id)
    return query_of(tasks.heartbeat(db.one, [task.token for task in found]))


def a_heartbeat_of_cancelled_runs(db: Grown) -> Call:
    found = claim(db)
    for task in found:
        db.cancel(task.run_id)
    return query_of(tasks.heartbeat(db.one, [task.token for task in found]))


def who_cancelled(db: Grown) -> Call:
    found = claim(db)
    db.cancel(found[0].run_id)
    return query_of(tasks.cancellations([task.token for task in found]))


def when_the_next_is_due(db: Grown) -> Call:
    return query_of(workers.next_due("f"))


def a_sweep_of_nothing(db: Grown) -> Call:
    claim(db)
    return query_of(tasks.sweep())


def a_sweep_of_lapsed_leases(db: Grown) -> Call:
    for task in claim(db):
        db.lapse(task)
    return query_of(tasks.sweep())


def a_sweep_of_what_stalled_too_often(db: Grown) -> Call:
    found = claim(db)
    db.do("insert into pgflowd.settings (name, value) values ('crash_limit', '1')")
    for task in found:
        db.lapse(task)
    return query_of(tasks.sweep())


def a_sweep_of_tasks_without_leases(db: Grown) -> Call:
    for task in db.upstream_claim("f", db.one)[:3]:
        db.age(task, "1 hour")
    return query_of(tasks.sweep())


def a_sweep_of_a_dead_worker(db: Grown) -> Call:
    claim(db)
    return query_of(tasks.sweep_dead(db.one, "killed"))


def recovery_of_the_core(db: Grown) -> Call:
    one, *others = claim(db)
    for task in (one, *others):
        db.age(task, "1 hour")
    for task in others:  # one has a lease that goes on
        db.lapse(task)
    return ("select pgflow.requeue_stalled_tasks()",)


def a_cancel(db: Grown) -> Call:
    return ("select pgflowd.cancel(%s, 'x', 'me')", claim(db)[0].run_id)


def a_retry(db: Grown) -> Call:
    task = claim(db)[0]
    db.fail(task, retry=False)
    return ("select pgflowd.retry(%s, 'me')", task.run_id)


def what_happened_in_a_run(db: Grown) -> Call:
    task = claim(db)[0]
    db.cancel(task.run_id)
    return query_of(runs.timeline(task.run_id))


def what_was_done_to_a_run(db: Grown) -> Call:
    task = claim(db)[0]
    db.cancel(task.run_id)
    return query_of(runs.list_actions(task.run_id))


def what_was_done_last(db: Grown) -> Call:
    return query_of(runs.list_actions())


def a_stalled(db: Grown) -> Any:
    task = claim(db)[0]
    db.lapse(task)
    return task


def a_requeue(db: Grown) -> Call:
    task = a_stalled(db)
    return (
        "select pgflowd.requeue_task(%s, %s, %s, '1 min', 'me')",
        *key(task)[:3],
    )


def a_task_given_up(db: Grown) -> Call:
    task = a_stalled(db)
    return (
        "select pgflowd.give_up_task(%s, %s, %s, '1 min', 'x', 'me')",
        *key(task)[:3],
    )


def a_follow(db: Grown) -> Call:
    return query_of(runs.follow([claim(db)[0].run_id], with_output=True))


def who_wants_output(db: Grown) -> Call:
    db.rows("select pgflowd.follow(%s, true)", [claim(db)[0].run_id])
    return ("select pgflowd.wanted_output(64)",)


def a_claim_of_the_contract(db: Grown) -> Call:
    ids = db.column("select msg_id from pgmq.read('f', 5, 3)")
    return ("select * from pgflow.start_tasks('f', %s::bigint[], %s)", ids, db.one)


def a_completion_of_the_contract(db: Grown) -> Call:
    task = claim(db)[0]
    return ("select * from pgflow.complete_task(%s, %s, 0, '1')", task.run_id, task.step_slug)


def a_failure_of_the_contract(db: Grown) -> Call:
    task = claim(db)[0]
    return ("select * from pgflow.fail_task(%s, %s, 0, 'x')", task.run_id, task.step_slug)


CASES = [
    a_start,
    five_starts,
    a_claim,
    a_claim_with_traces,
    a_claim_of_what_was_released,
    a_claim_of_lapsed_leases,
    a_claim_beside_living_leases,
    a_report_of_completions,
    a_report_that_ends_its_run,
    a_report_of_failures,
    a_report_of_failures_with_a_delay,
    a_report_that_fails_its_runs,
    a_report_of_releases,
    a_report_of_suspensions,
    a_report_whose_signal_has_come,
    a_checkpoint,
    a_checkpoint_dropped,
    all_checkpoints,
    a_signal,
    a_look_at_nothing_due,
    a_look_at_timers,
    a_look_at_signals,
    a_look_at_planned_runs,
    a_start_with_a_key,
    a_look_at_a_key_that_is_free,
    a_look_at_who_replaces,
    a_look_at_schedules,
    a_look_for_troubles_of_schedules,
    a_tick,
    a_task_woken,
    a_claim_of_a_person,
    a_task_that_a_person_completes,
    a_sweeper_that_lies_down,
    a_report_after_heartbeats,
    a_report_with_one_bad_element,
    a_report_that_is_late,
    a_repeated_report,
    news_of_a_report,
    a_heartbeat,
    a_heartbeat_of_long_tasks,
    a_heartbeat_of_lost_leases,
    a_heartbeat_of_cancelled_runs,
    who_cancelled,
    when_the_next_is_due,
    a_sweep_of_nothing,
    a_sweep_of_lapsed_leases,
    a_sweep_of_what_stalled_too_often,
    a_sweep_of_tasks_without_leases,
    a_sweep_of_a_dead_worker,
    recovery_of_the_core,
    a_cancel,
    a_retry,
    what_happened_in_a_run,
    what_was_done_to_a_run,
    what_was_done_last,
    a_follow,
    who_wants_output,
    a_claim_of_the_contract,
    a_completion_of_the_contract,
    a_failure_of_the_contract,
]


def costs(db: Grown, conn: psycopg.Connection[Any]) -> dict[str, int]:
    """The rows that each case reads, at its second time in this session."""
    found = {}
    own, db.conn = db.conn, conn
    for case in CASES:
        for _ in range(2):
            with conn.transaction(force_rollback=True):
                found[case.__name__] = rows_read(conn, *case(db))
    db.conn = own
    return found


@covers("database 6")
def test_statements_read_no_more_rows_when_tables_grow_that_were_analysed_empty(
    grown: Grown,
) -> None:
    grown.start("rare")
    grown.start_some(3)
    grown.freeze_statistics()
    older = grown.connect()
    few = costs(grown, older)

    grown.grow()

    for session in (older, grown.connect()):
        many = costs(grown, session)
        assert {
            name: (few[name], many[name]) for name in few if many[name] > few[name] + MORE
        } == {}


def test_a_start_reads_no_other_runs_where_tables_were_analysed_with_one(
    pgflow_db: ScratchDatabase,
) -> None:
    conn, start = pgflow_db.connect(), "select pgflowd.start('one', '{}')"
    for query in ("create_flow('one')", "add_step('one', 'a')", "start_flow('one', '{}')"):
        conn.execute(f"select pgflow.{query}".encode())
    conn.execute("alter table pgflow.step_states set (autovacuum_enabled = off)")
    conn.execute("analyze")

    def rows() -> int:
        with conn.transaction():
            return rows_read(conn, start)

    rows()
    few = rows()
    conn.execute(
        "select count(*) from pgflow.start_flows('one', array_fill('{}'::jsonb, array[500]))"
    )

    assert rows() <= few + 10


@covers("database 14")
def test_no_statement_in_a_function_is_compiled_where_the_server_could(tmp_path: Path) -> None:
    binaries = binaries_with_jit()
    with EmbeddedPostgres(tmp_path / "db", binaries=binaries, options=COMPILES) as postgres:
        server = ScratchServer(postgres.dsn)
        with server.database() as scratch:
            db = Grown(scratch.dsn)
            db.do("create extension pg_stat_statements")
            db.start("rare")
            db.start_some(3)

            found = {case.__name__: compiled(db, case) for case in CASES if case is not a_start}

            assert {name: queries for name, queries in found.items() if queries} == {}
            db.close()
        server.close()


def compiled(db: Grown, case: Callable[[Grown], Call]) -> list[str]:
    """The nested statements of a case that the server has compiled."""
    with db.conn.transaction(force_rollback=True):
        call, *params = case(db)
        db.rows("select pg_stat_statements_reset()")
        db.rows(call, *params)
        assert db.column(COMPILED, True) != [], "the server compiles nothing"
        return db.column(COMPILED, False)


def test_many_runs_are_not_compared_with_each_other_when_they_are_started(grown: Grown) -> None:
    query = "select unnest(proconfig) from pg_proc where oid = 'pgflowd.start_runs'::regproc"
    known = {row[0].partition("=")[0] for row in grown.rows(query)}

    assert "enable_seqscan" in known
    assert not {"enable_hashjoin", "enable_mergejoin"} & known  # a thousand times a thousand
