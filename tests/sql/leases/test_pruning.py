"""Pruning deletes what ended long ago, whole and for good, and nothing that is still needed."""

from __future__ import annotations

import threading
from contextlib import suppress
from uuid import UUID

import psycopg
import pytest
from support.child_runs import family, process, start_child
from support.database import Connection
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

OLD = """
with core as (
  update pgflow.runs set started_at = started_at - interval '9 days',
         completed_at = completed_at - interval '8 days', failed_at = failed_at - interval '8 days'
   where run_id = any (%(runs)s))
update pgflowd.runs set created_at = created_at - interval '9 days',
       cancelled_at = cancelled_at - interval '8 days', expired_at = expired_at - interval '8 days'
 where run_id = any (%(runs)s)
"""
BULK = """
insert into pgflow.runs (run_id, flow_slug, status, input, started_at, completed_at, failed_at)
select gen_random_uuid(), %(flow)s, %(status)s, '{}', moment,
       case %(status)s when 'completed' then moment end,
       case %(status)s when 'failed' then moment end
  from generate_series(1, %(count)s), (select now() - %(age)s::interval) as one (moment)
"""
TABLES_OF_RUNS = """
select format('%I.%I', schema.nspname, class.relname)
  from pg_attribute as attribute
  join pg_class as class on class.oid = attribute.attrelid and class.relkind = 'r'
  join pg_namespace as schema on schema.oid = class.relnamespace
 where schema.nspname in ('pgflow', 'pgflowd') and attribute.attname = 'run_id'
   and class.relname not in ('actions', 'followers') and not attribute.attisdropped
"""


def aged(db: LeaseDatabase, *runs: UUID) -> None:
    """Let runs have ended eight days ago."""
    db.conn.execute(OLD.encode(), {"runs": list(runs)})


def completed(db: LeaseDatabase, flow: str | None = None) -> UUID:
    """A run that completed eight days ago."""
    flow = flow or db.flow()
    run = db.start(flow)
    db.complete(next(one for one in db.claim(flow, db.worker(flow)) if one.run_id == run))
    aged(db, run)
    return run


def failed(db: LeaseDatabase, flow: str | None = None) -> UUID:
    run = db.start(flow or db.flow())
    db.cancel(run)
    aged(db, run)
    return run


def prune(db: LeaseDatabase, **given: object) -> int:
    named = "".join(f", {name} => %({name})s" for name in given)
    query = f"select pgflowd.prune(interval '7 days'{named})"
    return int(db.conn.execute(query.encode(), given).fetchone()[0])


def prune_all(conn: Connection) -> int:
    (count,) = conn.execute("select pgflowd.prune(interval '7 days')").fetchone() or (0,)
    return int(count)


def left(db: LeaseDatabase) -> set[UUID]:
    return set(db.column("select run_id from pgflowd.run_status"))


def rows_of(db: LeaseDatabase, run: UUID) -> dict[str, int]:
    """How many rows each table has of a run, and the messages of all queues."""
    found = {
        table: db.value(f"select count(*) from {table} where run_id = %s", run)
        for table in db.column(TABLES_OF_RUNS)
    }
    for table in db.column(
        "select relname from pg_class where relname ~ '^[aq]_flow' and relkind = 'r'"
    ):
        query = f"select count(*) from pgmq.{table} where message ->> 'run_id' = %s"
        found[table] = db.value(query, str(run))
    return {table: count for table, count in found.items() if count}


def rows_of_runs(db: LeaseDatabase) -> dict[str, int]:
    """How many rows each table has that is about runs, and the queues."""
    tables = db.column(TABLES_OF_RUNS) + db.column(
        "select 'pgmq.' || relname from pg_class where relname ~ '^[aq]_flow' and relkind = 'r'"
    )
    found = {table: db.value(f"select count(*) from {table}") for table in tables}
    return {table: count for table, count in found.items() if count}


def test_nothing_is_left_of_a_run_but_what_people_did(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "m*:a", "c:m")
    query = "select run_id from pgflowd.start(%s, '{}', labels => '{\"a\": \"b\"}')"
    run, worker = db.value(query, flow), db.worker(flow)
    task = db.claim_one(flow, worker)
    save = "select pgflowd.checkpoint_save(%s, %s, %s, %s, 'x', '1')"
    db.value(save, task.run_id, task.step_slug, task.task_index, task.token)
    db.complete(task, [1, 2])
    db.rows("select pgflowd.signal(%s, 'paid')", run)
    for one in db.claim(flow, worker):
        db.complete(one, 1)
    db.suspend(db.claim_one(flow, worker))
    db.cancel(run)
    process(db)
    aged(db, run)
    assert len(rows_of(db, run)) >= 7

    assert prune(db) == 1

    assert rows_of(db, run) == {}
    assert db.column("select action from pgflowd.actions order by action_id")[-2:] == [
        "cancel",
        "prune",
    ]


def test_only_runs_that_ended_long_enough_ago_go(own: LeaseDatabase) -> None:
    db = own
    flow, young_flow = db.flow(), db.flow()
    old, unhappy, other = completed(db, flow), failed(db, flow), completed(db)
    worker, young = db.worker(young_flow), db.start(young_flow)
    db.complete(db.claim_one(young_flow, worker))
    open_runs = [db.start(young_flow) for _ in range(2)]
    db.claim(young_flow, worker, 1)
    db.do(
        "update pgflow.runs set started_at = '2000-01-01' where run_id = any (%s)",
        [young, *open_runs],
    )

    assert prune(db, flow_slug=flow, keep_failed=True) == 1
    assert left(db) == {unhappy, other, young, *open_runs}
    assert prune(db, flow_slug=flow) == 1
    assert prune(db) == 1
    assert prune(db) == 0

    assert left(db) == {young, *open_runs} and old not in left(db)
    assert len(db.queue(young_flow)) == 2


def test_the_message_of_a_live_task_stays_though_its_id_was_given_before(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    completed(own, flow)
    live = own.start(flow)
    own.do(f"update pgflow.step_tasks set message_id = (select msg_id from pgmq.q_{flow})")

    assert prune(own) == 1

    assert left(own) == {live}
    assert len(own.queue(flow)) == 1


def test_the_oldest_go_first_and_those_that_never_began_too(own: LeaseDatabase) -> None:
    flow = own.flow()
    unbegun = own.value(
        "select run_id from pgflowd.start(%s, '{}', start_at => now() + '1 h')", flow
    )
    own.cancel(unbegun)
    process(own)
    aged(own, unbegun)
    older = completed(own, flow)
    own.do("update pgflow.runs set started_at = started_at - interval '1 d'")
    newest = completed(own, flow)

    found = []
    for _ in range(3):
        before = left(own)
        assert prune(own, max_runs=1) == 1
        found += before - left(own)

    assert found == [older, unbegun, newest]


def test_thousands_that_stay_or_began_at_once_stop_nothing(own: LeaseDatabase) -> None:
    flow = own.flow()
    kept = {"flow": flow, "status": "failed", "count": 2_500, "age": "20 days"}
    own.conn.execute(BULK.encode(), kept)
    own.conn.execute(BULK.encode(), kept | {"status": "completed", "count": 300})
    own.conn.execute(BULK.encode(), kept | {"status": "completed", "count": 300, "age": "9 days"})

    query = """
        select pruned, after_at, after_run
          from pgflowd.prune_next('7 days', null, true, 100, %s, %s, %s, 'me')
    """
    for only_count in (True, False):
        place, gone, calls = (None, None), 0, 0
        while place[0] or not calls:
            pruned, *place = own.conn.execute(query.encode(), (only_count, *place)).fetchone()
            gone, calls = gone + pruned, calls + 1
        assert gone == 600
        assert calls <= 12
    assert own.value("select count(*) from pgflow.runs") == 2_500


def test_a_family_goes_whole_or_not_at_all(own: LeaseDatabase) -> None:
    task, children = family(own, 2, 1)
    own.cancel(task.run_id)
    process(own)
    aged(own, task.run_id, *children)
    own.do("update pgflow.runs set failed_at = now() where run_id = %s", children[-1])
    flow_of_child = own.value("select flow_slug from pgflow.runs where run_id = %s", children[0])

    assert prune(own) == prune(own, flow_slug=flow_of_child) == 0
    own.do("update pgflow.runs set failed_at = started_at")
    assert prune(own, flow_slug=flow_of_child) == 0, "a child stays as long as its parent"
    assert prune(own, max_runs=1) == 5

    assert left(own) == set()


def test_a_child_of_an_open_run_stays(own: LeaseDatabase) -> None:
    task, children = family(own, 1)
    own.cancel(children[0])
    aged(own, *children)

    assert prune(own) == 0
    with pytest.raises(psycopg.Error, match=f"it belongs to run {task.run_id}") as refused:
        own.value("select pgflowd.delete_run(%s)", children[0])

    assert refused.value.sqlstate == "PF023"
    assert left(own) == {task.run_id, *children}


@pytest.mark.parametrize("way", ["prune", "prune_data_older_than"])
def test_a_run_stays_while_somebody_waits_for_its_end(own: LeaseDatabase, way: str) -> None:
    flow, others = own.flow(), own.flow()
    run = own.start(flow)
    after = """
        select run_id
          from pgflowd.start(%s, '{}', after => array[%s::uuid], after_mode => 'ended')
    """
    waiting = own.value(after, others, run)
    process(own)
    own.complete(own.claim_one(flow, own.worker(flow)))
    aged(own, run)
    call = "select pgflowd.prune('7 days')"
    if way == "prune_data_older_than":
        call = "select deleted_runs from pgflow.prune_data_older_than('7 days', null)"

    assert own.value(call) == 0, "nobody has been told yet"
    with pytest.raises(psycopg.Error, match="a run waits for its end"):
        own.value("select pgflowd.delete_run(%s)", run)
    process(own)
    assert own.value(call) == 1

    assert left(own) == {waiting}
    assert own.status(waiting) == "started"


def test_a_run_that_the_sweep_is_to_look_at_stays(own: LeaseDatabase) -> None:
    flow = own.flow()
    holder = own.value("select run_id from pgflowd.start(%s, '{}', singleton_key => 'k')", flow)
    expiring = own.value(
        "select run_id from pgflowd.start(%s, '{}', expires_at => now() + '9 d')", flow
    )
    for run in (holder, expiring):
        own.cancel(run)
    own.do("update pgflowd.runs set due_at = expires_at where run_id = %s", expiring)
    aged(own, holder, expiring)

    assert prune(own) == 1, "an expiry to come is of no use to a run that has ended"
    assert left(own) == {holder}
    process(own)
    assert prune(own) == 1


def test_who_holds_a_run_keeps_it(own: LeaseDatabase) -> None:
    held, free = completed(own), completed(own)
    other = own.connect()
    with other.transaction():
        other.execute("select from pgflow.runs where run_id = %s for key share", [held])
        assert prune(own) == 1

    assert free not in left(own)
    assert prune(own) == 1


def test_a_flow_that_is_deleted_meanwhile_stops_no_prune(own: LeaseDatabase) -> None:
    flow, run = own.flow(), completed(own)
    other, conn, pruned = own.connect(), own.connect(), list[int]()
    with other.transaction():
        other.execute("select pgflowd.delete_flow(%s)", [flow])
        pruning = threading.Thread(target=lambda: pruned.append(prune_all(conn)))
        pruning.start()
        waits = "select true from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
        until(lambda: own.rows(waits, conn.info.backend_pid))
    pruning.join()

    assert pruned == [1] and run not in left(own)


def test_the_settings_of_retention_decide_what_the_sweeper_deletes(own: LeaseDatabase) -> None:
    good, bad = completed(own), failed(own)
    expired = "select pruned from pgflowd.prune_expired(100)"
    old = "insert into pgflowd.actions (actor, action, at) values ('me', 'x', '2020-01-01')"
    own.do(old)

    assert own.value(expired) == 0, "by default all runs are kept"
    assert own.value("select count(*) from pgflowd.actions where action = 'x'") == 0
    own.set("retention_failed", "9d")
    assert own.value(expired) == 0
    own.set("retention_completed", "7d")
    assert own.value(expired) == 1
    assert left(own) == {bad} and good not in left(own)
    own.set("retention_failed", "7d")
    other = own.connect()
    with other.transaction():
        other.execute("select pgflowd._lock_name('work', 'prune_expired', true)")
        assert own.value(expired) is None, "another one is at it"
    assert own.value(expired) == 1


def test_what_pruned_runs_leave_behind_goes_with_them(own: LeaseDatabase) -> None:
    flow = own.flow()
    completed(own, flow)
    own.do(f"insert into pgmq.a_{flow} (msg_id, enqueued_at, archived_at, vt, message)"
           " values (999, now(), now() - interval '8 d', now(), '{}'),"
           " (998, now(), now() - interval '6 d', now(), '{}')")  # fmt: skip
    own.do("update pgflow.workers set last_heartbeat_at = now() - interval '8 days'")

    with pytest.raises(psycopg.Error, match="needs a duration"):
        own.value("select pgflowd.prune(null)")
    assert prune(own) == 1

    assert own.column(f"select msg_id from pgmq.a_{flow}") == [998]
    assert own.value("select count(*) from pgflow.workers") == 0


def test_a_session_that_dies_has_deleted_whole_parts_and_another_goes_on(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    given = {"flow": flow, "status": "completed", "count": 300, "age": "9 days"}
    own.conn.execute(BULK.encode(), given)
    one = "select pgflowd.prune_next('7 days', null, false, 100, false, null, null, null)"
    dying = own.connect()
    dying.execute(one.encode())
    dying.execute("begin")
    dying.execute(one.encode())
    own.do("select pg_terminate_backend(%s)", dying.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        dying.execute("commit")

    assert own.value("select count(*) from pgflow.runs") == 200
    assert prune(own) == 200


@pytest.mark.parametrize(
    ("state", "text"),
    [("open", "it is started"), ("of a child", "which belongs to it, is started")],
)
def test_a_run_that_goes_on_is_not_deleted(own: LeaseDatabase, state: str, text: str) -> None:
    task, _ = family(own, 1)
    if state != "open":
        own.complete(task)

    with pytest.raises(psycopg.Error, match=text) as refused:
        own.value("select pgflowd.delete_run(%s)", task.run_id)

    assert refused.value.sqlstate == "PF023"
    assert "runs cancel" in str(refused.value.diag.message_hint)
    assert len(left(own)) == 2


def test_a_deleted_run_takes_its_children_along_and_leaves_an_action(own: LeaseDatabase) -> None:
    task, children = family(own, 2)
    own.cancel(task.run_id)
    process(own)

    assert own.value("select pgflowd.delete_run(%s, 'jane')", task.run_id) == 3

    assert left(own) == set() and len(children) == 2
    last = own.row("select * from pgflowd.actions order by action_id desc limit 1")
    assert (last.action, last.actor, last.run_id) == ("delete_run", "jane", task.run_id)
    with pytest.raises(psycopg.Error, match="there is no run") as unknown:
        own.value("select pgflowd.delete_run(%s)", task.run_id)
    assert unknown.value.sqlstate == "PF002"


def test_pruning_beside_everything_deletes_nothing_that_lives(own: LeaseDatabase) -> None:
    flow, child_flow = own.flow("a", "b:a"), own.flow()
    worker, child_worker = own.worker(flow), own.worker(child_flow)
    over = threading.Event()
    pruned = []

    def prune_all() -> None:
        conn = own.connect()
        while not over.is_set():
            (count,) = conn.execute("select pgflowd.prune('-1 s')").fetchone() or (0,)
            pruned.append(count)

    threads = [threading.Thread(target=prune_all) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        alive = set()
        for number in range(40):
            run = own.start(flow)
            task = next(one for one in own.claim(flow, worker) if one.run_id == run)
            start_child(own, task, child_flow)
            if number % 4 == 0:
                alive.add(run)
                continue
            for one in own.claim(child_flow, child_worker):
                own.complete(one)
            own.complete(task)
            (then,) = [one for one in own.claim(flow, worker) if one.run_id == run]
            if number % 4 == 1:
                own.cancel(run)
                with suppress(psycopg.Error):  # it may be gone by now
                    own.value("select pgflowd.retry(%s, '', even_if_cancelled => true)", run)
                    alive.add(run)
            else:
                own.complete(then)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    process(own)

    gone = alive - left(own)
    assert gone == set()
    assert sum(pruned) > 20
    own.do("select pgflowd.prune('-1 s')")
    assert set(own.column("select run_id from pgflow.runs where status <> 'started'")) <= left(own)
    assert own.rows("select * from pgflowd.violations()") == []


def test_what_is_left_of_a_run_that_is_gone_is_a_violation(own: LeaseDatabase) -> None:
    flow = own.flow()
    run = own.value("select run_id from pgflowd.start(%s, '{}', expires_at => now() + '1 h')", flow)
    own.value("select pgflowd.signal(%s, 'paid')", run)
    process(own)
    own.cancel(run)
    with own.conn.transaction(force_rollback=True):
        own.do("delete from pgflow.step_tasks")
        own.do("delete from pgflow.step_states")
        own.do("delete from pgflow.runs")

        found = own.rows("select * from pgflowd.orphan_violations()")

    assert {row.detail.partition(" and ")[2] for row in found} == {
        "a signal of it is left",
        "the entry of it is left",
    }
    assert {row.invariant for row in found} == {"I23"}
